#include "orchestrator/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "orchestrator/tokenizer/byte_level.h"
#include "orchestrator/tokenizer/unicode.h"

namespace moestro::tok {
namespace {

constexpr std::string_view kNormalizerWords = "the normalizer";
constexpr size_t kNormalizerStepsMax = 256;

// No sound normalizer makes text this much longer; a hostile one could otherwise ask for any amount of
// memory.
size_t growth_limit(std::string_view text) {
  return 64 * text.size() + 65536;
}

Status append_form(std::string_view text, int options, std::string& out) {
  if (text.empty()) return Status::ok();
  utf8proc_uint8_t* mapped = nullptr;
  const auto n =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &mapped, static_cast<utf8proc_option_t>(options | UTF8PROC_STABLE));
  if (n < 0) return internal_error(std::string("Unicode normalization failed: ") + utf8proc_errmsg(n));
  out.append(reinterpret_cast<const char*>(mapped), static_cast<size_t>(n));
  std::free(mapped);
  return Status::ok();
}

// Characters that newer versions of Unicode normalize stay as they are and part what is beside them, as any character
// does that has neither a decomposition nor a combining class.
Result<std::string> unicode_form(std::string_view text, int options) {
  std::string out;
  out.reserve(text.size());
  size_t done = 0;
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = code_point_at(text, i);
    const size_t next = i + c.bytes;
    if (is_never_normalized(c.value)) {
      MOESTRO_RETURN_IF_ERROR(append_form(text.substr(done, i - done), options, out));
      out += text.substr(i, c.bytes);
      done = next;
    }
    i = next;
  }
  MOESTRO_RETURN_IF_ERROR(append_form(text.substr(done), options, out));
  return out;
}

bool in_ranges(char32_t c, std::initializer_list<std::pair<char32_t, char32_t>> ranges) {
  for (const auto& [first, last] : ranges) {
    if (c >= first && c <= last) return true;
  }
  return false;
}

// The blocks that BERT's own code lists.
bool is_chinese(char32_t c) {
  return in_ranges(c, {{0x4E00, 0x9FFF},
                       {0x3400, 0x4DBF},
                       {0x20000, 0x2A6DF},
                       {0x2A700, 0x2B73F},
                       {0x2B740, 0x2B81F},
                       {0x2B920, 0x2CEAF},
                       {0xF900, 0xFAFF},
                       {0x2F800, 0x2FA1F}});
}

