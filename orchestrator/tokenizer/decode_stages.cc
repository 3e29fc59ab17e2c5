#include <algorithm>

#include "common/utf8.h"
#include "orchestrator/tokenizer/byte_level.h"
#include "orchestrator/tokenizer/decoder.h"
#include "orchestrator/tokenizer/unicode.h"

namespace moestro::tok {
namespace {

template <typename Stage>
std::unique_ptr<DecodeStage> copy_of(const Stage& stage) {
  return std::make_unique<Stage>(stage);
}

class PassStage : public DecodeStage {
 public:
  std::unique_ptr<DecodeStage> clone() const override { return copy_of(*this); }
  void push(std::string_view token, std::vector<std::string>& out) override { out.emplace_back(token); }
  void finish(std::vector<std::string>&) override {}
};

class JoinStage : public PassStage {
 public:
  std::unique_ptr<DecodeStage> clone() const override { return copy_of(*this); }
  void push(std::string_view token, std::vector<std::string>& out) override {
    out.push_back(first_ ? std::string(token) : " " + std::string(token));
    first_ = false;
  }

 private:
  bool first_ = true;
};

class ByteLevelStage : public DecodeStage {
 public:
  std::unique_ptr<DecodeStage> clone() const override { return copy_of(*this); }
  void push(std::string_view token, std::vector<std::string>& out) override {
    std::string text;
    lossy_.push(bytes_of_byte_level(token), text);
    if (!text.empty()) out.push_back(std::move(text));
  }
  void finish(std::vector<std::string>& out) override {
    std::string text;
    lossy_.finish(text);
    if (!text.empty()) out.push_back(std::move(text));
  }

 private:
  LossyUtf8 lossy_;
};

// A run of byte tokens is text if it is UTF-8 as a whole, else one U+FFFD per byte; so it waits for its end.
class ByteFallbackStage : public DecodeStage {
 public:
  std::unique_ptr<DecodeStage> clone() const override { return copy_of(*this); }
  void push(std::string_view token, std::vector<std::string>& out) override {
    if (const int byte = byte_of_fallback_token(token); byte >= 0) {
      run_ += static_cast<char>(byte);
      return;
    }
    finish(out);
    out.emplace_back(token);
  }
  void finish(std::vector<std::string>& out) override {
    if (run_.empty()) return;
    if (find_invalid_utf8(run_) == std::string_view::npos) {
      out.push_back(run_);
    } else {
      out.insert(out.end(), run_.size(), std::string(kReplacementCharacter));
    }
    run_.clear();
  }
  // Bytes that later ones may still complete stay; so does a broken run, which breaks what joins it.
  void settle(std::vector<std::string>& out) override {
    const size_t whole = run_.size() - unfinished_utf8_bytes(run_);
    if (find_invalid_utf8(run_.substr(0, whole)) != std::string_view::npos || whole == 0) return;
    out.push_back(run_.substr(0, whole));
    run_.erase(0, whole);
  }

 private:
  std::string run_;
};

class MetaspaceStage : public PassStage {
 public:
  explicit MetaspaceStage(const Decoder::Metaspace& spec) : spec_(spec) {}
  std::unique_ptr<DecodeStage> clone() const override { return copy_of(*this); }
  void push(std::string_view token, std::vector<std::string>& out) override {
    const bool drop = first_ && spec_.drop_first;
    first_ = false;
    std::string text;
    for (size_t i = 0; i < token.size();) {
      if (token.substr(i).starts_with(spec_.replacement)) {
        if (!drop) text += ' ';
        i += spec_.replacement.size();
      } else {
        text += token[i++];
      }
    }
    out.push_back(std::move(text));
  }

 private:
  const Decoder::Metaspace& spec_;
  bool first_ = true;
};

// Strips each token it is given: for a Strip before any Fuse.
class StripTokenStage : public PassStage {
 public:
  explicit StripTokenStage(const Decoder::Strip& spec) : spec_(spec) {}
  std::unique_ptr<DecodeStage> clone() const override { return copy_of(*this); }
  void push(std::string_view token, std::vector<std::string>& out) override {
    for (size_t n = 0; n < spec_.start && token.starts_with(spec_.content); ++n)
      token.remove_prefix(spec_.content.size());
    for (size_t n = 0; n < spec_.stop && token.ends_with(spec_.content); ++n) token.remove_suffix(spec_.content.size());
    out.emplace_back(token);
  }

 private:
  const Decoder::Strip& spec_;
};

// Strips the ends of one text that comes in chunks: the last characters wait until something follows them.
class StripTextStage : public DecodeStage {
 public:
  explicit StripTextStage(const Decoder::Strip& spec) : spec_(spec), to_strip_(spec.start) {}
  std::unique_ptr<DecodeStage> clone() const override { return copy_of(*this); }
  void push(std::string_view chunk, std::vector<std::string>& out) override {
    while (to_strip_ > 0 && chunk.starts_with(spec_.content)) {
      chunk.remove_prefix(spec_.content.size());
      --to_strip_;
    }
    if (chunk.empty()) return;
    to_strip_ = 0;
    std::string text = held_text() + std::string(chunk);
    held_ = 0;
    size_t end = text.size();
    while (held_ < spec_.stop && std::string_view(text).substr(0, end).ends_with(spec_.content)) {
      end -= spec_.content.size();
      ++held_;
    }
    text.resize(end);
    if (!text.empty()) out.push_back(std::move(text));
  }
  void finish(std::vector<std::string>&) override { held_ = 0; }

