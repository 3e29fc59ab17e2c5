#include "orchestrator/chat/lexer.h"

#include <algorithm>

#include "orchestrator/chat/error.h"
#include "orchestrator/chat/text.h"

namespace moestro::jinja {
namespace {

using Kind = Token::Kind;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

// "\r\n" and "\r" become "\n"; one newline at the very end is dropped.
std::string normalize_source(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : in_(std::move(source)) {}

  std::vector<Token> run() {
    while (pos_ < in_.size()) template_text();
    push(Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  void push(Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  bool at(std::string_view what) const { return std::string_view(in_).substr(pos_).starts_with(what); }

  void advance(size_t n) {
    line_ += static_cast<int>(
        std::count(in_.begin() + static_cast<long>(pos_), in_.begin() + static_cast<long>(pos_ + n), '\n'));
    pos_ += n;
  }

  void skip_space() {
    const std::string_view rest = std::string_view(in_).substr(pos_);
    advance(rest.size() - strip_left(rest).size());
  }

  size_t next_tag() const {
    for (size_t i = in_.find('{', pos_); i != std::string::npos; i = in_.find('{', i + 1)) {
      if (i + 1 < in_.size() && (in_[i + 1] == '%' || in_[i + 1] == '{' || in_[i + 1] == '#')) return i;
    }
    return std::string::npos;
  }

  // What remains of the text before a tag. `sign`: '-' takes all white space, '+' none; else lstrip_blocks
  // takes the indentation of a block's or comment's line.
  std::string_view before_tag(std::string_view text, char sign, bool variable) const {
    if (sign == '-') return strip_right(text);
    if (sign == '+' || variable) return text;
    const size_t newline = text.rfind('\n');
    const size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
    if (line_start == 0 && !line_starting_) return text;
    if (strip_left(text.substr(line_start)).empty()) return text.substr(0, line_start);
    return text;
  }

  char take_sign() {
    if (pos_ < in_.size() && (in_[pos_] == '-' || in_[pos_] == '+')) return in_[pos_++];
    return 0;
  }

  void put_text(std::string_view text) {
    if (!text.empty()) push(Kind::kText, std::string(text));
  }

  void template_text() {
    const size_t tag = next_tag();
    if (tag == std::string::npos) {
      put_text(std::string_view(in_).substr(pos_));
      pos_ = in_.size();
      return;
    }
    const std::string_view text = std::string_view(in_).substr(pos_, tag - pos_);
    const char kind = in_[tag + 1];
    const char sign = tag + 2 < in_.size() ? in_[tag + 2] : '\0';
    put_text(before_tag(text, sign, kind == '{'));
    advance(tag + 2 - pos_);
    take_sign();
    if (kind == '#') return comment();
    if (kind == '%' && raw()) return;
    push(kind == '{' ? Kind::kVariableBegin : Kind::kBlockBegin, "");
    inside_tag(kind == '{');
  }

  // Ends of blocks and comments: "-%}" takes the white space that follows, "%}" one newline, "+%}" nothing.
  bool take_end(std::string_view end, bool trims_newline) {
    const size_t start = pos_;
    if (at("-") && std::string_view(in_).substr(pos_ + 1).starts_with(end)) {
      pos_ += 1 + end.size();
      skip_space();
    } else if (trims_newline && at("+") && std::string_view(in_).substr(pos_ + 1).starts_with(end)) {
      pos_ += 1 + end.size();
    } else if (at(end)) {
      pos_ += end.size();
      if (trims_newline && at("\n")) advance(1);
    } else {
      return false;
    }
    line_starting_ = pos_ > start && in_[pos_ - 1] == '\n';
    return true;
  }

  void comment() {
    const int line = line_;
    while (pos_ < in_.size()) {
      if (take_end("#}", true)) return;
      advance(1);
    }
    fail("a comment has no end", line);
  }

  // {% raw %}...{% endraw %}; false if this block is not one.
  bool raw() {
    const size_t saved = pos_;
    const int saved_line = line_;
    skip_space();
    bool opened = false;
    if (at("raw")) {
      pos_ += 3;
      skip_space();
      opened = at("%}") || at("-%}");
    }
    if (!opened) {
      pos_ = saved;
      line_ = saved_line;
      return false;
    }
    take_end("%}", at("-"));  // no newline is trimmed after {% raw %}
    const size_t body = pos_;
    for (size_t tag = in_.find("{%", pos_); tag != std::string::npos; tag = in_.find("{%", tag + 2)) {
      advance(tag + 2 - pos_);
      const char sign = take_sign();
      skip_space();
      if (!at("endraw")) continue;
      pos_ += 6;
      skip_space();
      const std::string_view text = std::string_view(in_).substr(body, tag - body);
      const std::string kept(before_tag(text, sign, false));
      if (!take_end("%}", true)) continue;
      put_text(kept);
      return true;
    }
    fail("{% raw %} has no {% endraw %}", saved_line);
  }

  void inside_tag(bool variable) {
    std::string open;  // brackets not yet closed: within them "}}" ends nothing
    for (;;) {
      skip_space();
      if (pos_ >= in_.size()) fail("the template ends inside a tag", line_);
      if (open.empty() && take_end(variable ? "}}" : "%}", !variable)) {
        push(variable ? Kind::kVariableEnd : Kind::kBlockEnd, "");
        return;
      }
      const char c = in_[pos_];
      if (c == '"' || c == '\'')
        string_literal(c);
      else if (is_digit(c))
        number();
      else if (is_name_start(c))
        name();
      else
        operator_token(open);
    }
  }

  void name() {
    const size_t begin = pos_;
    while (pos_ < in_.size() && (is_name_start(in_[pos_]) || is_digit(in_[pos_]))) ++pos_;
    push(Kind::kName, in_.substr(begin, pos_ - begin));
  }

  void digits(std::string& out, bool (*accept)(char)) {
    while (pos_ < in_.size() &&
           (accept(in_[pos_]) || (in_[pos_] == '_' && pos_ + 1 < in_.size() && accept(in_[pos_ + 1])))) {
      if (in_[pos_] != '_') out += in_[pos_];
      ++pos_;
    }
  }

  void number() {
    std::string text;
    const auto hex = [](char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); };
    if (at("0x") || at("0X") || at("0b") || at("0B") || at("0o") || at("0O")) {
      const int base = (in_[pos_ + 1] | 0x20) == 'x' ? 16 : (in_[pos_ + 1] | 0x20) == 'o' ? 8 : 2;
      pos_ += 2;
      digits(text, hex);
      uint64_t value = 0;
      for (const char c : text) {
        const int digit = is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10;
        if (digit >= base || value > (uint64_t{1} << 58)) fail("a number is malformed or too large", line_);
        value = value * static_cast<uint64_t>(base) + static_cast<uint64_t>(digit);
      }
      if (text.empty()) fail("a number has no digits", line_);
      return push(Kind::kInteger, std::to_string(value));
    }
    digits(text, is_digit);
    bool real = false;
    if (at(".") && pos_ + 1 < in_.size() && is_digit(in_[pos_ + 1])) {
      real = true;
      text += in_[pos_++];
      digits(text, is_digit);
    }
    if (at("e") || at("E")) {
      const size_t sign = pos_ + 1 < in_.size() && (in_[pos_ + 1] == '+' || in_[pos_ + 1] == '-') ? 1 : 0;
      if (pos_ + 1 + sign < in_.size() && is_digit(in_[pos_ + 1 + sign])) {
        real = true;
        text += in_.substr(pos_, 1 + sign);
        pos_ += 1 + sign;
        digits(text, is_digit);
      }
    }
    push(real ? Kind::kFloat : Kind::kInteger, std::move(text));
  }

  void operator_token(std::string& open) {
    static constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "*",
                                                      "/",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                      ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    for (const std::string_view op : kOperators) {
      if (!at(op)) continue;
      if (op == "(" || op == "[" || op == "{") {
        open += op == "(" ? ')' : op == "[" ? ']' : '}';
      } else if (op == ")" || op == "]" || op == "}") {
        if (open.empty() || open.back() != op[0]) fail("unexpected '" + std::string(op) + "'", line_);
        open.pop_back();
      }
      push(Kind::kOperator, std::string(op));
      pos_ += op.size();
      return;
    }
    fail("unexpected character '" + sanitize_utf8(in_.substr(pos_, 1)) + "'", line_);
  }

  void string_literal(char quote) {
    const int line = line_;
    std::string text;
    size_t i = pos_ + 1;
    while (i < in_.size() && in_[i] != quote) {
      if (in_[i] == '\\' && i + 1 < in_.size())
        i = escape(text, i + 1);
      else
        text += in_[i++];
    }
    if (i >= in_.size()) fail("a string has no end", line);
    push(Kind::kString, std::move(text));
    advance(i + 1 - pos_);
  }

  // The escape whose letter is at `i`; returns where it ends. Python keeps the backslash of those it does not
  // know.
  size_t escape(std::string& out, size_t i) {
    static constexpr std::string_view kLetters = "ntrabfv\\'\"", kMeanings = "\n\t\r\a\b\f\v\\'\"";
    const char c = in_[i];
    if (const size_t known = kLetters.find(c); known != std::string_view::npos)
      return out += kMeanings[known], i + 1;
    if (c == '\n') return i + 1;
    if (c == 'x' || c == 'u' || c == 'U')
      return code_point_escape(out, i + 1, c == 'x' ? 2 : c == 'u' ? 4 : 8);
    if (c == 'N') fail_unsupported("the string escape \\N{...} is not supported", line_);
    if (c >= '0' && c <= '7') {
      char32_t value = 0;
      size_t end = i;
      while (end < in_.size() && end < i + 3 && in_[end] >= '0' && in_[end] <= '7')
        value = value * 8 + (in_[end++] - '0');
      append_utf8(out, value);
      return end;
    }
    out += '\\';
    return i;
  }

  size_t code_point_escape(std::string& out, size_t i, size_t digits_wanted) {
    char32_t value = 0;
    for (size_t k = 0; k < digits_wanted; ++k, ++i) {
      const char c = i < in_.size() ? in_[i] : '\0';
      if (is_digit(c))
        value = value * 16 + static_cast<char32_t>(c - '0');
      else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
        value = value * 16 + static_cast<char32_t>((c | 0x20) - 'a' + 10);
      else
        fail("a string escape has too few digits", line_);
    }
    append_utf8(out, value);
    return i;
  }

  std::string in_;
  size_t pos_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  return Lexer(normalize_source(source)).run();
}

}  // namespace moestro::jinja
