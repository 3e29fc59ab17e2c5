#include "orchestrator/grammar/json_schema.h"

#include <gtest/gtest.h>

#include "tests/grammar/grammar_texts.h"

namespace moestro::grammar {
namespace {

using nlohmann::json;
using testing::grammar_of;
using testing::random_text;
using testing::reads;
using testing::refusal_of;

void expect(const std::string& schema, const std::vector<const char*>& good, const std::vector<const char*>& bad) {
  const ByteGrammar g = grammar_of(schema);
  for (const char* text : good) EXPECT_TRUE(reads(g, text)) << schema << " on " << text;
  for (const char* text : bad) EXPECT_FALSE(reads(g, text)) << schema << " on " << text;
  std::mt19937 random(1);
  for (int i = 0; i < 20; ++i) {
    const std::string text = random_text(g, random);
    EXPECT_TRUE(json::accept(text)) << schema << " makes " << text;
  }
}

TEST(JsonSchema, Types) {
  expect(R"({"type": "string"})", {"\"a\"", "\"\""}, {"1", "null"});
  expect(R"({"type": "integer"})", {"0", "-5", "123"}, {"1.5", "\"1\"", "01"});
  expect(R"({"type": "number"})", {"0", "-5.25", "1e9"}, {"null", "1."});
  expect(R"({"type": "boolean"})", {"true", "false"}, {"null"});
  expect(R"({"type": ["integer", "null"]})", {"3", "null"}, {"\"\"", "true"});
  expect("{}", {"3", "null", "{\"a\": [1]}"}, {""});
  expect("true", {"[true]"}, {"tru"});
}

TEST(JsonSchema, Objects) {
  const char* schema = R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}, "c": {"type": "null"}}, "required": ["b"]})";
  expect(schema, {R"({"b":"x"})", R"({"a": 1, "b": "x"})", R"({"b": "", "c": null})", "{\n  \"a\": 1,\n  \"b\": \"x\",\n  \"c\": null\n}"},
         {"{}", R"({"a": 1})", R"({"b": 1})", R"({"b": "x", "a": 1})", R"({"b": "x", "d": 1})", R"({"b": "x",})", R"({,"b": "x"})"});
  expect(R"({"properties": {"a": {}}})", {"{}", R"({"a": [1]})"}, {R"({"b": 1})", "[]"});
  expect(R"({"type": "object"})", {"{}"}, {R"({"x": 1})"});
  expect(R"({"type": "object", "additionalProperties": true})", {"{}", R"({"x": 1, "y": {}})"}, {"[]"});
  expect(R"({"properties": {"a": {"type": "null"}}, "additionalProperties": {"type": "integer"}})",
         {"{}", R"({"a": null})", R"({"x": 1})", R"({"a": null, "x": 1, "ab": 2})"}, {R"({"a": 1})", R"({"x": "y"})", R"({"x": 1, "a": 1})", R"({"\u0061": 1})"});
  expect(R"({"properties": {"é \"q\"": {"type": "null"}}, "required": ["é \"q\""]})", {R"({"é \"q\"": null})"}, {"{}"});
}

TEST(JsonSchema, Arrays) {
  expect(R"({"type": "array", "items": {"type": "integer"}})", {"[]", "[1]", "[1, 2, 3]"}, {"[1,]", "[null]", "[", "[1 2]"});
  expect(R"({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3})", {"[1,2]", "[1,2,3]"}, {"[]", "[1]", "[1,2,3,4]"});
  expect(R"({"type": "array", "minItems": 1})", {"[null]", "[1, \"a\"]"}, {"[]"});
  expect(R"({"type": "array", "items": {"type": "null"}, "maxItems": 0})", {"[]"}, {"[null]"});
  expect(R"({"prefixItems": [{"type": "integer"}, {"type": "string"}], "items": false, "minItems": 2})", {"[1,\"a\"]"}, {"[1]", "[1,\"a\",1]", "[\"a\",1]"});
  expect(R"({"prefixItems": [{"type": "integer"}], "items": {"type": "null"}})", {"[]", "[1]", "[1,null,null]"}, {"[null]", "[1,1]"});
}

TEST(JsonSchema, StringsAndIntegersWithBounds) {
  expect(R"({"type": "string", "minLength": 2, "maxLength": 3})", {"\"ab\"", "\"abc\"", "\"é\\n\"", "\"\\u00e9a\""}, {"\"a\"", "\"abcd\""});
  expect(R"({"type": "string", "pattern": "^a+$"})", {"\"aa\""}, {"\"\"", "\"ab\""});
  expect(R"({"type": "string", "format": "date"})", {"\"2024-02-28\""}, {"\"2024-13-01\"", "\"x\""});
  expect(R"({"type": "string", "format": "uuid"})", {"\"01234567-89ab-cdef-0123-456789abcdef\""}, {"\"0123\""});
  expect(R"({"type": "integer", "minimum": 3, "exclusiveMaximum": 12})", {"3", "11"}, {"2", "12"});
  expect(R"({"type": "integer", "minimum": -2.5, "maximum": 0.5})", {"-2", "0"}, {"-3", "1"});
}