// sentencepiece's rules for machine translation: controls go, odd spaces become plain ones.
void append_nmt(std::string& out, char32_t c) {
  if (in_ranges(c, {{0x01, 0x08}, {0x0B, 0x0B}, {0x0E, 0x1F}, {0x7F, 0x7F}, {0x8F, 0x8F}, {0x9F, 0x9F}})) return;
  const bool space = in_ranges(c, {{0x09, 0x0A},
                                   {0x0C, 0x0D},
                                   {0x1680, 0x1680},
                                   {0x200B, 0x200F},
                                   {0x2028, 0x2029},
                                   {0x2581, 0x2581},
                                   {0xFEFF, 0xFEFF},
                                   {0xFFFD, 0xFFFD}});
  append_utf8(out, space ? U' ' : c);
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

// Of files without "type".
std::string_view kind_of_old_normalizer(const Json& part) {
  if (member(part, "normalizers")) return "Sequence";
  if (member(part, "clean_text") && member(part, "lowercase")) return "BertNormalizer";
  if (member(part, "strip_left")) return "Strip";
  if (member(part, "prepend")) return "Prepend";
  return member(part, "pattern") ? "Replace" : "";
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
  MOESTRO_ASSIGN_OR_RETURN(const std::string kind, read_kind(part, kNormalizerWords, kind_of_old_normalizer(part)));
  const std::string context = std::string(kNormalizerWords) + " " + kind;
  if (kind == "Sequence") {
    const auto list = read_array(part, "normalizers");
    if (!list.is_ok()) return list.status().with_context(context);
    for (const Json& child : **list) MOESTRO_RETURN_IF_ERROR(add(child, depth + 1));
    return Status::ok();
  }
  if (steps_.size() >= kNormalizerStepsMax) return invalid_argument("the normalizer has more than 256 steps");
  auto step = parse_step(part, kind);
  if (!step.is_ok()) {
    return step.status().code() == Code::kUnsupported ? step.status() : step.status().with_context(context);
  }
  steps_.push_back(std::move(step).value());
  return Status::ok();
}

Result<Normalizer::Step> Normalizer::parse_step(const Json& part, const std::string& kind) {
  if (kind == "NFC") return Step(Form::kNfc);
  if (kind == "NFD") return Step(Form::kNfd);
  if (kind == "NFKC") return Step(Form::kNfkc);
  if (kind == "NFKD") return Step(Form::kNfkd);
  if (kind == "Lowercase") return Step(Lowercase{});
  if (kind == "StripAccents") return Step(StripAccents{});
  if (kind == "ByteLevel") return Step(ByteLevel{});
  if (kind == "Nmt") return Step(Nmt{});
  if (kind == "Prepend") {
    MOESTRO_ASSIGN_OR_RETURN(std::string text, read_string(part, "prepend"));
    return Step(Prepend{std::move(text)});
  }
  if (kind == "Replace") {
    MOESTRO_ASSIGN_OR_RETURN(Replacer replacer, Replacer::parse(part));
    return Step(std::move(replacer));
  }
  if (kind == "Strip") {
    MOESTRO_ASSIGN_OR_RETURN(const bool left, read_bool(part, "strip_left", true));
    MOESTRO_ASSIGN_OR_RETURN(const bool right, read_bool(part, "strip_right", true));
    return Step(Strip{left, right});
  }
  if (kind == "Precompiled") {
    MOESTRO_ASSIGN_OR_RETURN(const std::string text, read_string(part, "precompiled_charsmap"));
    MOESTRO_ASSIGN_OR_RETURN(Charsmap map, Charsmap::from_base64(text));
    return Step(std::move(map));
  }
  if (kind == "BertNormalizer") {
    Bert bert{};
    MOESTRO_ASSIGN_OR_RETURN(bert.clean, read_bool(part, "clean_text", true));
    MOESTRO_ASSIGN_OR_RETURN(bert.space_chinese, read_bool(part, "handle_chinese_chars", true));
    MOESTRO_ASSIGN_OR_RETURN(bert.lowercase, read_bool(part, "lowercase", true));
    MOESTRO_ASSIGN_OR_RETURN(bert.strip_accents, read_bool(part, "strip_accents", bert.lowercase));
    return Step(bert);
  }
  return unknown_kind(kNormalizerWords, kind);
}

Result<std::string> Normalizer::to_form(Form form, std::string_view text) {
  if (is_ascii(text)) return std::string(text);
  switch (form) {
    case Form::kNfc:
      return unicode_form(text, UTF8PROC_COMPOSE);
    case Form::kNfd:
      return unicode_form(text, UTF8PROC_DECOMPOSE);
    case Form::kNfkc:
      return unicode_form(text, UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
    case Form::kNfkd:
      return unicode_form(text, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
  }
  return std::string(text);
}

Result<std::string> Normalizer::run_bert(const Bert& bert, std::string_view text) {
  std::string out(text);
  if (bert.clean) {
    out = map_characters(out, [](std::string& to, char32_t c) {
      if (!is_control(c)) append_utf8(to, is_space(c) ? U' ' : c);
    });
  }
  if (bert.space_chinese) {
    out = map_characters(out, [](std::string& to, char32_t c) {
      const bool chinese = is_chinese(c);
      if (chinese) to += ' ';
      append_utf8(to, c);
      if (chinese) to += ' ';
    });
  }
  if (bert.strip_accents) {
    MOESTRO_ASSIGN_OR_RETURN(out, to_form(Form::kNfd, out));
    out = map_characters(out, [](std::string& to, char32_t c) {
      if (!is_nonspacing_mark(c)) append_utf8(to, c);
    });
  }
  return bert.lowercase ? map_characters(out, append_lower) : out;
}

Result<std::string> Normalizer::run(const Step& step, std::string_view text) {
  if (const auto* form = std::get_if<Form>(&step)) return to_form(*form, text);
  if (const auto* prepend = std::get_if<Prepend>(&step))
    return text.empty() ? std::string() : prepend->text + std::string(text);
  if (const auto* replacer = std::get_if<Replacer>(&step)) return replacer->apply(text);
  if (const auto* edges = std::get_if<Strip>(&step)) return strip(text, edges->left, edges->right);
  if (const auto* bert = std::get_if<Bert>(&step)) return run_bert(*bert, text);
  if (const auto* map = std::get_if<Charsmap>(&step)) return map->apply(text);
  if (std::holds_alternative<Nmt>(step)) return map_characters(text, append_nmt);
  if (std::holds_alternative<Lowercase>(step)) return map_characters(text, append_lower);
  if (std::holds_alternative<ByteLevel>(step)) {
    std::string out;
    append_byte_level(out, text);
    return out;
  }
  return map_characters(text, [](std::string& out, char32_t c) {
    if (!is_accent(c)) append_utf8(out, c);
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
