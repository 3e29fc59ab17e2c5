#include "orchestrator/grammar/gbnf_reader.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <unordered_map>

namespace moestro::grammar {

namespace {

constexpr int kGroupsMax = 200;  // within each other; reading recurses
constexpr int64_t kRepetitionsMax = 10'000;
constexpr size_t kPartsMax = ByteGrammar::kNodesMax;
constexpr const char* kNoEscape =
    "this is no escape; there are \\n \\r \\t \\xNN \\uNNNN \\UNNNNNNNN and \\ before punctuation";

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}
bool in_name(char c) {
  return is_letter_or_digit(c) || c == '-' || c == '_';
}

class GbnfReader {
 public:
  explicit GbnfReader(std::string_view text) : text_(text) {}

  Result<Gbnf> read() {
    skip_white();
    while (more()) rule();
    if (!error_.is_ok()) return error_;
    for (size_t i = 0; i < rules_.size(); ++i) {
      if (defined_[i]) continue;
      fail(mentioned_[i], "the rule '" + rules_[i].name + "' is not defined; add  " + rules_[i].name + " ::= ...");
      return error_;
    }
    const auto root = index_.find("root");
    if (root == index_.end()) return invalid_argument("there is no rule 'root', with which every text begins; add it");
    return Gbnf{std::move(rules_), root->second};
  }

 private:
  bool more() const { return at_ < text_.size() && error_.is_ok(); }
  bool next_is(char c) const { return more() && text_[at_] == c; }
  bool take(char c) {
    if (!next_is(c)) return false;
    ++at_;
    return true;
  }
  void fail(size_t at, const std::string& why, Code code = Code::kInvalidArgument) {
    if (!error_.is_ok()) return;
    const std::string_view before = text_.substr(0, at);
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const std::string_view in_line = before.substr(before.find_last_of('\n') + 1);
    const auto column =
        std::count_if(in_line.begin(), in_line.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
    error_ = Status(code, "line " + std::to_string(line) + ", column " + std::to_string(column + 1) + ": " + why);
  }
  /// What is at `at`, for a message.
  std::string shown(size_t at) const {
    if (at >= text_.size()) return "the end of the grammar";
    const auto byte = static_cast<uint8_t>(text_[at]);
    if (byte > 0x20 && byte < 0x7F) return std::string("'") + text_[at] + "'";
    return byte < 0x80 ? "a control character" : "a character that is no part of the language";
  }

  void skip_white() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') at_ = std::min(text_.find('\n', at_), text_.size());
      else if (c == ' ' || c == '\t' || c == '\r' || c == '\n') ++at_;
      else return;
    }
  }

  std::string name() {
    const size_t begin = at_;
    while (at_ < text_.size() && in_name(text_[at_])) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }
  bool take_assignment() {
    if (text_.substr(at_, 3) != "::=") return false;
    at_ += 3;
    return true;
  }
  bool at_next_rule() {
    const size_t begin = at_;
    const bool found = !name().empty() && (skip_white(), take_assignment());
    at_ = begin;
    return found;
  }

  size_t index_of(const std::string& name, size_t at) {
    const auto [known, fresh] = index_.emplace(name, rules_.size());
    if (fresh) {
      rules_.push_back({name, {}});
      defined_.push_back(false);
      mentioned_.push_back(at);
    }
    return known->second;
  }

  void rule() {
    const size_t begin = at_;
    const std::string called = name();
    if (called.empty()) return fail(begin, shown(begin) + " begins no rule; a rule is  NAME ::= ...");
    skip_white();
    if (!take_assignment()) return fail(at_, "after the name '" + called + "' of a rule must come '::='");
    const size_t rule = index_of(called, begin);
    if (defined_[rule]) return fail(begin, "the rule '" + called + "' is defined twice");
    defined_[rule] = true;
    skip_white();
    auto read = alternatives();
    rules_[rule].alternatives = std::move(read);
    if (next_is(')')) fail(at_, "this ')' closes nothing");
  }

  GbnfAlternatives alternatives() {
    GbnfAlternatives list;
    do {
      skip_white();
      list.push_back(sequence());
    } while (take('|'));
    return list;
  }

  GbnfSequence sequence() {
    GbnfSequence parts;
    while (more() && text_[at_] != '|' && text_[at_] != ')' && !at_next_rule()) {
      if (++parts_ > kPartsMax) fail(at_, "the grammar is too large", Code::kUnsupported);
      GbnfPart one = part();
      skip_white();
      quantifier(one);
      if (one.kind != GbnfPart::Kind::kText || !one.text.empty()) parts.push_back(std::move(one));
      skip_white();
    }
    return parts;
  }

  GbnfPart part() {
    using Kind = GbnfPart::Kind;
    const size_t begin = at_;
    if (take('"')) return {.kind = Kind::kText, .text = literal(begin)};
    if (take('[')) return {.kind = Kind::kCharacter, .characters = char_class(begin)};
    if (take('.')) return {.kind = Kind::kCharacter, .characters = {{0, kCodePointMax}}};
    if (take('(')) return {.kind = Kind::kGroup, .group = group(begin)};
    if (in_name(text_[at_])) return {.kind = Kind::kRule, .rule = index_of(name(), begin)};
    const char c = text_[at_];
    if (c == '*' || c == '+' || c == '?' || c == '{') fail(at_, shown(at_) + " repeats nothing");
    if (c == '<' || c == '!')
      fail(at_, "tokens (<...>) are not supported; write the text as a literal", Code::kUnsupported);
    fail(at_, shown(at_) + " cannot be here; a rule has literals \"...\", classes [...], '.', names, groups and '|'");
    return {};
  }