TEST(JsonSchema, ChoicesAndReferences) {
  expect(R"({"enum": ["red", 5, null, {"a": [1]}]})", {"\"red\"", "5", "null", "{\"a\":[1]}"}, {"\"re\"", "6"});
  expect(R"({"type": "string", "enum": ["a", 1, "b"]})", {"\"a\"", "\"b\""}, {"1"});
  expect(R"({"const": "x"})", {"\"x\""}, {"\"y\""});
  expect(R"({"anyOf": [{"type": "integer"}, {"enum": ["all"]}]})", {"7", "\"all\""}, {"null"});
  expect(R"({"oneOf": [{"type": "integer"}, {"type": "string"}]})", {"7", "\"a\""}, {"null"});
  expect(R"({"oneOf": [{"properties": {"k": {"const": "a"}}, "required": ["k"]}, {"properties": {"k": {"const": "b"}, "n": {"type": "null"}}, "required": ["k", "n"]}]})",
         {R"({"k": "a"})", R"({"k": "b", "n": null})"}, {R"({"k": "a", "n": null})", R"({"k": "c"})"});
  expect(R"({"allOf": [{"type": "null"}]})", {"null"}, {"1"});
  expect(R"({"$ref": "#/$defs/x", "$defs": {"x": {"type": "null"}}})", {"null"}, {"1"});
  const char* tree = R"({"$defs": {"node": {"type": "object", "properties": {"v": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
    "required": ["v", "kids"]}}, "$ref": "#/$defs/node"})";
  expect(tree, {R"({"v": 1, "kids": []})", R"({"v": 1, "kids": [{"v": 2, "kids": [{"v": 3, "kids": []}]}, {"v": 4, "kids": []}]})"}, {R"({"v": 1, "kids": [1]})"});
}

TEST(JsonSchema, RefusesByName) {
  const std::pair<const char*, const char*> kUnsupported[]{
      {R"({"not": {}})", "'not'"}, {R"({"type": "object", "patternProperties": {}})", "'patternProperties'"}, {R"({"type": "array", "uniqueItems": true})", "'uniqueItems'"},
      {R"({"type": "number", "minimum": 1})", "'minimum'"}, {R"({"type": "integer", "multipleOf": 2})", "'multipleOf'"}, {R"({"type": "string", "format": "iri"})", "iri"},
      {R"x({"type": "string", "pattern": "(?=a)"})x", "pattern"}, {R"({"type": "string", "pattern": "a", "minLength": 2})", "'pattern' beside"}, {R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})", "'oneOf'"},
      {R"({"allOf": [{}, {}]})", "'allOf'"}, {R"({"$ref": "http://x/y"})", "references"}, {R"({"anyOf": [{}], "properties": {}})", "beside"},
      {R"({"properties": {"a": {"properties": {"b": {"if": {}}}}}})", "/properties/a/properties/b"}, {R"({"required": ["x"]})", "'x'"}, {R"({"type": "string", "maxLength": 1000000})", "maxLength"}};
  for (const auto& [schema, word] : kUnsupported) {
    const Status why = refusal_of(schema);
    EXPECT_EQ(why.code(), Code::kUnsupported) << schema;
    EXPECT_NE(why.message().find(word), std::string::npos) << why.message();
  }
  for (const char* schema : {"5", "[]", "false", R"({"type": "text"})", R"({"type": 5})", R"({"enum": 3})", R"({"enum": []})", R"({"type": "null", "enum": [1]})", R"({"anyOf": []})", R"({"$ref": "#/x"})",
                             R"({"$ref": "#/%"})", R"({"$ref": 5})", R"({"properties": []})", R"({"properties": {}, "required": 5})", R"({"type": "array", "minItems": -1})", R"({"type": "array", "minItems": 3, "maxItems": 2})",
                             R"({"type": "integer", "minimum": 5, "maximum": 4})", R"({"type": "integer", "minimum": "5"})", R"({"type": "string", "pattern": "("})", R"({"properties": {"a": 7}})"})
    EXPECT_EQ(refusal_of(schema).code(), Code::kInvalidArgument) << schema;
}

TEST(JsonSchema, WhatSpeaksOnlyOfItselfLeadsNowhere) {
  const ByteGrammar g = grammar_of(R"({"$ref": "#"})");
  GrammarStates states(g);
  EXPECT_TRUE(states.failed() || states.start() == kDeadState);
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += R"({"properties": {"a": )";
  deep += "{}";
  for (int i = 0; i < 100; ++i) deep += "}}";
  EXPECT_EQ(refusal_of(deep).code(), Code::kUnsupported);
}

}  // namespace
}  // namespace moestro::grammar
