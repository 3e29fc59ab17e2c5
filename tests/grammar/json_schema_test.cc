#include "orchestrator/grammar/json_schema.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/grammar/grammar_texts.h"

namespace moestro::grammar {
namespace {

using nlohmann::json;
using testing::expect;
using testing::grammar_of;
using testing::random_text;
using testing::reads;
using testing::refusal_of;

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
  const char* schema =
      R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}, "c": {"type": "null"}}, "required": ["b"]})";
  expect(schema,
         {R"({"b":"x"})", R"({"a": 1, "b": "x"})", R"({"b": "", "c": null})",
          "{\n  \"a\": 1,\n  \"b\": \"x\",\n  \"c\": null\n}"},
         {"{}", R"({"a": 1})", R"({"b": 1})", R"({"b": "x", "a": 1})", R"({"b": "x", "d": 1})", R"({"b": "x",})",
          R"({,"b": "x"})"});
  expect(R"({"properties": {"a": {}}})", {"{}", R"({"a": [1]})"}, {R"({"b": 1})", "[]"});
  expect(R"({"type": "object"})", {"{}"}, {R"({"x": 1})"});
  expect(R"({"type": "object", "additionalProperties": true})", {"{}", R"({"x": 1, "y": {}})"}, {"[]"});
  expect(R"({"properties": {"a": {"type": "null"}}, "additionalProperties": {"type": "integer"}})",
         {"{}", R"({"a": null})", R"({"x": 1})", R"({"a": null, "x": 1, "ab": 2})"},
         {R"({"a": 1})", R"({"x": "y"})", R"({"x": 1, "a": 1})", R"({"\u0061": 1})"});
  expect(R"({"properties": {"é \"q\"": {"type": "null"}}, "required": ["é \"q\""]})", {R"({"é \"q\"": null})"}, {"{}"});
}

TEST(JsonSchema, Arrays) {
  expect(R"({"type": "array", "items": {"type": "integer"}})", {"[]", "[1]", "[1, 2, 3]"},
         {"[1,]", "[null]", "[", "[1 2]"});
  expect(R"({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3})", {"[1,2]", "[1,2,3]"},
         {"[]", "[1]", "[1,2,3,4]"});
  expect(R"({"type": "array", "minItems": 1})", {"[null]", "[1, \"a\"]"}, {"[]"});
  expect(R"({"type": "array", "items": {"type": "null"}, "maxItems": 0})", {"[]"}, {"[null]"});
  expect(R"({"prefixItems": [{"type": "integer"}, {"type": "string"}], "items": false, "minItems": 2})", {"[1,\"a\"]"},
         {"[1]", "[1,\"a\",1]", "[\"a\",1]"});
  expect(R"({"prefixItems": [{"type": "integer"}], "items": {"type": "null"}})", {"[]", "[1]", "[1,null,null]"},
         {"[null]", "[1,1]"});
}

TEST(JsonSchema, StringsAndIntegersWithBounds) {
  expect(R"({"type": "string", "minLength": 2, "maxLength": 3})", {"\"ab\"", "\"abc\"", "\"é\\n\"", "\"\\u00e9a\""},
         {"\"a\"", "\"abcd\""});
  expect(R"({"type": "string", "pattern": "^a+$"})", {"\"aa\""}, {"\"\"", "\"ab\""});
  expect(R"({"type": "string", "format": "date"})", {"\"2024-02-28\""}, {"\"2024-13-01\"", "\"x\""});
  expect(R"({"type": "string", "format": "uuid"})", {"\"01234567-89ab-cdef-0123-456789abcdef\""}, {"\"0123\""});
  expect(R"({"type": "integer", "minimum": 3, "exclusiveMaximum": 12})", {"3", "11"}, {"2", "12"});
  expect(R"({"type": "integer", "minimum": -2.5, "maximum": 0.5})", {"-2", "0"}, {"-3", "1"});
}

