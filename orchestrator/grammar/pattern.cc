#include "orchestrator/grammar/pattern.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "orchestrator/grammar/character_set.h"

namespace moestro::grammar {

namespace {

const CharacterSet kDigits{{'0', '9'}};
const CharacterSet kWord{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const CharacterSet kSpace{{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
                          {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const CharacterSet kLineEnds{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
const CharacterSet kAll{{0, kCodePointMax}};

/// Where the pattern is to match.
enum class MatchIn : uint8_t { kJsonString, kWholeText };

/// Reads the pattern and makes the nodes as it goes; what is repeated is read again for each time.
class PatternReader {
 public:
  PatternReader(ByteGrammar& g, std::string_view text, MatchIn in) : g_(g), json_(g), text_(text), in_(in) {}

  Result<NodeId> read(NodeId from) {
    const bool whole = in_ == MatchIn::kWholeText;
    const NodeId begin = whole ? from : g_.literal(from, "\""), end = g_.add();
    do {  // each alternative has anchors of its own
      NodeId at = g_.add();
      g_.empty(begin, at);
      if (!take('^') && !whole) at = anything(at);
      at = sequence(at);
      if (!take('$') && !whole) at = anything(at);
      g_.empty(at, end);
    } while (error_.is_ok() && take('|'));
    if (error_.is_ok() && at_ < text_.size()) fail(invalid_argument("there is a ')' or '$' too many"));
    if (!error_.is_ok()) return error_;
    return whole ? end : g_.literal(end, "\"");
  }

 private:
  bool more() const { return at_ < text_.size() && error_.is_ok(); }
  bool take(char c) {
    if (!more() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void fail(Status why) {
    if (error_.is_ok()) error_ = std::move(why);
  }
  void character(NodeId from, NodeId to, const CharacterSet& set) {
    if (in_ == MatchIn::kJsonString) return json_.character(from, to, set);
    for (const CodePoints& range : normal(set)) g_.code_points(from, to, range);
  }
  NodeId anything(NodeId from) {
    const NodeId loop = g_.add();
    g_.empty(from, loop);
    character(loop, loop, kAll);
    return loop;
  }

  NodeId alternatives(NodeId from) {
    const NodeId to = g_.add();
    do {
      const NodeId begin = g_.add();
      g_.empty(from, begin);
      g_.empty(sequence(begin), to);
    } while (error_.is_ok() && take('|'));
    return to;
  }

  NodeId sequence(NodeId at) {
    while (more() && text_[at_] != '|' && text_[at_] != ')' && text_[at_] != '$') at = repeated(at);
    return at;
  }

  NodeId repeated(NodeId from) {
    const size_t begin = at_;
    skip_atom();  // to find the quantifier
    const size_t end = at_;
    int64_t least = 1, most = 1;
    quantifier(least, most);
    const size_t behind = at_;
    const auto once = [&](NodeId at) {
      at_ = begin;
      const NodeId to = atom(at);
      if (at_ != end) fail(internal_error("a pattern was read in two ways"));
      return to;
    };
    NodeId at = from;
    for (int64_t i = 0; i < least && ok(); ++i) at = once(at);
    const NodeId to = g_.add();
    if (most < 0 && ok()) {
      const NodeId loop = g_.add();
      g_.empty(at, loop);
      g_.empty(once(loop), loop);
      g_.empty(loop, to);
    }
    for (int64_t i = least; i < most && ok(); ++i) {
      g_.empty(at, to);
      const NodeId next = g_.add();
      g_.empty(at, next);
      at = once(next);
    }
    if (most >= 0) g_.empty(at, to);
    at_ = behind;
    return to;
  }

  bool ok() {
    if (g_.too_large()) fail(unsupported("it repeats too much"));
    return error_.is_ok();
  }

  void quantifier(int64_t& least, int64_t& most) {
    if (take('*')) least = 0, most = -1;
    else if (take('+')) least = 1, most = -1;
    else if (take('?')) least = 0, most = 1;
    else if (take('{')) {
      least = whole();
      most = least;
      if (take(',')) most = more() && text_[at_] == '}' ? -1 : whole();
      if (!take('}') || (most >= 0 && most < least)) fail(invalid_argument("'{' begins no quantifier"));
    } else {
      return;
    }
    (void)take('?');  // lazy or not, the language is one
    if (more() && (text_[at_] == '*' || text_[at_] == '+' || text_[at_] == '{'))
      fail(invalid_argument("a quantifier follows a quantifier"));
  }

  int64_t whole() {
    int64_t n = -1;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), n);
    if (error != std::errc() || n < 0 || n > 10'000) fail(invalid_argument("'{' begins no quantifier"));
    at_ = static_cast<size_t>(end - text_.data());
    return n;
  }

  void skip_atom() {
    if (text_[at_] != '(') return (void)one();
    int open = 0;
    do {
      const char c = text_[at_];
      if (c == '[' || c == '\\') {
        (void)one();
        continue;
      }
      open += c == '(';
      open -= c == ')';
      ++at_;
    } while (open > 0 && more());
    if (open > 0) fail(invalid_argument("a '(' is not closed"));
  }

  NodeId atom(NodeId from) {
    if (++depth_ > 50) fail(unsupported("groups are nested deeper than 50"));
    if (!error_.is_ok()) return from;
    NodeId to;
    if (take('(')) {
      if (take('?') && !take(':')) fail(unsupported("'(?' is supported only as '(?:'"));
      to = alternatives(from);
      if (more() && text_[at_] == '$') fail(unsupported("'$' in a group is not supported"));
      if (!take(')')) fail(invalid_argument("a '(' is not closed"));
    } else {
      to = g_.add();
      character(from, to, one());
    }
    --depth_;
    return to;
  }

  /// The characters of one place of the pattern.
  CharacterSet one() {
    if (take('[')) return bracket();
    if (take('.')) return complement(kLineEnds);
    if (take('\\')) return escape(/*in_class=*/false);
    const char c = text_[at_];
    if (c == '*' || c == '+' || c == '?' || c == '{')
      fail(invalid_argument(std::string("'") + c + "' repeats nothing"));
    if (c == '^') fail(unsupported("'^' is supported only at the beginning"));
    const uint32_t point = code_point();
    return {{point, point}};
  }

  uint32_t code_point() {
    if (const auto point = take_code_point(text_, at_)) return *point;
    fail(invalid_argument("it is not UTF-8"));
    ++at_;
    return 0;
  }

  CharacterSet escape(bool in_class) {
    if (!more()) return fail(invalid_argument("it ends in a '\\'")), CharacterSet{};
    const char c = text_[at_];
    const auto is = [](uint32_t point) { return CharacterSet{{point, point}}; };
    if (static_cast<uint8_t>(c) >= 0x80) return is(code_point());
    ++at_;
    switch (c) {
      case 'd': return kDigits;
      case 'D': return complement(kDigits);
      case 'w': return kWord;
      case 'W': return complement(kWord);
      case 's': return kSpace;
      case 'S': return complement(kSpace);
      case 'n': return is('\n');
      case 'r': return is('\r');
      case 't': return is('\t');
      case 'f': return is('\f');
      case 'v': return is('\v');
      case 'x': return is(hex(2));
      case 'u': return is(hex(4));
      case 'b':
        if (in_class) return is('\b');
        break;
      default: break;
    }
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
      fail(unsupported(std::string("'\\") + c + "' is not supported"));
    return is(static_cast<uint8_t>(c));
  }

  uint32_t hex(size_t digits) {
    uint32_t n = 0;
    const char* begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, begin + std::min(digits, text_.size() - at_), n, 16);
    if (error != std::errc() || end != begin + digits)
      fail(invalid_argument("'\\x' and '\\u' take two and four hexadecimal digits"));
    else if (n >= 0xD800 && n <= 0xDFFF)
      fail(invalid_argument("'\\u' of half a surrogate pair is no character; write the character itself"));
    at_ = static_cast<size_t>(end - text_.data());
    return n;
  }

  CharacterSet class_item() {
    if (take('\\')) return escape(/*in_class=*/true);
    const uint32_t point = code_point();
    return {{point, point}};
  }

  CharacterSet bracket() {
    const bool negated = take('^');
    CharacterSet set;
    while (more() && text_[at_] != ']') {
      CharacterSet low = class_item();
      const bool range = at_ + 1 < text_.size() && text_[at_] == '-' && text_[at_ + 1] != ']';
      if (range) {
        ++at_;
        const CharacterSet high = class_item();
        if (low.size() != 1 || high.size() != 1 || low[0].first != low[0].second || high[0].first != high[0].second ||
            high[0].first < low[0].first)
          fail(invalid_argument("a range in '[...]' is none"));
        else
          low[0].second = high[0].first;
      }
      set.insert(set.end(), low.begin(), low.end());
    }
    if (!take(']')) fail(invalid_argument("a '[' is not closed"));
    return negated ? complement(set) : normal(set);
  }

  ByteGrammar& g_;
  JsonGrammar json_;
  std::string_view text_;
  const MatchIn in_;
  size_t at_ = 0;
  int depth_ = 0;
  Status error_ = Status::ok();
};

}  // namespace

Result<NodeId> add_pattern(ByteGrammar& grammar, NodeId from, std::string_view pattern) {
  return PatternReader(grammar, pattern, MatchIn::kJsonString).read(from);
}

Result<NodeId> add_regex(ByteGrammar& grammar, NodeId from, std::string_view pattern) {
  return PatternReader(grammar, pattern, MatchIn::kWholeText).read(from);
}

}  // namespace moestro::grammar
