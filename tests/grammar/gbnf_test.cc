#include "orchestrator/grammar/gbnf.h"

#include <gmock/gmock.h>

#include "tests/grammar/grammar_texts.h"

namespace moestro::grammar {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using testing::random_text;
using testing::reads;

ByteGrammar gbnf_grammar(const std::string& gbnf) {
  return testing::whole([&](ByteGrammar& g, NodeId from) {
    const auto end = add_gbnf(g, from, gbnf);
    EXPECT_TRUE(end.is_ok()) << gbnf << ": " << (end.is_ok() ? "" : end.status().message());
    return end.is_ok() ? *end : from;
  });
}

void expect_language(const std::string& gbnf, const std::vector<std::string>& in, const std::vector<std::string>& out) {
  const ByteGrammar g = gbnf_grammar(gbnf);
  for (const std::string& text : in) EXPECT_TRUE(reads(g, text)) << gbnf << " on '" << text << "'";
  for (const std::string& text : out) EXPECT_FALSE(reads(g, text)) << gbnf << " on '" << text << "'";
}

TEST(Gbnf, LiteralsAndEscapes) {
  expect_language(R"(root ::= "a\n\t\r\\\"\x41\u00e9\U0001F600)" "\xC3\xA9\"",
                  {"a\n\t\r\\\"A\xC3\xA9\xF0\x9F\x98\x80\xC3\xA9"}, {"", "a", "a\n\t\r\\\"A\xE9"});
  expect_language(R"(root ::= "" "x" "")", {"x"}, {""});
  expect_language("root ::= \"a\n\" [^\n]", {"a\nb"}, {"a\n\n", "ab"});  // line breaks that are not escaped
  expect_language(R"(root ::= "\[\]\-")", {"[]-"}, {"\\["});
}

TEST(Gbnf, Classes) {
  expect_language(R"(root ::= [a-c_])", {"a", "b", "c", "_"}, {"d", "", "ab", "-"});
  expect_language(R"(root ::= [^a-c\n])", {"d", "\xC3\xA9", "\xF0\x9F\x98\x80", "^"}, {"a", "\n", "", "\xC3", "\xFF"});
  expect_language(R"(root ::= [a-])", {"a", "-"}, {"b"});
  expect_language(R"(root ::= [-a])", {"a", "-"}, {"b"});
  expect_language(R"(root ::= [\]\[\\\x30-\x32])", {"]", "[", "\\", "0", "2"}, {"3", "x"});
  expect_language("root ::= [\xE3\x81\x81-\xE3\x82\x9F]", {"\xE3\x81\x82"}, {"a", "\xE3\x82\xA2"});
  expect_language("root ::= .", {"a", "\n", "\xF0\x9F\x98\x80"}, {"", "ab", "\xED\xA0\x80"});
}

TEST(Gbnf, Repetitions) {
  expect_language(R"(root ::= "ab"*)", {"", "ab", "abab"}, {"a", "aba", "abb"});
  expect_language(R"(root ::= "ab" +)", {"ab", "abab"}, {"", "abb"});
  expect_language(R"(root ::= "a"? [bc]?)", {"", "a", "b", "ac"}, {"aa", "ba"});
  expect_language(R"(root ::= "a"{2})", {"aa"}, {"a", "aaa"});
  expect_language(R"(root ::= "a"{2,})", {"aa", "aaaaaa"}, {"a"});
  expect_language(R"(root ::= ("a" | "b"){ 1 , 3 } "c"{0})", {"a", "bab"}, {"", "aaaa", "ac"});
  expect_language(R"(root ::= ("a"+ "b"){0,2})", {"", "aab", "abaab"}, {"a", "ababab"});
  expect_language(R"(root ::= ("a"*)* "b")", {"b", "aab"}, {"", "a"});
}

TEST(Gbnf, LinesAndComments) {
  expect_language(
      "# a list\r\n\r\nroot ::= ( # within\n  \"a\"\n  | # or\n\"b\" )\r\n   item # behind\nitem::=\"c\" |\n  \"d\"",
      {"ac", "bd"}, {"a", "abc"});
  expect_language("root ::=\n  one\n  | two\none ::= \"1\" two_2 ::= \"2\"\ntwo ::= two_2", {"1", "2"}, {"12"});
  expect_language("root ::= | \" \" | \"\\n\" [ \\t]{0,20}", {"", " ", "\n", "\n\t "}, {"  "});
  expect_language("root ::= ()", {""}, {"a"});
}

const char* const kJson = R"(
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws (string ":" ws value ("," ws string ":" ws value)*)? "}" ws
array  ::= "[" ws (value ("," ws value)*)? "]" ws
string ::= "\"" ([^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}))* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [0-9]?)? ws
ws ::= | " " | "\n" [ \t]{0,20}
)";

