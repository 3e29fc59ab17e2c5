// GBNF against a slow reference: random grammars as trees, printed as GBNF, and matched by looking for every place
// where a part can end.

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>

#include "orchestrator/grammar/gbnf.h"
#include "tests/grammar/grammar_texts.h"

namespace moestro::grammar {
namespace {

struct Tree {
  enum class Kind { kText, kClass, kRule, kGroup } kind = Kind::kText;
  std::string letters;  // of kText and kClass
  bool negated = false;
  size_t rule = 0;
  std::vector<std::vector<Tree>> group;
  int least = 1, most = 1;
};
using Rules = std::vector<std::vector<std::vector<Tree>>>;
constexpr const char* kLetters = "abc";

class RandomRules {
 public:
  explicit RandomRules(std::mt19937& random) : random_(random) {}
  Rules rules() {
    const size_t n = 1 + random_() % 4;
    Rules all;
    for (size_t i = 0; i < n; ++i) all.push_back(alternatives(i, n, 0, false));
    return all;
  }

 private:
  /// `has_read`: before that, only later rules are called, so that there is no left recursion.
  std::vector<std::vector<Tree>> alternatives(size_t rule, size_t rules, int depth, bool has_read) {
    std::vector<std::vector<Tree>> list(1 + random_() % 3);
    for (auto& sequence : list) {
      bool read = has_read;
      for (size_t parts = random_() % 4; parts > 0; --parts) {
        Tree t = tree(rule, rules, depth, read);
        read = read || (t.least > 0 && (t.kind == Tree::Kind::kText || t.kind == Tree::Kind::kClass));
        sequence.push_back(std::move(t));
      }
    }
    return list;
  }
  Tree tree(size_t rule, size_t rules, int depth, bool has_read) {
    Tree t;
    const size_t first = has_read ? 0 : rule + 1;
    switch (random_() % 6) {
      case 0: t.kind = Tree::Kind::kClass; break;
      case 1:
      case 2:
        if (first < rules) t.kind = Tree::Kind::kRule, t.rule = first + random_() % (rules - first);
        break;
      case 3:
        if (depth < 2) t.kind = Tree::Kind::kGroup, t.group = alternatives(rule, rules, depth + 1, has_read);
        break;
      default: break;
    }
    for (size_t n = 1 + random_() % 2; n > 0; --n) t.letters += kLetters[random_() % 3];
    t.negated = random_() % 2 == 0;
    if (random_() % 3 == 0) {
      t.least = static_cast<int>(random_() % 3);
      t.most = random_() % 2 == 0 ? -1 : t.least + static_cast<int>(random_() % 3);
    }
    return t;
  }
  std::mt19937& random_;
};

std::string printed(const std::vector<std::vector<Tree>>& list) {
  std::string out;
  for (size_t i = 0; i < list.size(); ++i) {
    if (i > 0) out += " | ";
    for (const Tree& t : list[i]) {
      switch (t.kind) {
        case Tree::Kind::kText: out += "\"" + t.letters + "\""; break;
        case Tree::Kind::kClass: out += (t.negated ? "[^" : "[") + t.letters + "]"; break;
        case Tree::Kind::kRule: out += t.rule == 0 ? "root" : "r" + std::to_string(t.rule); break;
        case Tree::Kind::kGroup: out += "(" + printed(t.group) + ")"; break;
      }
      if (t.most < 0) out += t.least == 0 ? "*" : t.least == 1 ? "+" : "{" + std::to_string(t.least) + ",}";
      else if (t.least == 0 && t.most == 1) out += "?";
      else if (t.least != 1 || t.most != 1) out += "{" + std::to_string(t.least) + "," + std::to_string(t.most) + "}";
      out += " ";
    }
  }
  return out;
}

class Matcher {
 public:
  Matcher(const Rules& rules, std::string text) : rules_(rules), text_(std::move(text)) {}
  bool matches() { return rule(0, 0).contains(text_.size()); }

