#include "orchestrator/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "orchestrator/tokenizer/byte_level.h"
#include "orchestrator/tokenizer/unicode.h"

namespace moestro::tok {
namespace {

constexpr std::string_view kWhere = "the normalizer";
constexpr size_t kStepsMax = 256;

// No sound normalizer makes text this much longer; a hostile one could otherwise ask for any amount of
// memory.
size_t growth_limit(std::string_view text) {
  return 64 * text.size() + 65536;
}

Result<std::string> unicode_form(std::string_view text, int options) {
  utf8proc_uint8_t* mapped = nullptr;
  const auto n = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                              static_cast<utf8proc_ssize_t>(text.size()), &mapped,
                              static_cast<utf8proc_option_t>(options | UTF8PROC_STABLE));
  if (n < 0) return internal_error(std::string("Unicode normalization failed: ") + utf8proc_errmsg(n));
  std::string out(reinterpret_cast<const char*>(mapped), static_cast<size_t>(n));
  std::free(mapped);
  return out;
}

std::string strip(std::string_view text, bool left, bool right) {
  size_t begin = 0, end = text.size();
  while (left && begin < end) {
    const CodePoint c = code_point_at(text, begin);
    if (!is_space(c.value)) break;
    begin += c.bytes;
  }
  while (right && end > begin) {
    size_t last = end - 1;
    while (last > begin && (static_cast<unsigned char>(text[last]) & 0xC0) == 0x80) --last;
    if (!is_space(code_point_at(text, last).value)) break;
    end = last;
  }
  return std::string(text.substr(begin, end - begin));
}

template <typename Append>
std::string map_characters(std::string_view text, Append append) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = code_point_at(text, i);
    append(out, c.value);
    i += c.bytes;
  }
  return out;
}

bool is_ascii(std::string_view text) {
  for (const char c : text) {
    if (static_cast<unsigned char>(c) >= 0x80) return false;
  }
  return true;
}

}  // namespace

Result<Replacer> Replacer::parse(const Json& part) {
  Replacer replacer;
  MOESTRO_ASSIGN_OR_RETURN(replacer.content, read_string(part, "content"));
  const Json* pattern = member(part, "pattern");
  if (pattern == nullptr || !pattern->is_object()) return invalid_argument("'pattern' must be an object");
  if (member(*pattern, "String") != nullptr) {
    MOESTRO_ASSIGN_OR_RETURN(replacer.literal, read_string(*pattern, "String"));
    if (replacer.literal.empty()) return unsupported("a replacement of the empty string is not supported");
  } else {
    MOESTRO_ASSIGN_OR_RETURN(const std::string source, read_string(*pattern, "Regex"));
    MOESTRO_ASSIGN_OR_RETURN(Regex compiled, Regex::compile(source));
    replacer.regex.push_back(std::move(compiled));
  }
  return replacer;
}

Result<std::string> Replacer::apply(std::string_view text) const {
  const size_t limit = growth_limit(text);
  std::string out;
  size_t from = 0;
  const auto put = [&](size_t begin, size_t end) {
    out += text.substr(from, begin - from);
    out += content;
    from = end;
    return out.size() <= limit;
  };
  const Status too_long = exhausted("a replacement makes the text more than 64 times as long");
  if (regex.empty()) {
    for (size_t at = text.find(literal); at != std::string_view::npos; at = text.find(literal, from)) {
      if (!put(at, at + literal.size())) return too_long;
    }
  } else {
    std::vector<Match> matches;
    MOESTRO_RETURN_IF_ERROR(regex.front().find_all(text, matches));
    for (const Match& match : matches) {
      if (!put(match.begin, match.end)) return too_long;
    }
  }
  out += text.substr(from);
  return out;
}

Result<Normalizer> Normalizer::parse(const Json* part) {
  Normalizer normalizer;
  if (part != nullptr) {
    if (Status status = normalizer.add(*part, 0); !status.is_ok()) return status;
  }
  return normalizer;
}

Status Normalizer::add(const Json& part, int depth) {
  if (depth > kPartDepthMax) return invalid_argument("the normalizer nests too deeply");
  MOESTRO_ASSIGN_OR_RETURN(const std::string kind, read_kind(part, kWhere));
  const std::string context = std::string(kWhere) + " " + kind;
  if (kind == "Sequence") {
    const auto list = read_array(part, "normalizers");
    if (!list.is_ok()) return list.status().with_context(context);
    for (const Json& child : **list) MOESTRO_RETURN_IF_ERROR(add(child, depth + 1));
    return Status::ok();
  }
  if (steps_.size() >= kStepsMax) return invalid_argument("the normalizer has more than 256 steps");
  if (kind == "NFC") {
    steps_.push_back(Form::kNfc);
  } else if (kind == "NFD") {
    steps_.push_back(Form::kNfd);
  } else if (kind == "NFKC") {
    steps_.push_back(Form::kNfkc);
  } else if (kind == "NFKD") {
    steps_.push_back(Form::kNfkd);
  } else if (kind == "Lowercase") {
    steps_.push_back(Lowercase{});
  } else if (kind == "StripAccents") {
    steps_.push_back(StripAccents{});
  } else if (kind == "ByteLevel") {
    steps_.push_back(ByteLevel{});
  } else if (kind == "Prepend") {
    auto text = read_string(part, "prepend");
    if (!text.is_ok()) return text.status().with_context(context);
    steps_.push_back(Prepend{std::move(text).value()});
  } else if (kind == "Replace") {
    auto replacer = Replacer::parse(part);
    if (!replacer.is_ok()) return replacer.status().with_context(context);
    steps_.push_back(std::move(replacer).value());
  } else if (kind == "Strip") {
    const auto left = read_bool(part, "strip_left", true);
    const auto right = read_bool(part, "strip_right", true);
    if (!left.is_ok()) return left.status().with_context(context);
    if (!right.is_ok()) return right.status().with_context(context);
    steps_.push_back(Strip{*left, *right});
  } else {
    return unknown_kind(kWhere, kind);
  }
  return Status::ok();
}

Result<std::string> Normalizer::run(const Step& step, std::string_view text) {
  if (const auto* form = std::get_if<Form>(&step)) {
    if (is_ascii(text)) return std::string(text);
    switch (*form) {
      case Form::kNfc:
        return unicode_form(text, UTF8PROC_COMPOSE);
      case Form::kNfd:
        return unicode_form(text, UTF8PROC_DECOMPOSE);
      case Form::kNfkc:
        return unicode_form(text, UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
      case Form::kNfkd:
        return unicode_form(text, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
    }
  }
  if (const auto* prepend = std::get_if<Prepend>(&step))
    return text.empty() ? std::string() : prepend->text + std::string(text);
  if (const auto* replacer = std::get_if<Replacer>(&step)) return replacer->apply(text);
  if (const auto* edges = std::get_if<Strip>(&step)) return strip(text, edges->left, edges->right);
  if (std::holds_alternative<Lowercase>(step)) return map_characters(text, append_lower);
  if (std::holds_alternative<ByteLevel>(step)) {
    std::string out;
    append_byte_level(out, text);
    return out;
  }
  return map_characters(text, [](std::string& out, char32_t c) {
    if (!is_nonspacing_mark(c)) append_utf8(out, c);
  });
}

Result<std::string> Normalizer::apply(std::string_view text) const {
  const size_t limit = growth_limit(text);
  std::string current(text);
  for (const Step& step : steps_) {
    MOESTRO_ASSIGN_OR_RETURN(current, run(step, current));
    if (current.size() > limit) return exhausted("the normalizer makes the text more than 64 times as long");
  }
  return current;
}

}  // namespace moestro::tok