 private:
  std::string held_text() const {
    std::string text;
    for (size_t n = 0; n < held_; ++n) text += spec_.content;
    return text;
  }
  const Decoder::Strip& spec_;
  size_t to_strip_;
  size_t held_ = 0;
};

class WordPieceStage : public PassStage {
 public:
  explicit WordPieceStage(const Decoder::WordPiece& spec) : spec_(spec) {}
  std::unique_ptr<DecodeStage> clone() const override { return copy_of(*this); }
  void push(std::string_view token, std::vector<std::string>& out) override {
    std::string text(token);
    if (!first_) text = token.starts_with(spec_.prefix) ? text.substr(spec_.prefix.size()) : " " + text;
    first_ = false;
    if (spec_.cleanup) {
      for (const auto& [from, to] : kCleanups) text = replace_all(text, from, to);
    }
    out.push_back(std::move(text));
  }

 private:
  // The reference's, in its order.
  static constexpr std::pair<std::string_view, std::string_view> kCleanups[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  const Decoder::WordPiece& spec_;
  bool first_ = true;
};

std::string replaced(const Replacer& spec, std::string_view text) {
  auto result = spec.apply(text);
  return result.is_ok() ? std::move(result).value() : std::string(text);  // past a limit the text stays as it is
}

class ReplaceTokenStage : public PassStage {
 public:
  explicit ReplaceTokenStage(const Replacer& spec) : spec_(spec) {}
  std::unique_ptr<DecodeStage> clone() const override { return copy_of(*this); }
  void push(std::string_view token, std::vector<std::string>& out) override { out.push_back(replaced(spec_, token)); }

 private:
  const Replacer& spec_;
};

// Replaces in one text that comes in chunks. A string may lie across chunks, so its possible beginnings wait;
// where a regex ends its match cannot be known before the text ends.
class ReplaceTextStage : public DecodeStage {
 public:
  explicit ReplaceTextStage(const Replacer& spec) : spec_(spec) {}
  std::unique_ptr<DecodeStage> clone() const override { return copy_of(*this); }
  void push(std::string_view chunk, std::vector<std::string>& out) override {
    held_ += chunk;
    if (!spec_.regex.empty()) return;
    const std::string& literal = spec_.literal;
    std::string text;
    size_t done = 0;
    for (size_t at = held_.find(literal); at != std::string::npos; at = held_.find(literal, done)) {
      text += held_.substr(done, at - done) + spec_.content;
      done = at + literal.size();
    }
    size_t keep = std::min(literal.size() - 1, held_.size() - done);
    while (keep > 0 && !literal.starts_with(std::string_view(held_).substr(held_.size() - keep))) --keep;
    text += held_.substr(done, held_.size() - keep - done);
    held_.erase(0, held_.size() - keep);
    if (!text.empty()) out.push_back(std::move(text));
  }
  void finish(std::vector<std::string>& out) override {
    if (!held_.empty()) out.push_back(spec_.regex.empty() ? held_ : replaced(spec_, held_));
    held_.clear();
  }

 private:
  const Replacer& spec_;
  std::string held_;
};

}  // namespace

std::unique_ptr<DecodeStage> make_stage(const Decoder::Step& step, bool fused) {
  if (std::holds_alternative<Decoder::ByteLevel>(step)) return std::make_unique<ByteLevelStage>();
  if (std::holds_alternative<Decoder::ByteFallback>(step)) {
    // Of one text no chunk is a byte token by itself.
    if (fused) return std::make_unique<PassStage>();
    return std::make_unique<ByteFallbackStage>();
  }
  if (std::holds_alternative<Decoder::Join>(step)) return std::make_unique<JoinStage>();
  if (const auto* metaspace = std::get_if<Decoder::Metaspace>(&step))
    return std::make_unique<MetaspaceStage>(*metaspace);
  if (const auto* strip = std::get_if<Decoder::Strip>(&step)) {
    if (fused) return std::make_unique<StripTextStage>(*strip);
    return std::make_unique<StripTokenStage>(*strip);
  }
  if (const auto* pieces = std::get_if<Decoder::WordPiece>(&step)) return std::make_unique<WordPieceStage>(*pieces);
  if (const auto* replacer = std::get_if<Replacer>(&step)) {
    if (fused) return std::make_unique<ReplaceTextStage>(*replacer);
    return std::make_unique<ReplaceTokenStage>(*replacer);
  }
  return std::make_unique<PassStage>();  // Fuse: what follows it is made for chunks
}

}  // namespace moestro::tok