TEST(Gbnf, Json) {
  expect_language(kJson, {"{}", R"({"a": [1, -2.5e3, {"b": null}], "\u00e9\n": "x"} )"},
                  {"", "[]", R"({"a"})", R"({"a": 01})", R"({"a": 1,})", "{\"a\": \"\n\"}"});
  const ByteGrammar g = gbnf_grammar(kJson);
  std::mt19937 random(7);
  for (int i = 0; i < 100; ++i) {
    const std::string text = random_text(g, random);
    EXPECT_TRUE(nlohmann::json::accept(text)) << text;
  }
}

TEST(Gbnf, ArithmeticListsAndChess) {
  expect_language(R"g(root ::= (expr "=" term "\n")+
                     expr ::= term ([-+*/] term)*
                     term ::= ident | num | "(" expr ")"
                     ident ::= [a-z] [a-z0-9_]*
                     num ::= [0-9]+)g",
                  {"1+2=3\n", "a*(b-1)/x_1=y\n1=1\n"}, {"", "1+=2\n", "(1=1\n", "1=1"});
  expect_language("root ::= item+\nitem ::= \"- \" [^\\r\\n\\x0b\\x0c\\x85\\u2028\\u2029]+ \"\\n\"",
                  {"- a\n", "- a\n- b c\n"}, {"", "- \n", "- a"});
  expect_language(R"(root ::= "1. " move " " move "\n" ([1-9] [0-9]? ". " move " " move "\n")*
                     move ::= (pawn | nonpawn | castle) [+#]?
                     nonpawn ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
                     pawn ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?
                     castle ::= "O-O" "-O"?)",
                  {"1. e4 e5\n", "1. e4 e5\n2. Nf3 Nc6\n3. O-O exd8=Q#\n"}, {"1. e9 e5\n", "1. e4\n", "2. e4 e5\n"});
}

TEST(Gbnf, RecursionAtTheEndOfARuleHasNoBound) {
  const std::string long_text(1000, 'a');
  for (const char* gbnf : {R"(root ::= "a" root | "a")", R"(root ::= "a" ("b" | rest)  rest ::= root?)",
                           R"(root ::= "a" (root)?)", R"(root ::= [ab] more  more ::= | "a" more | "b" root)"})
    EXPECT_TRUE(reads(gbnf_grammar(gbnf), long_text)) << gbnf;
}

TEST(Gbnf, OtherRecursionNestsAsDeepAsItCanStillBeClosed) {
  const ByteGrammar g = gbnf_grammar(R"g(root ::= "(" inner ")"  inner ::= "[" root "]" | "x")g");
  const auto nested = [](int pairs) {
    std::string open, close;
    for (int i = 0; i < pairs; ++i) open += i % 2 == 0 ? "(" : "[", close.insert(0, i % 2 == 0 ? ")" : "]");
    return open + "x" + close;
  };
  EXPECT_TRUE(reads(g, nested(61)));
  EXPECT_FALSE(reads(g, nested(1001)));
  GrammarStates states(g);
  StateId at = states.start();
  for (const char c : nested(200).substr(0, 200)) {  // "([([..." as far as it may be
    const StateId next = states.next(at, static_cast<uint8_t>(c));
    if (next == kDeadState) break;
    at = next;
  }
  EXPECT_NE(states.next(at, 'x'), kDeadState) << "what was begun can be ended";
}

