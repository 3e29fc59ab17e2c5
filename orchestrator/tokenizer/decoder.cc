#include "orchestrator/tokenizer/decoder.h"

#include <nlohmann/json.hpp>

#include "orchestrator/tokenizer/byte_level.h"
#include "orchestrator/tokenizer/unicode.h"

namespace moestro::tok {
namespace {

constexpr std::string_view kDecoderWords = "the decoder";
constexpr size_t kDecoderStepsMax = 64;

Result<Decoder::Step> parse_step(const Json& part, const std::string& kind) {
  using Step = Decoder::Step;
  if (kind == "ByteLevel") return Step(Decoder::ByteLevel{});
  if (kind == "ByteFallback") return Step(Decoder::ByteFallback{});
  if (kind == "Fuse") return Step(Decoder::Fuse{});
  if (kind == "Metaspace") {
    Decoder::Metaspace step;
    MOESTRO_ASSIGN_OR_RETURN(step.replacement, read_char(part, "replacement"));
    MOESTRO_ASSIGN_OR_RETURN(const bool prefix, read_bool(part, "add_prefix_space", true));
    MOESTRO_ASSIGN_OR_RETURN(const std::string scheme,
                             read_string_or(part, "prepend_scheme", prefix ? "always" : "never"));
    step.drop_first = scheme != "never";
    return Step(std::move(step));
  }
  if (kind == "Strip") {
    Decoder::Strip step{};
    MOESTRO_ASSIGN_OR_RETURN(step.content, read_char(part, "content"));
    MOESTRO_ASSIGN_OR_RETURN(const int64_t start, read_int(part, "start", 0, 1 << 20));
    MOESTRO_ASSIGN_OR_RETURN(const int64_t stop, read_int(part, "stop", 0, 1 << 20));
    step.start = static_cast<size_t>(start);
    step.stop = static_cast<size_t>(stop);
    return Step(std::move(step));
  }
  if (kind == "WordPiece") {
    Decoder::WordPiece step;
    MOESTRO_ASSIGN_OR_RETURN(step.prefix, read_string_or(part, "prefix", "##"));
    MOESTRO_ASSIGN_OR_RETURN(step.cleanup, read_bool(part, "cleanup", true));
    return Step(std::move(step));
  }
  if (kind == "Replace") {
    MOESTRO_ASSIGN_OR_RETURN(Replacer step, Replacer::parse(part));
    return Step(std::move(step));
  }
  return unknown_kind(kDecoderWords, kind);
}

// Of files without "type".
std::string_view kind_of_old_decoder(const Json& part) {
  if (member(part, "prefix") && member(part, "cleanup")) return "WordPiece";
  if (member(part, "content") && member(part, "start") && member(part, "stop")) return "Strip";
  return member(part, "pattern") && member(part, "content") ? "Replace" : "";
}

}  // namespace

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  size_t done = 0;
  for (size_t at = text.find(from); at != std::string_view::npos; at = text.find(from, done)) {
    out += text.substr(done, at - done);
    out += to;
    done = at + from.size();
  }
  out += text.substr(done);
  return out;
}

int byte_of_fallback_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  int value = 0;
  for (const char c : token.substr(3, 2)) {
    int digit;
    if (c >= '0' && c <= '9')
      digit = c - '0';
    else if (c >= 'A' && c <= 'F')
      digit = c - 'A' + 10;
    else if (c >= 'a' && c <= 'f')
      digit = c - 'a' + 10;
    else
      return -1;
    value = value * 16 + digit;
  }
  return value;
}

Result<Decoder> Decoder::parse(const Json* part) {
  Decoder decoder;
  if (part == nullptr) {
    decoder.steps_.push_back(Join{});
  } else if (Status status = decoder.add(*part, 0); !status.is_ok()) {
    return status;
  }
  return decoder;
}

Status Decoder::add(const Json& part, int depth) {
  if (depth > kPartDepthMax) return invalid_argument("the decoder nests too deeply");
  MOESTRO_ASSIGN_OR_RETURN(const std::string kind, read_kind(part, kDecoderWords, kind_of_old_decoder(part)));
  if (kind == "Sequence") {
    const auto list = read_array(part, "decoders");
    if (!list.is_ok()) return list.status().with_context(kDecoderWords);
    for (const Json& child : **list) MOESTRO_RETURN_IF_ERROR(add(child, depth + 1));
    return Status::ok();
  }
  if (steps_.size() >= kDecoderStepsMax) return invalid_argument("the decoder has more than 64 steps");
  auto step = parse_step(part, kind);
  if (!step.is_ok()) {
    return step.status().code() == Code::kUnsupported
               ? step.status()
               : step.status().with_context(std::string(kDecoderWords) + " " + kind);
  }
  steps_.push_back(std::move(step).value());
  return Status::ok();
}

std::string Decoder::token_bytes(std::string_view token) const {
  std::string text(token);
  for (const Step& step : steps_) {
    if (const auto* replacer = std::get_if<Replacer>(&step)) {
      if (auto replaced = replacer->apply(text); replaced.is_ok()) text = std::move(replaced).value();
    } else if (const auto* metaspace = std::get_if<Metaspace>(&step)) {
      text = replace_all(text, metaspace->replacement, " ");
    } else if (const auto* pieces = std::get_if<WordPiece>(&step)) {
      const bool continues = !pieces->prefix.empty() && text.starts_with(pieces->prefix);
      text = continues ? text.substr(pieces->prefix.size()) : " " + text;
    } else if (std::holds_alternative<ByteLevel>(step)) {
      return bytes_of_byte_level(text);
    } else if (std::holds_alternative<ByteFallback>(step)) {
      if (const int byte = byte_of_fallback_token(text); byte >= 0) return std::string(1, static_cast<char>(byte));
    }
  }
  return text;
}

DecodeStream Decoder::stream() const {
  return DecodeStream(*this);
}

DecodeStream::DecodeStream(const Decoder& decoder) {
  bool fused = false;
  for (const Decoder::Step& step : decoder.steps_) {
    stages_.push_back(make_stage(step, fused));
    fused = fused || std::holds_alternative<Decoder::Fuse>(step) || std::holds_alternative<Decoder::ByteLevel>(step);
  }
}

std::string DecodeStream::run(std::vector<std::string> tokens, size_t first_stage) {
  std::vector<std::string> next;
  for (size_t i = first_stage; i < stages_.size(); ++i) {
    next.clear();
    for (const std::string& token : tokens) stages_[i]->push(token, next);
    tokens.swap(next);
  }
  std::string text;
  for (const std::string& token : tokens) text += token;
  return text;
}

std::string DecodeStream::push(std::string_view token) {
  return run({std::string(token)}, 0);
}

std::string DecodeStream::settle() {
  std::string text;
  for (size_t i = 0; i < stages_.size(); ++i) {
    std::vector<std::string> whole;
    stages_[i]->settle(whole);
    text += run(std::move(whole), i + 1);
  }
  return text;
}

std::string DecodeStream::rest_after(std::string_view token) const {
  DecodeStream copy;
  for (const auto& stage : stages_) copy.stages_.push_back(stage->clone());
  const std::string text = token.empty() ? std::string() : copy.push(token);
  return text + copy.finish();
}

std::string DecodeStream::finish() {
  std::string text;
  for (size_t i = 0; i < stages_.size(); ++i) {
    std::vector<std::string> rest;
    stages_[i]->finish(rest);
    text += run(std::move(rest), i + 1);
  }
  return text;
}

}  // namespace moestro::tok
