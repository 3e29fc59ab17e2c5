#include "orchestrator/tokenizer/regex_reader.h"

#include "common/utf8.h"
#include "orchestrator/tokenizer/unicode.h"
#include "orchestrator/tokenizer/unicode_properties.h"

namespace moestro::tok {
namespace {

constexpr unsigned kNumberMax = 100'000;  // as in Oniguruma

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 99;
}

}  // namespace

std::string shown_regex(std::string_view pattern) {
  std::string text(pattern.substr(0, 60));
  if (pattern.size() > 60) text += "...";
  return "the regex '" + lossy_utf8(text) + "'";
}

Status RegexReader::wrong(std::string_view what) const {
  return invalid_argument(shown_regex(in_) + " does not compile: " + std::string(what));
}

Status RegexReader::unknown(std::string_view what) const {
  return unsupported(shown_regex(in_) + " has " + std::string(what) + ", which is not supported");
}

bool RegexReader::take(std::string_view text) {
  if (!at(text)) return false;
  pos_ += text.size();
  return true;
}

char32_t RegexReader::take_char() {
  const CodePoint c = code_point_at(in_, pos_);
  pos_ += c.bytes;
  return c.value;
}

std::optional<std::string_view> RegexReader::take_until(std::string_view end) {
  const size_t found = in_.find(end, pos_);
  if (found == std::string_view::npos) return std::nullopt;
  const std::string_view text = in_.substr(pos_, found - pos_);
  pos_ = found + end.size();
  return text;
}

std::optional<unsigned> RegexReader::take_number() {
  if (digit_of(peek()) > 9) return std::nullopt;
  unsigned value = 0;
  for (; digit_of(peek()) <= 9; ++pos_)
    value = std::min(value * 10 + static_cast<unsigned>(digit_of(peek())), kNumberMax + 1);
  return value;
}

Result<std::optional<CodePointSet>> RegexReader::take_set_escape(bool in_class) {
  using Set = std::optional<CodePointSet>;
  const auto taken = [&](CodePointSet set, bool negated) -> Set {
    ++pos_;
    return negated ? set.complement() : std::move(set);
  };
  switch (const char c = peek()) {
    case 'd':
    case 'D':
      return taken(*property("nd"), c == 'D');
    case 's':
    case 'S':
      return taken(*property("whitespace"), c == 'S');
    case 'h':
    case 'H':
      return taken(*property("xdigit"), c == 'H');
    case 'w':
    case 'W':
      return taken(in_class ? *posix_bracket("word") : bare_word(), c == 'W');
    case 'p':
    case 'P': {
      if (!in_.substr(pos_ + 1).starts_with('{')) return Set();
      pos_ += 2;
      auto name = take_until("}");
      if (!name) return wrong("a property without its '}'");
      const bool caret = name->starts_with('^');
      if (caret) name->remove_prefix(1);
      auto set = property(*name);
      if (!set) return unknown("the property '" + std::string(name->substr(0, 60)) + "'");
      return (c == 'P') != caret ? Set(set->complement()) : set;
    }
    default:
      return Set();
  }
}

Result<char32_t> RegexReader::take_code(int base, size_t digits_min, size_t digits_max) {
  char32_t value = 0;
  size_t n = 0;
  for (; n < digits_max && digit_of(peek()) < base; ++n, ++pos_)
    value = value * static_cast<char32_t>(base) + static_cast<char32_t>(digit_of(peek()));
  if (n < digits_min) return wrong("a character's code lacks digits");
  if (value > kCodePointMax || (value >= 0xD800 && value < 0xE000)) return wrong("a code that no character has");
  return value;
}

Result<char32_t> RegexReader::take_braced_code(int base) {
  ++pos_;
  MOESTRO_ASSIGN_OR_RETURN(const char32_t c, take_code(base, 1, 11));
  if (!take("}")) return unknown("several codes in one pair of braces");
  return c;
}

Result<char32_t> RegexReader::take_char_escape() {
  if (done()) return wrong("a backslash at its end");
  const char32_t c = take_char();
  switch (c) {
    case 't':
      return U'\t';
    case 'n':
      return U'\n';
    case 'r':
      return U'\r';
    case 'f':
      return U'\f';
    case 'v':
      return U'\v';
    case 'a':
      return U'\a';
    case 'e':
      return U'\x1B';
    case 'x':
      if (done()) return U'x';
      if (peek() == '{') return take_braced_code(16);
      // Above 7F it would be a byte, which is no character of UTF-8.
      if (digit_of(peek()) >= 8 && digit_of(peek()) < 16 && pos_ + 1 < in_.size() && digit_of(in_[pos_ + 1]) < 16)
        return unknown("a byte above \\x7F");
      return take_code(16, 0, 2);
    case 'u':
      return take_code(16, 4, 4);
    case 'o':
      return peek() == '{' ? take_braced_code(8) : Result<char32_t>(c);
    case '0':
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
    case '7': {
      --pos_;
      MOESTRO_ASSIGN_OR_RETURN(const char32_t code, take_code(8, 1, 3));
      if (code > 0x7F) return unknown("a byte above \\177");
      return code;
    }
    case 'c':
    case 'C':
    case 'M':
      return unknown("a control character spelled with \\c, \\C- or \\M-");
    default:
      return c;
  }
}

}  // namespace moestro::tok