TEST(JsonSchema, IntegersWithBoundsOf19Digits) {
  expect(R"({"type": "integer", "minimum": 1000000000000000000, "maximum": 2000000000000000000})",
         {"1000000000000000000", "1750000000000000001", "2000000000000000000"},
         {"990000000000000000", "999999999999999999", "2000000000000000001", "-1000000000000000000"});
  expect(R"({"type": "integer", "minimum": 1e18})", {"1000000000000000000", "9223372036854775807"},
         {"999900001700890000", "9223372036854775808", "9999999999999999999"});
  expect(R"({"type": "integer", "exclusiveMinimum": 999999999999999999})", {"1000000000000000000"},
         {"999999999999999999"});
  expect(R"({"type": "integer", "maximum": -1e18})", {"-1000000000000000000", "-9223372036854775807"},
         {"-999999999999999999", "-9223372036854775808", "1"});
  expect(R"({"type": "integer", "exclusiveMinimum": -9223372036854775808, "maximum": 18446744073709551615})",
         {"0", "-9223372036854775807", "9223372036854775807"}, {"9223372036854775808"});
  expect(R"({"type": "integer", "minimum": -1e300, "maximum": 0})", {"0", "-5", "-9223372036854775807"}, {"1"});
  // Doubles cannot tell these bounds from their neighbours.
  expect(R"({"type": "integer", "exclusiveMinimum": 9007199254740992, "exclusiveMaximum": 9007199254740994})",
         {"9007199254740993"}, {"9007199254740992", "9007199254740994"});
  expect(R"({"type": "integer", "minimum": 0})", {"999999999999999999"}, {"1000000000000000000"});
}

TEST(JsonSchema, NumbersWithBounds) {
  expect(R"({"type": "number", "minimum": 0.25, "exclusiveMaximum": 12.5})",
         {"0.25", "0.250", "0.3", "1", "9.75", "10", "12", "12.4", "12.49999"},
         {"0", "0.2", "0.24999", "12.5", "12.50", "13", "100", "-1", "1e1", "01", "1."});
  expect(R"({"type": "number", "exclusiveMinimum": -1.5, "maximum": 0})", {"-1.4", "-1", "-0.5", "0", "0.0"},
         {"-1.5", "-1.50", "-2", "0.1", "1", "-10"});
  expect(R"({"type": "number", "minimum": -20, "maximum": -3.5})", {"-20", "-3.5", "-4", "-19.99"},
         {"-20.1", "-3", "-3.4", "0", "3.5", "-0"});
  expect(R"({"type": "number", "exclusiveMinimum": 0})", {"0.1", "0.001", "5", "123456.5"}, {"0", "0.0", "-1", "00.1"});
  expect(R"({"type": "number", "exclusiveMaximum": 100})", {"-5", "0", "99.99"}, {"100", "100.0", "1000"});
  expect(R"({"type": "number", "minimum": 1.5, "maximum": 1.5})", {"1.5", "1.50"}, {"1", "1.51", "1.6", "2"});
  expect(R"({"type": "number", "minimum": 2, "exclusiveMinimum": 2, "maximum": 1e300})", {"2.1", "3"}, {"2", "2.0"});
  expect(R"({"minimum": 0.5})", {"0.5", "7"}, {"0", "\"a\""});
}

/// What the grammar makes, against what the bounds say.
TEST(JsonSchema, RandomNumbersAreWithinRandomBounds) {
  std::mt19937 random(5);
  const auto roll = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 200; ++round) {
    const double scale = std::pow(10.0, roll(5) - 2);
    double low = (roll(2001) - 1000) * scale, high = (roll(2001) - 1000) * scale;
    if (low > high) std::swap(low, high);
    const bool above = roll(2) == 0, below = roll(2) == 0;
    if (low == high) continue;
    const json schema{{"type", "number"},
                      {above ? "exclusiveMinimum" : "minimum", low},
                      {below ? "exclusiveMaximum" : "maximum", high}};
    const ByteGrammar g = grammar_of(schema.dump());
    for (int i = 0; i < 10; ++i) {
      const std::string text = random_text(g, random, static_cast<size_t>(1 + roll(12)));
      const double value = json::parse(text).get<double>();
      EXPECT_TRUE(value > low || (!above && value == low)) << schema << " makes " << text;
      EXPECT_TRUE(value < high || (!below && value == high)) << schema << " makes " << text;
    }
  }
}

TEST(JsonSchema, Multiples) {
  expect(R"({"type": "integer", "multipleOf": 7})", {"0", "7", "-14", "700"}, {"1", "8", "-13", "07", "7.0"});
  expect(R"({"type": "integer", "multipleOf": 5, "minimum": 3, "maximum": 22})", {"5", "10", "20"},
         {"0", "3", "12", "25", "-5"});
  expect(R"({"type": "number", "multipleOf": 2, "exclusiveMinimum": 2})", {"4", "10"}, {"2", "5", "4.5"});
  expect(R"({"type": "integer", "multipleOf": 1})", {"3"}, {"3.5"});
  expect(R"({"type": "integer", "multipleOf": 3, "minimum": 10000000000000000, "maximum": 10000000000000005})",
         {"10000000000000002", "10000000000000005"}, {"10000000000000000", "10000000000000008", "9999999999999999"});
  expect(R"({"type": "integer", "multipleOf": 3, "minimum": 10})", {"12", "999999999999999999"},
         {"9", "1000000000000000002", "999999999999999998"});
  expect(R"({"type": "integer", "multipleOf": 2, "minimum": 9007199254740993})", {"9007199254740994"},
         {"9007199254740992"});
  expect(R"({"type": "integer", "multipleOf": 100, "maximum": -9223372036854775701})", {"-9223372036854775800"},
         {"-9223372036854775700", "-9223372036854775900"});
}

