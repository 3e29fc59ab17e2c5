#pragma once
// The "normalizer" of tokenizer.json: text to text, before anything is split.

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/status.h"
#include "orchestrator/tokenizer/charsmap.h"
#include "orchestrator/tokenizer/json_fields.h"
#include "orchestrator/tokenizer/regex.h"

namespace moestro::tok {

/// Replaces each match of a string or a regex; also a stage of decoders.
struct Replacer {
  static Result<Replacer> parse(const Json& part);
  Result<std::string> apply(std::string_view text) const;

  std::string literal;       ///< what to look for, where `regex` is empty
  std::vector<Regex> regex;  ///< none or one
  std::string content;
};

class Normalizer {
 public:
  /// `part` may be null: no normalizer.
  static Result<Normalizer> parse(const Json* part);

  /// Errors: kExhausted if the text would grow too much, or a regex exceeds its limits.
  Result<std::string> apply(std::string_view text) const;
  bool is_identity() const { return steps_.empty(); }

 private:
  enum class Form { kNfc, kNfd, kNfkc, kNfkd };
  struct Prepend {
    std::string text;
  };
  struct Lowercase {};
  struct StripAccents {};
  struct ByteLevel {};
  struct Nmt {};
  struct Strip {
    bool left, right;
  };
  struct Bert {
    bool clean, space_chinese, strip_accents, lowercase;
  };
  using Step = std::variant<Form, Prepend, Replacer, Lowercase, StripAccents, Strip, ByteLevel, Nmt, Bert, Charsmap>;

  Status add(const Json& part, int depth);
  static Result<Step> parse_step(const Json& part, const std::string& kind);
  static Result<std::string> to_form(Form form, std::string_view text);
  static Result<std::string> run_bert(const Bert& bert, std::string_view text);
  static Result<std::string> run(const Step& step, std::string_view text);

  std::vector<Step> steps_;
};

}  // namespace moestro::tok
