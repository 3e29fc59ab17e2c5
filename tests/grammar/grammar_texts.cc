#include "tests/grammar/grammar_texts.h"

#include <gtest/gtest.h>

#include <map>
#include <queue>

namespace moestro::grammar::testing {

namespace {
Result<ByteGrammar> compile(const std::string& text) {
  const auto schema = nlohmann::ordered_json::parse(text, nullptr, false);
  EXPECT_FALSE(schema.is_discarded()) << text;
  ByteGrammar g;
  const NodeId begin = g.add();
  MOESTRO_ASSIGN_OR_RETURN(const NodeId end, JsonSchemaCompiler(g, schema).compile(begin));
  g.end(end);
  g.set_start(begin);
  return g;
}

/// The shortest way to an end, by breadth first.
std::string shortest_end(GrammarStates& states, StateId from) {
  std::map<StateId, std::pair<StateId, char>> came;
  std::queue<StateId> open;
  came[from] = {kDeadState, 0};
  open.push(from);
  while (!open.empty()) {
    StateId at = open.front();
    open.pop();
    if (states.accepting(at)) {
      std::string text;
      for (; at != from; at = came[at].first) text.insert(text.begin(), came[at].second);
      return text;
    }
    for (int b = 0; b < 256; ++b) {
      const StateId to = states.next(at, static_cast<uint8_t>(b));
      if (to != kDeadState && came.try_emplace(to, at, static_cast<char>(b)).second) open.push(to);
    }
  }
  ADD_FAILURE() << "nothing ends it";
  return "";
}
}  // namespace

ByteGrammar grammar_of(const std::string& schema) {
  auto g = compile(schema);
  EXPECT_TRUE(g.is_ok()) << schema << ": " << (g.is_ok() ? "" : g.status().message());
  return g.is_ok() ? std::move(*g) : whole([](ByteGrammar& n, NodeId) { return n.add(); });
}

Status refusal_of(const std::string& schema) {
  const auto g = compile(schema);
  return g.is_ok() ? Status::ok() : g.status();
}

bool reads(const ByteGrammar& grammar, std::string_view text) {
  GrammarStates states(grammar);
  StateId at = states.start();
  for (const char c : text) at = states.next(at, static_cast<uint8_t>(c));
  EXPECT_FALSE(states.failed());
  return states.accepting(at);
}

std::string random_text(const ByteGrammar& grammar, std::mt19937& random, size_t long_enough) {
  GrammarStates states(grammar);
  StateId at = states.start();
  std::string text;
  while (text.size() < long_enough && !states.ends(at)) {
    if (states.accepting(at) && random() % 4 == 0) return text;
    std::vector<uint8_t> ways;
    for (int b = 0; b < 256; ++b)
      if (states.next(at, static_cast<uint8_t>(b)) != kDeadState) ways.push_back(static_cast<uint8_t>(b));
    if (ways.empty()) {
      ADD_FAILURE() << "nothing follows '" << text << "'";
      return text;
    }
    const uint8_t byte = ways[random() % ways.size()];
    at = states.next(at, byte);
    text += static_cast<char>(byte);
  }
  return text + shortest_end(states, at);
}

void expect(const std::string& schema, const std::vector<const char*>& good, const std::vector<const char*>& bad) {
  const ByteGrammar g = grammar_of(schema);
  for (const char* text : good) EXPECT_TRUE(reads(g, text)) << schema << " on " << text;
  for (const char* text : bad) EXPECT_FALSE(reads(g, text)) << schema << " on " << text;
  std::mt19937 random(1);
  for (int i = 0; i < 20; ++i) {
    const std::string text = random_text(g, random);
    EXPECT_TRUE(nlohmann::json::accept(text)) << schema << " makes " << text;
  }
}

std::shared_ptr<const GrammarVocabulary> small_vocabulary() {
  std::vector<std::string> bytes;
  for (int b = 0; b < 256; ++b) bytes.emplace_back(1, static_cast<char>(b));
  for (const char* word : {"{\"", "\":", "\", \"", "true", "tru", "nul", "null}", "12", "-1", ".5", "e+", "]]", "}}",
                           "{\"a\":", "abc", "\\u00", "\xC3\xA4", "a\"", "abc"})
    bytes.emplace_back(word);
  bytes.emplace_back();  // the end token is in no text
  const auto eos = static_cast<TokenId>(bytes.size() - 1);
  return std::make_shared<const GrammarVocabulary>(GrammarVocabulary{TokenTrie(std::move(bytes)), {eos}});
}

}  // namespace moestro::grammar::testing
