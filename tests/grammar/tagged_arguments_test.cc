#include "orchestrator/grammar/tagged_arguments.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "orchestrator/grammar/tagged_value.h"
#include "tests/grammar/grammar_texts.h"

namespace moestro::grammar {
namespace {

using ::testing::HasSubstr;
using testing::random_text;
using testing::reads;

ByteGrammar tagged(const std::string& schema, const ArgumentTags& tags = {}) {
  return testing::whole([&](ByteGrammar& g, NodeId from) {
    const auto end = add_tagged_arguments(g, from, SchemaJson::parse(schema), tags, nullptr);
    EXPECT_TRUE(end.is_ok()) << end.status().message();
    return end.is_ok() ? *end : from;
  });
}

std::string tagged_refusal(const std::string& schema, std::vector<std::string>* passed = nullptr) {
  ByteGrammar g;
  const auto end = add_tagged_arguments(g, g.add(), SchemaJson::parse(schema), {}, passed);
  return end.is_ok() ? "" : end.status().message();
}

std::string argument(const std::string& key, const std::string& value) {
  return "<arg_key>" + key + "</arg_key><arg_value>" + value + "</arg_value>";
}

TEST(TaggedArguments, ReadWhatTheSchemaSays) {
  const ByteGrammar g = tagged(R"({"type": "object", "required": ["s"], "additionalProperties": false, "properties": {
    "n": {"type": "integer", "minimum": 3}, "s": {"type": "string"}, "e": {"enum": ["a b", "c"]},
    "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "l": {"type": "array", "items": {"$ref": "#/$defs/t"}}},
    "$defs": {"t": {"type": "string", "maxLength": 2}}})");
  for (const std::string& text :
       {argument("s", "x"), argument("s", ""), argument("s", "\"q\"\n\t\xc3\xa9 </arg_valu <</arg_val"),
        argument("n", "31") + "\n" + argument("s", "12") + "\n", argument("s", "x") + argument("e", "a b"),
        "<arg_key>s</arg_key>\n<arg_value>x</arg_value>\n" + argument("maybe", "null"),
        argument("s", "x") + argument("l", R"(["ab", "</"])")})
    EXPECT_TRUE(reads(g, text)) << text;
  for (const std::string& text :
       {std::string(), argument("n", "31"), argument("n", "2") + argument("s", "x"), argument("s", "x") + " ",
        argument("s", "x") + argument("e", "a"), argument("s", "x") + argument("l", R"(["abc"])"),
        argument("s", "x") + argument("n", "3"), argument("s", "x</arg_value>"),
        argument("s", "x") + argument("z", "")})
    EXPECT_FALSE(reads(g, text)) << text;
  EXPECT_TRUE(reads(tagged("{}"), ""));
}

TEST(TaggedArguments, ThoseThatMayNotBeThereOrAreOnlyRequired) {
  const ByteGrammar g = tagged(R"({"properties": {"a": false, "b": {"type": "integer"}}, "required": ["z"]})");
  EXPECT_TRUE(reads(g, argument("b", "1") + argument("z", "x")));
  EXPECT_TRUE(reads(g, argument("z", "")));
  EXPECT_FALSE(reads(g, argument("b", "1")));
  EXPECT_FALSE(reads(g, argument("a", "1") + argument("z", "x")));
  EXPECT_THAT(tagged_refusal(R"({"properties": {"a": false}, "required": ["a"]})"), HasSubstr("whose schema is false"));
  EXPECT_THAT(tagged_refusal(R"({"required": ["a"], "additionalProperties": false})"),
              HasSubstr("'additionalProperties' is false"));
}

/// A value that follows its key without a tag of its own begins there, unless it stands on lines of its own.
TEST(TaggedArguments, ANewLineBehindAKeyIsNoneOfTheValue) {
  const std::string schema = R"({"properties": {"e": {"enum": ["a b", "c"]}}, "required": ["e"]})";
  ArgumentTags tags{"<parameter=", ">", "", "</parameter>"};
  const ByteGrammar direct = tagged(schema, tags);
  EXPECT_TRUE(reads(direct, "<parameter=e>c</parameter>\n"));
  EXPECT_FALSE(reads(direct, "<parameter=e>\nc</parameter>"));
  tags.lines = true;
  EXPECT_TRUE(reads(tagged(schema, tags), "<parameter=e>\nc\n</parameter>"));
}

/// Random texts of the grammar, read back as the tags and the schema say.
TEST(TaggedArguments, EveryTextCanBeReadBack) {
  const std::string schema =
      R"({"required": ["s", "n"], "properties": {"s": {"type": "string"}, "n": {"type": "integer"}}})";
  const ByteGrammar g = tagged(schema);
  std::mt19937 random(1);
  for (int i = 0; i < 50; ++i) {
    const std::string text = random_text(g, random);
    const size_t begin = text.find("<arg_value>") + 11, end = text.find("</arg_value>");
    const std::string value = text.substr(begin, end - begin);
    EXPECT_EQ(SchemaJson::parse(TaggedValue{true, {}, false}.to_json(value)), value);
    const size_t number = text.find("<arg_value>", end) + 11;
    EXPECT_TRUE(SchemaJson::parse(text.substr(number, text.find("</arg_value>", number) - number)).is_number_integer())
        << text;
  }
}

TEST(TaggedArguments, WhatCannotBePromisedIsRefusedByName) {
  const auto property = [](const std::string& schema) { return R"({"properties": {"a": )" + schema + "}}"; };
  EXPECT_THAT(tagged_refusal(property(R"({"type": "string", "pattern": "a+"})")), HasSubstr("at /properties/a: a string"));
  EXPECT_THAT(tagged_refusal(property(R"({"type": "string", "maxLength": 3})")), HasSubstr("/properties/a"));
  EXPECT_THAT(tagged_refusal(property(R"({"type": ["string", "integer"], "minimum": 3})")), HasSubstr("/properties/a"));
  EXPECT_THAT(tagged_refusal(property(R"({"type": "string", "contentEncoding": "x"})")), HasSubstr("'contentEncoding'"));
  EXPECT_THAT(tagged_refusal(property(R"({"$ref": "#/none"})")), HasSubstr("a reference"));
  EXPECT_THAT(tagged_refusal(property(R"({"enum": ["x</arg_value>"]})")), HasSubstr("ends its own tag"));
  EXPECT_THAT(tagged_refusal(property(R"({"type": "integer", "not": {}})")), HasSubstr("'not'"));
  EXPECT_THAT(tagged_refusal(R"({"properties": {"a<b": {}}})"), HasSubstr("'<'"));
  EXPECT_THAT(tagged_refusal(R"({"additionalProperties": true})"), HasSubstr("'additionalProperties'"));
  EXPECT_THAT(tagged_refusal(R"({"anyOf": [{}]})"), HasSubstr("'anyOf'"));
  EXPECT_THAT(tagged_refusal(R"({"minProperties": 1})"), HasSubstr("'minProperties'"));
  EXPECT_THAT(tagged_refusal(R"({"required": "a"})"), HasSubstr("a list of names"));
  EXPECT_THAT(tagged_refusal(R"({"type": "array"})"), HasSubstr("an object"));
  EXPECT_THAT(tagged_refusal(R"({"properties": 5})"), HasSubstr("'properties'"));
  EXPECT_THAT(tagged_refusal("5"), HasSubstr("an object"));
  std::vector<std::string> passed;
  EXPECT_EQ(tagged_refusal(property(R"({"type": "string", "pattern": "a+"})"), &passed), "");
  EXPECT_EQ(passed.size(), 1u);
}

TEST(TaggedValue, IsJsonWhereTheSchemaAllowsIt) {
  const auto value = [](const std::string& schema) {
    const SchemaJson parsed = SchemaJson::parse(schema);
    return tagged_value(parsed, parsed);
  };
  EXPECT_EQ(value(R"({"type": "string"})").to_json("5"), "\"5\"");
  EXPECT_EQ(value(R"({"type": "integer"})").to_json(" 5\n"), "5");
  EXPECT_EQ(value(R"({"type": ["string", "number"]})").to_json("5"), "5");
  EXPECT_EQ(value(R"({"type": ["string", "number"]})").to_json("[5]"), "\"[5]\"");
  EXPECT_EQ(value("{}").to_json("[5]"), "[5]");
  EXPECT_EQ(value("{}").to_json("\"x\""), "\"\\\"x\\\"\"") << "a string stands as it is";
  EXPECT_EQ(value(R"({"$ref": "#"})").to_json("true"), "true") << "a reference to itself says nothing";
  EXPECT_FALSE(value(R"({"enum": [1, 2]})").text);
  SchemaJson wide;  // would be 30^16 schemas if each were followed
  for (int i = 0; i < 30; ++i) wide["anyOf"].push_back({{"$ref", "#"}});
  EXPECT_EQ(tagged_value(wide, wide).to_json("5"), "5");
}

}  // namespace
}  // namespace moestro::grammar