  GbnfAlternatives group(size_t begin) {
    if (++groups_ > kGroupsMax)
      fail(begin, "groups are nested deeper than " + std::to_string(kGroupsMax) + "; make some of them rules",
           Code::kUnsupported);
    auto list = error_.is_ok() ? alternatives() : GbnfAlternatives{};
    --groups_;
    if (!take(')')) fail(begin, "this '(' is not closed");
    return list;
  }

  void quantifier(GbnfPart& p) {
    const size_t begin = at_;
    if (take('*')) p.least = 0, p.most = -1;
    else if (take('+')) p.least = 1, p.most = -1;
    else if (take('?')) p.least = 0, p.most = 1;
    else if (take('{')) times(p, begin);
    else return;
    skip_white();
    if (next_is('*') || next_is('+') || next_is('?') || next_is('{'))
      fail(at_, shown(at_) + " repeats a repetition; put that in parentheses");
  }

  void times(GbnfPart& p, size_t begin) {
    const auto least = count();
    p.least = p.most = least.value_or(0);
    skip_white();
    if (take(',')) {
      skip_white();
      p.most = next_is('}') ? -1 : count().value_or(-1);
      skip_white();
    }
    if (!least || !take('}')) return fail(begin, "a repetition is {m}, {m,} or {m,n}");
    if (p.most >= 0 && p.most < p.least) fail(begin, "this repetition ends before it begins");
  }

  std::optional<int64_t> count() {
    skip_white();
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    if (at_ == begin) return std::nullopt;
    int64_t n = 0;
    const auto [end, error] = std::from_chars(text_.data() + begin, text_.data() + at_, n);
    if (error == std::errc() && n <= kRepetitionsMax) return n;
    fail(begin, "nothing is repeated more than " + std::to_string(kRepetitionsMax) + " times; without a bound is {m,}",
         Code::kUnsupported);
    return std::nullopt;
  }

  std::u32string literal(size_t begin) {
    std::u32string out;
    while (more() && text_[at_] != '"') out += static_cast<char32_t>(character());
    if (!take('"')) fail(begin, "this '\"' is not closed");
    return out;
  }

  CharacterSet char_class(size_t begin) {
    const bool negated = take('^');
    CharacterSet set;
    while (more() && text_[at_] != ']') {
      const size_t from = at_;
      const uint32_t low = character();
      uint32_t high = low;
      if (next_is('-') && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        if (more()) high = character();
      }
      if (high < low) fail(from, "this range ends before it begins");
      set.emplace_back(low, high);
    }
    if (!take(']')) fail(begin, "this '[' is not closed");
    if (set.empty()) fail(begin, "this class is empty; any character is '.'");
    set = negated ? complement(set) : normal(std::move(set));
    if (set.empty()) fail(begin, "no character is outside this class");
    return set;
  }

  /// One character of a literal or a class.
  uint32_t character() {
    const size_t begin = at_;
    if (!take('\\')) {
      if (const auto point = take_code_point(text_, at_)) return *point;
      fail(begin, "the grammar is not UTF-8");
      return 0;
    }
    const char c = at_ < text_.size() ? text_[at_++] : '\0';
    switch (c) {
      case 'n': return '\n';
      case 'r': return '\r';
      case 't': return '\t';
      case 'x': return hex(begin, 2);
      case 'u': return hex(begin, 4);
      case 'U': return hex(begin, 8);
      default: break;
    }
    if (c <= ' ' || c == 0x7F || is_letter_or_digit(c)) fail(begin, kNoEscape);
    return static_cast<uint8_t>(c);
  }

  uint32_t hex(size_t begin, size_t digits) {
    uint32_t n = 0;
    const char* first = text_.data() + at_;
    const auto [end, error] = std::from_chars(first, first + std::min(digits, text_.size() - at_), n, 16);
    if (error != std::errc() || end != first + digits) {
      fail(begin, "this escape takes " + std::to_string(digits) + " hexadecimal digits");
      return 0;
    }
    at_ += digits;
    if (n > kCodePointMax || (n >= 0xD800 && n <= 0xDFFF)) fail(begin, "this escape is no character of Unicode");
    return n;
  }

  const std::string_view text_;
  size_t at_ = 0, parts_ = 0;
  int groups_ = 0;
  std::vector<GbnfRule> rules_;
  std::vector<bool> defined_;      ///< by rule
  std::vector<size_t> mentioned_;  ///< by rule: where first
  std::unordered_map<std::string, size_t> index_;
  Status error_ = Status::ok();
};

}  // namespace

Result<Gbnf> read_gbnf(std::string_view text) {
  return GbnfReader(text).read();
}

}  // namespace moestro::grammar
