#pragma once
// The "decoder" of tokenizer.json: tokens to text, as a chain of streaming stages.

#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/status.h"
#include "orchestrator/tokenizer/json_fields.h"
#include "orchestrator/tokenizer/normalizer.h"

namespace moestro::tok {

class DecodeStream;

/// What the file says; immutable.
class Decoder {
 public:
  struct ByteLevel {};
  struct ByteFallback {};
  struct Fuse {};
  struct Join {};  ///< no decoder: tokens joined with spaces
  struct Metaspace {
    std::string replacement;
    bool drop_first;  ///< the first token loses its replacement characters
  };
  struct Strip {
    std::string content;
    size_t start, stop;
  };
  struct WordPiece {
    std::string prefix;  ///< of tokens that continue a word; others but the first get a space before them
    bool cleanup;        ///< no spaces before punctuation
  };
  using Step = std::variant<ByteLevel, ByteFallback, Fuse, Join, Metaspace, Strip, Replacer, WordPiece>;

  /// `part` may be null.
  static Result<Decoder> parse(const Json* part);

  DecodeStream stream() const;
  /// The bytes of one token inside a text, without changes that only apply to the first or last token.
  std::string token_bytes(std::string_view token) const;

 private:
  friend class DecodeStream;
  Status add(const Json& part, int depth);
  std::vector<Step> steps_;
};

/// The byte of a token "<0x0A>"; -1 if it is none.
int byte_of_fallback_token(std::string_view token);

/// `text` with `to` for each `from`.
std::string replace_all(std::string_view text, std::string_view from, std::string_view to);

/// One stage: takes tokens (or, after a Fuse, chunks of one text) and passes on what is certain.
class DecodeStage {
 public:
  virtual ~DecodeStage() = default;
  virtual void push(std::string_view token, std::vector<std::string>& out) = 0;
  virtual void finish(std::vector<std::string>& out) = 0;
  /// Passes on held text that is complete, because the reader takes the text so far as final.
  virtual void settle(std::vector<std::string>&) {}
  virtual std::unique_ptr<DecodeStage> clone() const = 0;
};

/// `fused`: what comes in are chunks of one text, no longer single tokens.
std::unique_ptr<DecodeStage> make_stage(const Decoder::Step& step, bool fused);

/// The stages for one text. Refers to its Decoder, which must outlive it.
class DecodeStream {
 public:
  explicit DecodeStream(const Decoder& decoder);
  std::string push(std::string_view token);
  std::string finish();
  /// The held text of complete characters, if the reader takes the text so far as final.
  std::string settle();
  /// The text that finish() would return now.
  std::string held() const { return rest_after({}); }
  /// The text that push() of this token and finish() would return; no token: of finish() alone.
  std::string rest_after(std::string_view token) const;

 private:
  DecodeStream() = default;
  std::string run(std::vector<std::string> tokens, size_t first_stage);
  std::vector<std::unique_ptr<DecodeStage>> stages_;
};

}  // namespace moestro::tok