/// What the grammar makes, against remainders: every multiple within bounds of up to 19 digits, and nothing else.
TEST(JsonSchema, RandomMultiplesAreWithinRandomBounds) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 40; ++round) {
    const auto divisor = static_cast<int64_t>(2 + random() % 99);
    const auto wide = static_cast<int64_t>(random() >> 1) >> random() % 63;
    const int64_t near = random() % 2 == 0 ? wide : -wide;
    const int64_t low = near > INT64_MAX - 300 ? INT64_MAX - 300 : near, high = low + 250;
    const json schema{{"type", "integer"}, {"multipleOf", divisor}, {"minimum", low}, {"maximum", high}};
    const ByteGrammar g = grammar_of(schema.dump());
    for (int64_t n = std::max(low, -INT64_MAX + 20) - 20; n <= high + 20; ++n)
      EXPECT_EQ(reads(g, std::to_string(n)), low <= n && n <= high && n % divisor == 0) << schema << " on " << n;
  }
}

TEST(JsonSchema, Formats) {
  const auto format = [](const char* name) { return R"({"type": "string", "format": ")" + std::string(name) + "\"}"; };
  expect(format("date"), {"\"2024-02-29\"", "\"2000-02-29\"", "\"2023-01-31\"", "\"2023-04-30\""},
         {"\"2023-02-29\"", "\"1900-02-29\"", "\"2023-04-31\"", "\"2023-00-10\""});
  expect(format("time"), {"\"23:59:59Z\"", "\"00:00:00.5+01:30\""}, {"\"24:00:00Z\"", "\"10:00\""});
  expect(format("date-time"), {"\"2024-02-29T10:00:00Z\""}, {"\"2024-02-29\""});
  expect(format("uri"), {"\"https://a.example/x%20y?q=1#f\"", "\"s3://bucket/key\"", "\"http://h:8080\""},
         {"\"a.example\"", "\"http://\"", "\"http://h/%zz\"", "\"http://h/ x\""});
  expect(format("ipv4"), {"\"192.168.0.255\""}, {"\"256.1.1.1\"", "\"1.1.1\""});
  expect(format("ipv6"),
         {"\"::\"", "\"::1\"", "\"fe80::1:2\"", "\"1:2:3:4:5:6:7:8\"", "\"1::\"", "\"1:2:3:4:5:6:7::\""},
         {"\"1:2:3\"", "\"1:2:3:4:5:6:7:8:9\"", "\"1::2::3\"", "\"g::\"", "\":\""});
  expect(format("hostname"), {"\"a.b-c.example\""}, {"\"-a\"", "\"a..b\""});
  expect(format("email"), {"\"a.b+c@d.example\""}, {"\"a\"", "\"@d.example\""});
}

TEST(JsonSchema, AWishIsFollowedAsFarAsItCanBePromised) {
  const json schema = json::parse(R"x({"type": "object", "not": {}, "required": ["a", "z"], "properties": {
    "z": false,
    "a": {"type": "string", "format": "iri", "minLength": 2},
    "b": {"allOf": [{"type": "integer"}, {"minimum": 3}], "type": "integer"},
    "c": {"oneOf": [{"type": "integer"}, {"type": "number"}]},
    "d": {"type": "string", "pattern": "(?=x)"},
    "e": {"$ref": "http://elsewhere"},
    "f": {"type": "array", "items": {"type": "null"}, "uniqueItems": true},
    "g": {"type": "integer", "multipleOf": 0.3}}})x");
  const nlohmann::ordered_json ordered = schema;
  ByteGrammar g;
  const NodeId begin = g.add();
  std::vector<std::string> passed_over;
  const auto end = JsonSchemaCompiler(g, ordered, &passed_over).compile(begin);
  ASSERT_TRUE(end.is_ok()) << end.status().message();
  g.end(*end);
  g.set_start(begin);
  EXPECT_EQ(passed_over.size(), 9u);
  EXPECT_TRUE(reads(g, R"({"a": "xy", "b": 1, "c": 1.5, "d": "q", "e": [], "f": [null, null], "g": 4})"));
  EXPECT_FALSE(reads(g, R"({"a": "x"})")) << "what can be promised is";
  EXPECT_FALSE(reads(g, R"({"a": "xy", "b": "1"})"));
  EXPECT_FALSE(reads(g, "{}"));
  ByteGrammar other;
  EXPECT_EQ(JsonSchemaCompiler(other, nlohmann::ordered_json::parse(R"({"type": "text"})"), &passed_over)
                .compile(other.add())
                .status()
                .code(),
            Code::kInvalidArgument)
      << "what is no schema is refused all the same";
}

