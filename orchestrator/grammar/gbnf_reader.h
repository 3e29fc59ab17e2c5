#pragma once
// The text of a GBNF grammar (llama.cpp's language) as rules.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "orchestrator/grammar/character_set.h"

namespace moestro::grammar {

struct GbnfPart;
using GbnfSequence = std::vector<GbnfPart>;
using GbnfAlternatives = std::vector<GbnfSequence>;

/// One element of a sequence and how often it comes.
struct GbnfPart {
  enum class Kind : uint8_t { kText, kCharacter, kRule, kGroup };
  Kind kind = Kind::kText;
  std::u32string text = {};      ///< of kText
  CharacterSet characters = {};  ///< of kCharacter: one of these; sorted and disjoint
  size_t rule = 0;               ///< of kRule: its index
  GbnfAlternatives group = {};
  int64_t least = 1, most = 1;   ///< most -1: no bound
};

struct GbnfRule {
  std::string name;
  GbnfAlternatives alternatives;
};

struct Gbnf {
  std::vector<GbnfRule> rules;
  size_t root = 0;
};

/// Every rule that is named is defined, and 'root' is. Line breaks are white space: a rule ends where the next `NAME
/// ::=` begins. kInvalidArgument and kUnsupported give line and column, from 1; columns count code points.
Result<Gbnf> read_gbnf(std::string_view text);

}  // namespace moestro::grammar
