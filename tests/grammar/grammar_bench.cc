// What a mask costs: grammar_bench TOKENIZER_DIR [SEED]. Prints one line a schema, times in microseconds: the first
// time that a state is met, and after.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>

#include "orchestrator/grammar/compiled_grammar.h"
#include "orchestrator/grammar/json_schema.h"
#include "orchestrator/tokenizer/tokenizer.h"
#include "tests/tokenizer/load_tokenizer.h"

namespace {

using namespace moestro;
using namespace moestro::grammar;
using Clock = std::chrono::steady_clock;

double us_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

double quantile(std::vector<double> v, double q) {
  if (v.empty()) return 0;
  std::sort(v.begin(), v.end());
  return v[std::min(v.size() - 1, static_cast<size_t>(q * static_cast<double>(v.size())))];
}

/// Random walks of allowed tokens, each state's mask asked for twice.
void measure(const char* name, const ByteGrammar& g, const std::shared_ptr<const GrammarVocabulary>& vocabulary,
             uint64_t seed) {
  const auto compiled = std::make_shared<CompiledGrammar>(g, vocabulary);
  std::mt19937_64 random(seed);
  std::vector<double> first, again;
  for (int walk = 0; walk < 20; ++walk) {
    GrammarConstraint c(compiled);
    for (int step = 0; step < 60 && !c.complete(); ++step) {
      const size_t before = compiled->states();
      const auto begin = Clock::now();
      const auto mask = c.allowed();
      const double took = us_since(begin);
      if (!mask.is_ok()) break;
      const auto second = Clock::now();
      (void)c.allowed().is_ok();
      again.push_back(us_since(second));
      (took > 10 * again.back() + 5 || compiled->states() != before ? first : again).push_back(took);
      std::vector<TokenId> ways;
      for (size_t id = 0; id < vocabulary->tokens.vocab(); ++id)
        if ((**mask)[id / 32] >> (id % 32) & 1 && !vocabulary->tokens.bytes(static_cast<TokenId>(id)).empty())
          ways.push_back(static_cast<TokenId>(id));
      if (ways.empty() || !c.accept(ways[random() % ways.size()])) break;
    }
  }
  std::printf("%-12s nodes %6zu  states %6zu  first: n %4zu p50 %8.1f max %8.1f  again: n %4zu p50 %6.2f p99 %6.2f\n",
              name, g.nodes().size(), compiled->states(), first.size(), quantile(first, 0.5), quantile(first, 1),
              again.size(), quantile(again, 0.5), quantile(again, 0.99));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "grammar_bench TOKENIZER_DIR [SEED]\n"), 2;
  const auto tokenizer = test::load_tokenizer(argv[1]);
  if (!tokenizer.is_ok()) return std::fprintf(stderr, "%s\n", tokenizer.status().message().c_str()), 1;
  const auto begin = Clock::now();
  std::vector<std::string> bytes(static_cast<size_t>(tokenizer->vocab_size()) + 1);
  for (TokenId id = 0; id < tokenizer->vocab_size(); ++id)
    if (!tokenizer->is_special(id)) bytes[static_cast<size_t>(id)] = tokenizer->token_bytes(id);
  const auto end = static_cast<TokenId>(tokenizer->vocab_size());
  const auto vocabulary =
      std::make_shared<const GrammarVocabulary>(GrammarVocabulary{TokenTrie(std::move(bytes)), {end}});
  std::printf("vocabulary   tokens %d  trie %zu  made in %.1f ms\n", end, vocabulary->tokens.entries().size(),
              us_since(begin) / 1000);
  const std::pair<const char*, const char*> schemas[]{
      {"any object", R"({"type": "object", "additionalProperties": true})"},
      {"person",
       R"({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 120}, "email": {"type": "string", "format": "email"},
        "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "maxItems": 5}}, "required": ["name", "age"]})"},
      {"tree",
       R"({"$defs": {"n": {"type": "object", "properties": {"value": {"type": "number"}, "children": {"type": "array", "items": {"$ref": "#/$defs/n"}}},
        "required": ["value", "children"]}}, "$ref": "#/$defs/n"})"},
      {"long string", R"({"type": "string", "maxLength": 2000})"}};
  for (const auto& [name, text] : schemas) {
    const auto schema = nlohmann::ordered_json::parse(text);
    ByteGrammar g;
    const NodeId from = g.add();
    const auto to = JsonSchemaCompiler(g, schema).compile(from);
    if (!to.is_ok()) return std::fprintf(stderr, "%s: %s\n", name, to.status().message().c_str()), 1;
    g.end(*to);
    g.set_start(from);
    measure(name, g, vocabulary, argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1);
  }
  return 0;
}