TEST(JsonSchema, WhatMakesItTooLargeIsSaid) {
  nlohmann::ordered_json schema{{"type", "object"}, {"properties", nlohmann::ordered_json::object()}};
  for (int i = 0; i < 10'000; ++i) schema["properties"]["p" + std::to_string(i)] = {{"type", "string"}};
  EXPECT_NE(refusal_of(schema.dump()).message().find("too many properties"), std::string::npos)
      << refusal_of(schema.dump()).message();
}

TEST(JsonSchema, ChoicesAndReferences) {
  expect(R"({"enum": ["red", 5, null, {"a": [1]}]})", {"\"red\"", "5", "null", "{\"a\":[1]}"}, {"\"re\"", "6"});
  expect(R"({"type": "string", "enum": ["a", 1, "b"]})", {"\"a\"", "\"b\""}, {"1"});
  expect(R"({"const": "x"})", {"\"x\""}, {"\"y\""});
  expect(R"({"anyOf": [{"type": "integer"}, {"enum": ["all"]}]})", {"7", "\"all\""}, {"null"});
  expect(R"({"oneOf": [{"type": "integer"}, {"type": "string"}]})", {"7", "\"a\""}, {"null"});
  expect(
      R"({"oneOf": [{"properties": {"k": {"const": "a"}}, "required": ["k"]}, {"properties": {"k": {"const": "b"}, "n": {"type": "null"}}, "required": ["k", "n"]}]})",
      {R"({"k": "a"})", R"({"k": "b", "n": null})"}, {R"({"k": "a", "n": null})", R"({"k": "c"})"});
  expect(R"({"allOf": [{"type": "null"}]})", {"null"}, {"1"});
  expect(R"({"$ref": "#/$defs/x", "$defs": {"x": {"type": "null"}}})", {"null"}, {"1"});
  const char* tree =
      R"({"$defs": {"node": {"type": "object", "properties": {"v": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
    "required": ["v", "kids"]}}, "$ref": "#/$defs/node"})";
  expect(tree,
         {R"({"v": 1, "kids": []})",
          R"({"v": 1, "kids": [{"v": 2, "kids": [{"v": 3, "kids": []}]}, {"v": 4, "kids": []}]})"},
         {R"({"v": 1, "kids": [1]})"});
}

TEST(JsonSchema, TypesWithoutAValueArePassedOver) {
  expect(R"({"type": ["integer", "number"], "minimum": 1.5, "maximum": 1.7})", {"1.5", "1.62"}, {"1", "2"});
  expect(R"({"type": ["integer", "null"], "minimum": 1.5, "maximum": 1.7})", {"null"}, {"1", "2", "1.6"});
  expect(R"({"type": ["number", "integer"], "minimum": 1e17, "maximum": 100000000000000009})",
         {"100000000000000000", "100000000000000009"}, {"100000000000000000.5"});
  expect(R"({"type": ["integer", "string"], "multipleOf": 7, "minimum": 1, "maximum": 6})", {"\"\""}, {"1"});
  expect(R"({"type": ["array", "null"], "prefixItems": [{}], "items": false, "minItems": 2})", {"null"}, {"[1]"});
  const Status none = refusal_of(R"({"type": ["integer", "number"], "minimum": 2, "maximum": 1})");
  EXPECT_EQ(none.code(), Code::kInvalidArgument);
  EXPECT_NE(none.message().find("no integer is within its bounds"), std::string::npos) << none.message();
  EXPECT_EQ(refusal_of(R"({"type": ["array", "null"], "minItems": -1})").code(), Code::kInvalidArgument);
  EXPECT_EQ(refusal_of(R"({"type": ["integer", "null"], "minimum": 1e19})").code(), Code::kUnsupported);
}

