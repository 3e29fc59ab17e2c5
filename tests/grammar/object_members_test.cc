#include "orchestrator/grammar/object_members.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/grammar/grammar_texts.h"

namespace moestro::grammar {
namespace {

using nlohmann::json;
using testing::expect;
using testing::grammar_of;
using testing::random_text;
using testing::refusal_of;

TEST(ObjectMembers, APropertyThatMayNotBeThere) {
  expect(R"({"properties": {"a": false, "b": {"type": "null"}}})", {"{}", R"({"b": null})"}, {R"({"a": 1})"});
  expect(R"({"properties": {"a": false}})", {"{}"}, {R"({"a": 1})", R"({"b": 1})"});
  expect(R"({"properties": {"a": false}, "additionalProperties": true})", {"{}", R"({"b": 1, "aa": 2})"},
         {R"({"a": 1})", R"({"b": 1, "a": 1})", R"({"\u0061": 1})"});
}

TEST(ObjectMembers, RequiredNamesThatAreNotInProperties) {
  for (const char* others : {"", R"(, "additionalProperties": true)"})
    expect(R"({"properties": {"a": {"type": "null"}}, "required": ["z", "y", "z"])" + std::string(others) + "}",
           {R"({"z": 1, "y": {}})", R"({"a": null, "z": [1], "y": "x"})"},
           {"{}", R"({"z": 1})", R"({"y": 1, "z": 1})", R"({"z": 1, "y": 1, "z": 1})", R"({"z": 1, "a": null, "y": 1})"});
  expect(R"({"required": ["z"], "additionalProperties": {"type": "integer"}})", {R"({"z": 1})", R"({"z": 1, "b": 2})"},
         {"{}", R"({"b": 1})", R"({"z": "x"})", R"({"z": 1, "z": 2})", R"({"z": 1, "b": null})"});
  expect(R"({"required": ["z"]})", {R"({"z": null})"}, {"{}", R"({"z": 1, "b": 2})", "[]"});
}

/// Whether a value satisfies a schema of objects with properties, required and additionalProperties, and of types.
bool satisfies(const json& schema, const json& value) {
  if (schema.is_boolean()) return schema.get<bool>();
  if (schema.contains("type")) return schema["type"] == (value.is_number_integer() ? "integer" : value.type_name());
  for (const json& name : schema.value("required", json::array()))
    if (!value.contains(name.get<std::string>())) return false;
  const json properties = schema.value("properties", json::object());
  for (const auto& [name, member] : value.items())
    if (!satisfies(properties.contains(name) ? properties[name] : schema.value("additionalProperties", json(true)),
                   member))
      return false;
  return true;
}

/// What the grammar makes, against the keywords of objects; what it refuses, against what none can satisfy.
TEST(ObjectMembers, RandomObjectsSatisfyRandomSchemas) {
  std::mt19937 random(13);
  const auto one_of = [&](std::initializer_list<const char*> texts) {
    return json::parse(texts.begin()[random() % texts.size()]);
  };
  int made = 0;
  for (int round = 0; round < 100; ++round) {
    json schema{{"properties", json::object()}, {"required", json::array()}};
    bool can_be = true;
    for (const char* name : {"a", "b", "ab"})
      if (random() % 2 == 0)
        schema["properties"][name] = one_of({"false", "true", R"({"type": "null"})", R"({"type": "integer"})"});
    if (random() % 4 != 0) schema["additionalProperties"] = one_of({"false", "true", R"({"type": "integer"})"});
    for (const char* name : {"c", "a", "ab"}) {
      if (random() % 3 != 0) continue;
      schema["required"].push_back(name);
      const json& listed = schema["properties"];
      if ((listed.contains(name) ? listed[name] : schema.value("additionalProperties", json(true))) == false)
        can_be = false;
    }
    if (!can_be) {
      EXPECT_EQ(refusal_of(schema.dump()).code(), Code::kUnsupported) << schema;
      continue;
    }
    const ByteGrammar g = grammar_of(schema.dump());
    for (int i = 0; i < 5; ++i, ++made) {
      const std::string text = random_text(g, random, random() % 30);
      EXPECT_TRUE(satisfies(schema, json::parse(text))) << schema << " makes " << text;
    }
  }
  EXPECT_GT(made, 200);
}

}  // namespace
}  // namespace moestro::grammar
