#include "services/cli/common/json_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace moestro::cli {
namespace {

TEST(JsonText, WhatIsNotJsonIsAStatus) {
  for (const char* text : {"", "{", "nul", "{\"a\":}", "\xff\xfe", "{} x"})
    EXPECT_FALSE(parse_json(text).is_ok()) << text;
  EXPECT_TRUE(parse_json(" {\"a\": [1, 2]} ").is_ok());
}

TEST(JsonText, DeepNestingIsRefusedAndBracketsInTextsDoNotCount) {
  EXPECT_FALSE(parse_json(std::string(1'000'000, '[')).is_ok());
  EXPECT_FALSE(parse_json(std::string(201, '[') + std::string(201, ']')).is_ok());
  EXPECT_TRUE(parse_json(std::string(200, '[') + std::string(200, ']')).is_ok());
  EXPECT_TRUE(parse_json("\"" + std::string(500, '[') + "\\\"" + std::string(500, '[') + "\"").is_ok());
}

TEST(JsonText, TextThatIsNotUtf8) {
  EXPECT_EQ(not_utf8("café"), "");
  EXPECT_EQ(not_utf8("caf\xe9"), "not UTF-8 (byte 3 cannot be there); convert it first, with iconv for one");
  EXPECT_TRUE(check_utf8("the line", "é").is_ok());
  EXPECT_EQ(check_utf8("the line", "\xff").message(), "the line is " + not_utf8("\xff"));
  EXPECT_EQ(json_text(nlohmann::json{{"path", "a\xff"}}), "{\"path\":\"a\uFFFD\"}");
  EXPECT_EQ(json_text(nlohmann::ordered_json{{"b", "\xff"}, {"a", 1}}, 0), "{\n\"b\": \"\uFFFD\",\n\"a\": 1\n}");
}

TEST(JsonText, FieldsOfTheWrongKindGiveTheDefault) {
  const nlohmann::json object{{"text", "a"}, {"count", 3}, {"minus", -1}};
  EXPECT_EQ(text_or(object, "text"), "a");
  EXPECT_EQ(text_or(object, "count", "x"), "x");
  EXPECT_EQ(text_or(nlohmann::json(5), "text", "x"), "x");
  EXPECT_EQ(count_or(object, "count"), 3u);
  EXPECT_EQ(count_or(object, "minus", 7), 7u);
  EXPECT_EQ(count_or(object, "nowhere", 7), 7u);
}

TEST(JsonText, ErrorMessages) {
  EXPECT_EQ(error_message(R"({"error": {"message": "too long", "type": "x"}})"), "too long");
  EXPECT_EQ(error_message(R"({"error": "plain"})"), "plain");
  EXPECT_EQ(error_message("<html>"), "<html>");
  EXPECT_EQ(error_message(R"({"error": 5})"), R"({"error": 5})");
}

}  // namespace
}  // namespace moestro::cli