TEST(JsonSchema, NumbersAreEqualAndWholeByTheirValue) {
  expect(R"({"type": "integer", "const": 1e20})", {"1e+20"}, {"1"});
  EXPECT_EQ(refusal_of(R"({"type": "integer", "const": 1.5})").code(), Code::kInvalidArgument);
  EXPECT_EQ(refusal_of(R"({"oneOf": [{"const": 1}, {"const": 1.0}]})").code(), Code::kUnsupported);
  EXPECT_EQ(refusal_of(R"({"oneOf": [{"enum": [1, [2]]}, {"enum": [[2.0], 3]}]})").code(), Code::kUnsupported);
  EXPECT_EQ(refusal_of(R"({"oneOf": [{"const": {"a": 1, "b": 2}}, {"const": {"b": 2, "a": 1}}]})").code(),
            Code::kUnsupported);
  expect(R"({"oneOf": [{"const": 1}, {"const": 1.5}]})", {"1", "1.5"}, {"2"});
}

TEST(JsonSchema, ReferencesMayBePercentEncoded) {
  expect(R"({"$ref": "#/$defs/a%20b", "$defs": {"a b": {"type": "null"}}})", {"null"}, {"1"});
  expect(R"({"$ref": "#/%24defs/a~1b%C3%A9", "$defs": {"a/b\u00e9": {"type": "null"}}})", {"null"}, {"1"});
  expect(R"({"$ref": "#/$defs/a%20b", "$defs": {"a b": {"type": "string"}, "a%20b": {"type": "null"}}})", {"null"},
         {"\"\""});
}

TEST(JsonSchema, RefusesByName) {
  const std::pair<const char*, const char*> kUnsupported[]{
      {R"({"not": {}})", "'not'"},
      {R"({"type": "object", "patternProperties": {}})", "'patternProperties'"},
      {R"({"type": "array", "uniqueItems": true})", "'uniqueItems'"},
      {R"({"type": "number", "multipleOf": 0.3})", "'multipleOf'"},
      {R"({"type": "integer", "multipleOf": 200})", "'multipleOf'"},
      {R"({"type": "integer", "minimum": 9223372036854775808})", "no integer from -9223372036854775807 to"},
      {R"({"type": "integer", "exclusiveMinimum": 9223372036854775807})", "larger ones are not supported"},
      {R"({"type": "integer", "maximum": -1e19})", "larger ones are not supported"},
      {R"({"type": "string", "format": "iri"})", "iri"},
      {R"x({"type": "string", "pattern": "(?=a)"})x", "pattern"},
      {R"({"type": "string", "pattern": "a", "minLength": 2})", "'pattern' together with"},
      {R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})", "'oneOf'"},
      {R"({"allOf": [{}, {}]})", "'allOf'"},
      {R"({"$ref": "http://x/y"})", "references"},
      {R"({"anyOf": [{}], "properties": {}})", "together with"},
      {R"({"properties": {"a": {"properties": {"b": {"if": {}}}}}})", "/properties/a/properties/b"},
      {R"({"required": ["x"], "additionalProperties": false})", "'x', which is not in 'properties'"},
      {R"({"required": ["x"], "additionalProperties": {"not": {}}})", "at /additionalProperties: 'not'"},
      {R"({"required": ["x"], "properties": {"x": false}})", "'x', whose schema is false"},
      {R"({"type": "string", "maxLength": 1000000})", "maxLength"}};
  for (const auto& [schema, word] : kUnsupported) {
    const Status why = refusal_of(schema);
    EXPECT_EQ(why.code(), Code::kUnsupported) << schema;
    EXPECT_NE(why.message().find(word), std::string::npos) << why.message();
  }
  for (const char* schema : {"5",
                             "[]",
                             "false",
                             R"({"type": "text"})",
                             R"({"type": 5})",
                             R"({"enum": 3})",
                             R"({"enum": []})",
                             R"({"type": "null", "enum": [1]})",
                             R"({"anyOf": []})",
                             R"({"$ref": "#/x"})",
                             R"({"$ref": "#/%"})",
                             R"({"$ref": 5})",
                             R"({"properties": []})",
                             R"({"properties": {}, "required": 5})",
                             R"({"type": "array", "minItems": -1})",
                             R"({"type": "array", "minItems": 3, "maxItems": 2})",
                             R"({"type": "integer", "minimum": 5, "maximum": 4})",
                             R"({"type": "integer", "exclusiveMinimum": 9007199254740992, "maximum": 9007199254740992})",
                             R"({"type": "integer", "minimum": "5"})",
                             R"({"type": "number", "minimum": 2, "exclusiveMaximum": 2})",
                             R"({"type": "integer", "multipleOf": 7, "minimum": 1, "maximum": 6})",
                             R"({"type": "integer", "multipleOf": 0})",
                             R"({"type": "string", "pattern": "("})",
                             R"({"properties": {"a": 7}})"})
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
