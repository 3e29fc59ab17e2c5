#include "orchestrator/forms/python_literal.h"

#include <gtest/gtest.h>

namespace moestro::orchestrator {
namespace {

TEST(PythonLiteral, BecomesJson) {
  for (const auto& [python, wanted] : {std::pair<std::string, std::string>{" 'it\\'s' ", "\"it's\""},
                                     {R"("a\n\x41\u00e9\U0001F600\q")", "\"a\\nA\xc3\xa9\xf0\x9f\x98\x80\\\\q\""},
                                     {R"("\ud83d\ude00")", "\"\xf0\x9f\x98\x80\""},
                                     {"\"a\\\nb\"", "\"ab\""},
                                     {"True", "true"},
                                     {"none", ""},
                                     {"None", "null"},
                                     {"null", "null"},
                                     {"-1.5e3", "-1.5e3"},
                                     {"[1, 'a', (True, ), [], {}]", R"([1, "a", [true], [], {}])"},
                                     {"{'a': {'b': None}, \"c\": [1,],}", R"({"a": {"b": null}, "c": [1]})"}})
    EXPECT_EQ(python_to_json(python).value_or(""), wanted) << python;
}

TEST(PythonLiteral, AnythingElseIsNone) {
  for (const std::string& text : {std::string(), std::string("word"), std::string("1 2"), std::string("[1 2]"),
                                  std::string("{1: 2}"), std::string("'open"), std::string("'\\x4'"),
                                  std::string(R"('\ud83d')"), std::string("0x10"), std::string("[1"),
                                  std::string("{'a' 1}"), std::string("f(1)"), std::string("'\\"),
                                  std::string(100, '[') + std::string(100, ']')})
    EXPECT_FALSE(python_to_json(text)) << text;
  EXPECT_TRUE(python_to_json(std::string(60, '[') + std::string(60, ']')));
}

TEST(PythonLiteral, ABegunStringIsTheBeginningOfJson) {
  for (const auto& [python, wanted] : {std::pair<std::string, std::string>{"'it\\'s \"", "\"it's \\\""},
                                     {" \"a\\n\\u00e", "\"a\\n"},
                                     {"'a\\", "\"a"},
                                     {"'", "\""},
                                     {"Tru", ""},
                                     {"['a", ""},
                                     {"", ""}})
    EXPECT_EQ(begun_python_string(python), wanted) << python;
}

TEST(PythonLiteral, AValueEndsOutsideOfStringsAndBrackets) {
  const auto end_of = [](const std::string& text) {
    PythonValueEnd end;
    for (size_t i = 0; i < text.size(); ++i)
      if (end.take(text[i])) return i;
    return std::string::npos;
  };
  EXPECT_EQ(end_of("1, b"), 1u);
  EXPECT_EQ(end_of("'a,\\')'), x"), 7u);
  EXPECT_EQ(end_of("[1, (2, 3)])"), 11u);
  EXPECT_EQ(end_of("{'a': ','}"), std::string::npos);
}

}  // namespace
}  // namespace moestro::orchestrator