 private:
  using Places = std::set<size_t>;
  const Places& rule(size_t r, size_t at) {
    const auto known = known_.find({r, at});
    if (known != known_.end()) return known->second;
    return known_[{r, at}] = alternatives(rules_[r], at);
  }
  Places alternatives(const std::vector<std::vector<Tree>>& list, size_t at) {
    Places ends;
    for (const auto& sequence : list) {
      Places now{at};
      for (const Tree& t : sequence) now = repeated(t, now);
      ends.merge(now);
    }
    return ends;
  }
  Places repeated(const Tree& t, Places now) {
    for (int i = 0; i < t.least; ++i) now = once(t, now);
    Places all = now;
    for (int i = t.least; t.most < 0 || i < t.most; ++i) {
      now = once(t, now);
      const size_t before = all.size();
      all.insert(now.begin(), now.end());
      if (all.size() == before) break;
    }
    return all;
  }
  Places once(const Tree& t, const Places& from) {
    Places ends;
    for (const size_t at : from) {
      if (t.kind == Tree::Kind::kText && text_.compare(at, t.letters.size(), t.letters) == 0)
        ends.insert(at + t.letters.size());
      if (t.kind == Tree::Kind::kClass && at < text_.size() &&
          (t.letters.find(text_[at]) == std::string::npos) == t.negated)
        ends.insert(at + 1);
      if (t.kind == Tree::Kind::kRule) ends.insert(rule(t.rule, at).begin(), rule(t.rule, at).end());
      if (t.kind == Tree::Kind::kGroup) ends.merge(alternatives(t.group, at));
    }
    return ends;
  }
  const Rules& rules_;
  const std::string text_;
  std::map<std::pair<size_t, size_t>, Places> known_;
};

/// Nothing: the grammar is too ambiguous to be followed on this text.
std::optional<bool> reads_if_followed(const ByteGrammar& g, const std::string& text) {
  GrammarStates states(g);
  StateId at = states.start();
  for (const char c : text) at = states.next(at, static_cast<uint8_t>(c));
  return states.failed() ? std::nullopt : std::optional(states.accepting(at));
}

/// Wherever a random text leads, something can follow, or the text may end.
bool goes_on(const ByteGrammar& g, std::mt19937& random) {
  GrammarStates states(g);
  StateId at = states.start();
  for (int length = 0; length < 100 && at != kDeadState; ++length) {
    std::vector<StateId> ways;
    for (int byte = 0; byte < 256; ++byte)
      if (const StateId to = states.next(at, static_cast<uint8_t>(byte)); to != kDeadState) ways.push_back(to);
    if (states.failed()) return true;
    if (ways.empty()) return states.accepting(at);
    at = ways[random() % ways.size()];
  }
  return true;
}

TEST(Gbnf, AgreesWithTheSlowReference) {
  constexpr uint32_t kSeed = 12;
  std::mt19937 random(kSeed);
  int in = 0, out = 0, ambiguous = 0;
  for (int i = 0; i < 400; ++i) {
    const Rules rules = RandomRules(random).rules();
    std::string gbnf;
    for (size_t r = 0; r < rules.size(); ++r)
      gbnf += (r == 0 ? "root" : "r" + std::to_string(r)) + " ::= " + printed(rules[r]) + "\n";
    SCOPED_TRACE("seed " + std::to_string(kSeed) + ":\n" + gbnf);
    const ByteGrammar g = testing::whole([&](ByteGrammar& into, NodeId from) {
      const auto end = add_gbnf(into, from, gbnf);
      EXPECT_TRUE(end.is_ok()) << (end.is_ok() ? "" : end.status().message());
      return end.is_ok() ? *end : from;
    });
    for (int j = 0; j < 60; ++j) {
      std::string text;
      for (size_t n = random() % 9; n > 0; --n) text += kLetters[random() % 3];
      const auto got = reads_if_followed(g, text);
      if (!got) {
        ++ambiguous;
        continue;
      }
      const bool expected = Matcher(rules, text).matches();
      (expected ? in : out) += 1;
      ASSERT_EQ(*got, expected) << "'" << text << "'";
    }
    for (int j = 0; j < 3; ++j) ASSERT_TRUE(goes_on(g, random));
  }
  EXPECT_GT(in, 1000);
  EXPECT_GT(out, 1000);
  EXPECT_LT(ambiguous, out / 10);
}

}  // namespace
}  // namespace moestro::grammar
