#pragma once
// The "pre_tokenizer" of tokenizer.json: cuts text into the pieces within which BPE merges.

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/status.h"
#include "orchestrator/tokenizer/json_fields.h"
#include "orchestrator/tokenizer/regex.h"

namespace moestro::tok {

/// Text and how it is cut so far: ranges in order; text outside of them is dropped.
struct Pieces {
  std::string text;
  std::vector<Match> ranges;
  bool at_start;  ///< ranges[0] begins where the whole input begins
};

class PreTokenizer {
 public:
  /// `part` may be null: one piece.
  static Result<PreTokenizer> parse(const Json* part);

  Status apply(Pieces& pieces) const;

 private:
  enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
  struct ByteLevel {
    bool add_prefix_space, use_regex;
  };
  enum class Scheme { kFirst, kNever, kAlways };
  struct Metaspace {
    std::string replacement;
    Scheme scheme;
    bool split;
  };
  struct FixedLength {
    size_t characters;
  };
  struct UnicodeScripts {};
  /// Cuts at matches of a regex, a string, or a class of characters, or at what `find` finds.
  struct Split {
    std::vector<Regex> regex;  // none or one
    std::string literal;
    bool (*in_class)(char32_t) = nullptr;
    void (*find)(std::string_view text, std::vector<Match>& matches) = nullptr;
    Behavior behavior = Behavior::kIsolated;
    bool invert = false;
  };
  using Step = std::variant<ByteLevel, Metaspace, Split, FixedLength, UnicodeScripts>;

  Status add(const Json& part, int depth);
  static Result<Step> parse_step(const Json& part, const std::string& kind);
  Status add_step(Step step);
  static Split at_class(bool (*in_class)(char32_t), Behavior behavior);
  static Result<Step> parse_split(const Json& part);
  static Result<Step> parse_metaspace(const Json& part);
  static Result<Behavior> parse_behavior(const Json& part, Behavior fallback);

  static Status run(const Split& split, Pieces& pieces);
  static Status run(const Metaspace& metaspace, Pieces& pieces);
  static Status run(const FixedLength& fixed, Pieces& pieces);
  static Status run(const UnicodeScripts& scripts, Pieces& pieces);
  Status run(const ByteLevel& byte_level, Pieces& pieces) const;
  static Status find(const Split& split, std::string_view text, std::vector<Match>& matches);

  std::vector<Step> steps_;
  Split words_;  // GPT-2's regex, for ByteLevel with use_regex
};

}  // namespace moestro::tok