TEST(Gbnf, WhatNeverEndsIsNotOffered) {
  expect_language(R"(root ::= "a" | "b" never  never ::= "c" never)", {"a"}, {"b", "bc", "bccc"});
  const ByteGrammar g = gbnf_grammar(R"(root ::= "a" | "b" never  never ::= "c" never)");
  GrammarStates states(g);
  EXPECT_EQ(states.next(states.start(), 'b'), kDeadState);
  EXPECT_EQ(GrammarStates(gbnf_grammar(R"(root ::= "a" root)")).start(), kDeadState);
  EXPECT_EQ(GrammarStates(gbnf_grammar(R"g(root ::= "(" root ")")g")).start(), kDeadState);
}

std::string refusal(const std::string& gbnf) {
  ByteGrammar g;
  const auto end = add_gbnf(g, g.add(), gbnf);
  return end.is_ok() ? "" : end.status().message();
}

TEST(Gbnf, RefusalsNameThePlace) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", "no rule 'root'"},
      {"# nothing", "no rule 'root'"},
      {"start ::= \"a\"", "no rule 'root'"},
      {"root ::= \"a\n", "line 1, column 10: this '\"' is not closed"},
      {"root ::= \"\xC3\xA9\" [a\n", "line 1, column 14: this '[' is not closed"},
      {"root ::= (\"a\" | \n\n", "line 1, column 10: this '(' is not closed"},
      {"root ::=\n \"a\" )", "line 2, column 6: this ')' closes nothing"},
      {"root ::= item\n  other", "the rule 'item' is not defined"},
      {"root ::= \"a\"\n\nroot ::= \"b\"", "line 3, column 1: the rule 'root' is defined twice"},
      {"root = \"a\"", "line 1, column 6: after the name 'root' of a rule must come '::='"},
      {"::= \"a\"", "line 1, column 1: ':' begins no rule"},
      {"root ::= *", "line 1, column 10: '*' repeats nothing"},
      {"root ::= \"a\"*+", "line 1, column 14: '+' repeats a repetition"},
      {"root ::= \"a\"{,3}", "line 1, column 13: a repetition is"},
      {"root ::= \"a\"{3,2}", "line 1, column 13: this repetition ends before it begins"},
      {"root ::= \"a\"{10001}", "more than 10000 times"},
      {"root ::= \"a\"{99999999999999999999}", "more than 10000 times"},
      {"root ::= [z-a]", "line 1, column 11: this range ends before it begins"},
      {"root ::= []", "this class is empty"},
      {"root ::= [^\\x00-\\U0010FFFF]", "no character is outside this class"},
      {"root ::= \"\\q\"", "line 1, column 11: this is no escape"},
      {"root ::= \"\\x4\"", "this escape takes 2 hexadecimal digits"},
      {"root ::= \"\\uD800\"", "no character of Unicode"},
      {"root ::= \"\\UFFFFFFFF\"", "no character of Unicode"},
      {"root ::= \"\xFF\"", "not UTF-8"},
      {"root ::= <think>", "tokens (<...>) are not supported"},
      {"root ::= !</think>*", "tokens (<...>) are not supported"},
      {"root ::= $", "'$' cannot be here"},
      {"root ::= root \"a\" | \"a\"", "the rule 'root' begins with itself (root -> root)"},
      {"root ::= \"x\" a\na ::= b? c \"1\"\nb ::= \"2\"\nc ::= (\"\" | [a]* a)",
       "the rule 'a' begins with itself (a -> c -> a)"},
      {"root ::= " + std::string(300, '(') + std::string(300, ')'), "nested deeper than 200"},
      {"root ::= ((((\"a\"{1000}){1000}){1000}){1000}){1000}", "too large"},
      {"root ::= (((\"\"{10000}){10000}){10000}){10000}", "too large"},
  };
  for (const auto& [gbnf, why] : cases) EXPECT_THAT(refusal(gbnf), HasSubstr(why)) << gbnf;
  EXPECT_THAT(refusal("root ::= item\n  other"), StartsWith("line 1, column 10: "));
}

TEST(Gbnf, ManyRulesAreReadInLinearTime) {
  std::string gbnf = "root ::= r0\n";  // each may be empty, and is found to be so only from the last one on
  for (int i = 0; i < 20'000; ++i) gbnf += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + "?\n";
  EXPECT_EQ(refusal(gbnf + "r20000 ::= \"x\"?"), "");
}

}  // namespace
}  // namespace moestro::grammar
