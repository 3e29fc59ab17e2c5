#include "orchestrator/forms/python_literal.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "orchestrator/forms/json_text.h"
#include "orchestrator/forms/marker.h"
#include "orchestrator/tokenizer/unicode.h"

namespace moestro::orchestrator {

namespace {

constexpr int kDepthMax = 64;

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
         c == '+' || c == '-';
}

/// A recursive descent; every function writes JSON to `out_`, and false ends it all.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  std::optional<std::string> read() {
    if (!value(0)) return std::nullopt;
    white();
    return text_.empty() ? std::optional(out_) : std::nullopt;
  }

  std::string begun_string() {
    white();
    if (text_.empty() || (text_.front() != '"' && text_.front() != '\'')) return "";
    std::string said;
    (void)string_inside(said);
    return '"' + escaped_json(said);
  }

 private:
  void white() {
    while (!text_.empty() && is_json_white(text_.front())) text_.remove_prefix(1);
  }
  bool took(char c) {
    white();
    if (text_.empty() || text_.front() != c) return false;
    text_.remove_prefix(1);
    return true;
  }

  bool value(int depth) {
    white();
    if (text_.empty() || depth > kDepthMax) return false;
    const char c = text_.front();
    if (c == '"' || c == '\'') return string();
    if (c != '[' && c != '(' && c != '{') return word();
    text_.remove_prefix(1);
    return c == '{' ? dict(depth) : list(depth, c == '[' ? ']' : ')');
  }

  bool list(int depth, char end) {
    out_ += '[';
    for (bool first = true; !took(end); first = false) {
      if (!first && !took(',')) return false;
      if (!first && took(end)) break;  // a comma may follow the last one
      if (!first) out_ += ", ";
      if (!value(depth + 1)) return false;
    }
    out_ += ']';
    return true;
  }

  bool dict(int depth) {
    out_ += '{';
    for (bool first = true; !took('}'); first = false) {
      if (!first && !took(',')) return false;
      if (!first && took('}')) break;
      if (!first) out_ += ", ";
      white();
      if (text_.empty() || (text_.front() != '"' && text_.front() != '\'')) return false;  // JSON has no other keys
      if (!string() || !took(':')) return false;
      out_ += ": ";
      if (!value(depth + 1)) return false;
    }
    out_ += '}';
    return true;
  }

  bool word() {
    const auto end = std::find_if_not(text_.begin(), text_.end(), is_word);
    const std::string_view word = text_.substr(0, static_cast<size_t>(end - text_.begin()));
    text_.remove_prefix(word.size());
    for (const auto& [python, in_json] : {std::pair("True", "true"), {"False", "false"}, {"None", "null"}})
      if (word == python || word == in_json) return out_ += in_json, true;
    if (!nlohmann::json::parse(word, nullptr, false).is_number()) return false;
    out_ += word;
    return true;
  }

  bool string() {
    std::string said;
    if (!string_inside(said)) return false;
    text_.remove_prefix(1);
    out_ += quoted_json(said);
    return true;
  }

  /// Up to the closing quote.
  bool string_inside(std::string& said) {
    const char quote = text_.front();
    text_.remove_prefix(1);
    while (!text_.empty() && text_.front() != quote) {
      const char c = text_.front();
      text_.remove_prefix(1);
      if (c != '\\') said += c;
      else if (!escape(said)) return false;
    }
    return !text_.empty();
  }

  bool escape(std::string& said) {
    if (text_.empty()) return false;
    const char c = text_.front();
    text_.remove_prefix(1);
    constexpr std::string_view kFrom = "ntrbfav0\\'\"/", kTo{"\n\t\r\b\f\a\v\0\\'\"/", 12};
    if (const size_t at = kFrom.find(c); at != std::string_view::npos) return said += kTo[at], true;
    if (c == 'x' || c == 'u' || c == 'U') return code_point(c == 'x' ? 2 : c == 'u' ? 4 : 8, said);
    if (c != '\n') said += '\\', said += c;  // Python keeps what is no escape, and drops an escaped line break
    return true;
  }

  std::optional<uint32_t> hex(size_t digits) {
    if (text_.size() < digits) return std::nullopt;
    uint32_t value = 0;
    const auto [end, error] = std::from_chars(text_.data(), text_.data() + digits, value, 16);
    if (error != std::errc() || end != text_.data() + digits) return std::nullopt;
    text_.remove_prefix(digits);
    return value;
  }

  bool code_point(size_t digits, std::string& said) {
    auto value = hex(digits);
    if (!value) return false;
    if (*value >= 0xD800 && *value < 0xDC00 && text_.starts_with("\\u")) {  // a pair, as JSON has them
      text_.remove_prefix(2);
      const auto low = hex(4);
      if (!low || *low < 0xDC00 || *low > 0xDFFF) return false;
      value = 0x10000 + ((*value - 0xD800) << 10) + (*low - 0xDC00);
    }
    if (*value > 0x10FFFF || (*value >= 0xD800 && *value <= 0xDFFF)) return false;
    tok::append_utf8(said, static_cast<char32_t>(*value));
    return true;
  }

  std::string_view text_;
  std::string out_;
};

}  // namespace

std::optional<std::string> python_to_json(std::string_view literal) { return Reader(literal).read(); }

std::string begun_python_string(std::string_view text) { return Reader(text).begun_string(); }

bool PythonValueEnd::take(char c) {
  if (quote_ != 0) {
    if (escaped_) escaped_ = false;
    else if (c == '\\') escaped_ = true;
    else if (c == quote_) quote_ = 0;
    return false;
  }
  if (depth_ == 0 && (c == ',' || c == ')')) return true;
  if (c == '"' || c == '\'') quote_ = c;
  if (c == '(' || c == '[' || c == '{') ++depth_;
  if ((c == ')' || c == ']' || c == '}') && depth_ > 0) --depth_;
  return false;
}

}  // namespace moestro::orchestrator
