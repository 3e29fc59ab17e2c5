#include "orchestrator/grammar/json_grammar.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

namespace moestro::grammar {

namespace {
constexpr int kIndentMax = 20;

std::string power_of_ten(int digits, char fill) { return std::string(static_cast<size_t>(digits), fill); }
}  // namespace

NodeId JsonGrammar::white(NodeId from) {
  const NodeId to = g_.add();
  g_.empty(from, to);
  g_.byte(from, to, ' ', ' ');
  NodeId line = g_.add();
  g_.byte(from, line, '\n', '\n');
  for (int i = 0; i < kIndentMax; ++i) {
    g_.empty(line, to);
    const NodeId next = g_.add();
    g_.byte(line, next, ' ', ' ');
    g_.byte(line, next, '\t', '\t');
    line = next;
  }
  g_.empty(line, to);
  return to;
}

void JsonGrammar::character(NodeId from, NodeId to, std::span<const CodePoints> ranges) {
  const auto escaped = [&](std::string_view text) { g_.empty(g_.literal(from, text), to); };
  for (const auto& [low, high] : ranges) {
    for (uint32_t c = low; c <= std::min(high, 0x1Fu); ++c) {
      constexpr std::string_view kShort = "\b\f\n\r\t", kLetters = "bfnrt";
      constexpr std::string_view kHex = "0123456789abcdef";
      if (const size_t at = kShort.find(static_cast<char>(c)); at != std::string_view::npos)
        escaped(std::string("\\") + kLetters[at]);
      else
        escaped(std::string("\\u00") + kHex[c >> 4] + kHex[c & 15]);
    }
    uint32_t next = std::max(low, 0x20u);  // what needs no escape, in the gaps between what does
    for (const uint32_t special : {uint32_t{'"'}, uint32_t{'\\'}}) {
      if (special < next || special > high) continue;
      if (special > next) g_.code_points(from, to, {next, special - 1});
      escaped(special == '"' ? "\\\"" : "\\\\");
      next = special + 1;
    }
    if (next <= high) g_.code_points(from, to, {next, high});
  }
}

NodeId JsonGrammar::string(NodeId from, int64_t least, std::optional<int64_t> most) {
  // One character, with every escape that JSON has; surrogates are written as the characters that they stand for.
  const auto any = [this](NodeId a, NodeId b) {
    g_.code_points(a, b, {0x20, '"' - 1});
    g_.code_points(a, b, {'"' + 1, '\\' - 1});
    g_.code_points(a, b, {'\\' + 1, kCodePointMax});
    const NodeId escape = g_.literal(a, "\\");
    for (const char c : std::string_view("\"\\/bfnrt"))
      g_.byte(escape, b, static_cast<uint8_t>(c), static_cast<uint8_t>(c));
    const NodeId first = g_.literal(escape, "u"), second = g_.add(), after_d = g_.add(), third = g_.add(),
                 fourth = g_.add();
    const auto hex = [this](NodeId x, NodeId y, bool with_d) {
      g_.byte(x, y, '0', '9');
      for (const char base : {'a', 'A'}) {
        g_.byte(x, y, static_cast<uint8_t>(base), static_cast<uint8_t>(base + 2));
        g_.byte(x, y, static_cast<uint8_t>(base + 4), static_cast<uint8_t>(base + 5));
        if (with_d) g_.byte(x, y, static_cast<uint8_t>(base + 3), static_cast<uint8_t>(base + 3));
      }
    };
    hex(first, second, false);
    g_.byte(first, after_d, 'd', 'd');
    g_.byte(first, after_d, 'D', 'D');
    g_.byte(after_d, third, '0', '7');
    hex(second, third, true);
    hex(third, fourth, true);
    hex(fourth, b, true);
  };
  NodeId at = g_.literal(from, "\"");
  for (int64_t i = 0; i < least && !g_.too_large(); ++i) {
    const NodeId next = g_.add();
    any(at, next);
    at = next;
  }
  const NodeId end = g_.add();
  if (!most) {
    any(at, at);
    g_.empty(at, end);
  }
  for (int64_t i = least; most && i < *most && !g_.too_large(); ++i) {
    g_.empty(at, end);
    const NodeId next = g_.add();
    any(at, next);
    at = next;
  }
  if (most) g_.empty(at, end);
  return g_.literal(end, "\"");
}

namespace {
/// The second byte of a character that begins with `lead`, and how many follow the first.
struct CharacterBegin {
  int left;
  uint8_t low = 0x80, high = 0xBF;
};
CharacterBegin begin_of(uint8_t lead) {
  if (lead < 0x80) return {0};
  if (lead < 0xE0) return {1};
  if (lead < 0xF0)
    return {2, static_cast<uint8_t>(lead == 0xE0 ? 0xA0 : 0x80), static_cast<uint8_t>(lead == 0xED ? 0x9F : 0xBF)};
  return {3, static_cast<uint8_t>(lead == 0xF0 ? 0x90 : 0x80), static_cast<uint8_t>(lead == 0xF4 ? 0x8F : 0xBF)};
}

/// A trie of names by bytes: where it is left, a key is none of them.
struct NameSpot {
  std::map<uint8_t, size_t> next = {};
  bool name = false;
  NodeId node = 0;
  CharacterBegin rest{0};  ///< bytes that its character lacks
};

std::vector<NameSpot> trie_of(const std::vector<std::string>& names, NodeId begin, ByteGrammar& g) {
  std::vector<NameSpot> trie(1);
  trie[0].node = begin;
  for (const std::string& name : names) {
    const bool escaped = std::any_of(name.begin(), name.end(),
                                     [](char c) { return static_cast<uint8_t>(c) < 0x20 || c == '"' || c == '\\'; });
    if (escaped) continue;  // no key without escapes is this name
    size_t at = 0;
    for (const char c : name) {
      const auto byte = static_cast<uint8_t>(c);
      if (!trie[at].next.contains(byte)) {
        trie[at].next[byte] = trie.size();
        const int left = trie[at].rest.left;
        trie.push_back({.node = g.add(), .rest = left > 0 ? CharacterBegin{left - 1} : begin_of(byte)});
      }
      at = trie[at].next[byte];
    }
    trie[at].name = true;
  }
  return trie;
}
}  // namespace

NodeId JsonGrammar::other_key(NodeId from, const std::vector<std::string>& names) {
  const NodeId begin = g_.literal(from, "\""), free = g_.add(), to = g_.add();
  g_.code_points(free, free, {0x20, '"' - 1});
  g_.code_points(free, free, {'"' + 1, '\\' - 1});
  g_.code_points(free, free, {'\\' + 1, kCodePointMax});
  g_.byte(free, to, '"', '"');
  const std::array<NodeId, 3> lacking{free, g_.add(), g_.add()};  // by the bytes that a character still lacks
  for (size_t i = 1; i < lacking.size(); ++i) g_.byte(lacking[i], lacking[i - 1], 0x80, 0xBF);
  std::map<std::tuple<int, uint8_t, uint8_t>, NodeId> second_bytes;
  const std::vector<NameSpot> trie = trie_of(names, begin, g_);
  for (const NameSpot& spot : trie) {
    for (const auto& [byte, next] : spot.next) g_.byte(spot.node, trie[next].node, byte, byte);
    const auto leave = [&](uint8_t byte, NodeId where) {
      if (!spot.next.contains(byte)) g_.byte(spot.node, where, byte, byte);
    };
    if (spot.rest.left > 0) {  // inside a character of a name: another byte makes it another one
      for (int byte = spot.rest.low; byte <= spot.rest.high; ++byte)
        leave(static_cast<uint8_t>(byte), lacking[static_cast<size_t>(spot.rest.left - 1)]);
      continue;
    }
    if (!spot.name) g_.byte(spot.node, to, '"', '"');
    for (int byte = 0x20; byte <= 0xF4; ++byte) {
      if (byte == '"' || byte == '\\' || (byte >= 0x80 && byte < 0xC2)) continue;
      const CharacterBegin rest = begin_of(static_cast<uint8_t>(byte));
      if (rest.left == 0) {
        leave(static_cast<uint8_t>(byte), free);
        continue;
      }
      const auto [at, fresh] = second_bytes.try_emplace({rest.left, rest.low, rest.high}, 0);
      if (fresh) {
        at->second = g_.add();
        g_.byte(at->second, lacking[static_cast<size_t>(rest.left - 1)], rest.low, rest.high);
      }
      leave(static_cast<uint8_t>(byte), at->second);
    }
  }
  return to;
}

NodeId JsonGrammar::digits(NodeId from, int least, int most) {
  const NodeId to = g_.add();
  for (int i = 0; i < most; ++i) {
    if (i >= least) g_.empty(from, to);
    const NodeId next = g_.add();
    g_.byte(from, next, '0', '9');
    from = next;
  }
  g_.empty(from, to);
  return to;
}

/// Numbers of as many digits as both bounds have.
void JsonGrammar::between(NodeId from, NodeId to, const std::string& low, const std::string& high) {
  const bool all = low.find_first_not_of('0') == std::string::npos && high.find_first_not_of('9') == std::string::npos;
  if (all) return g_.empty(digits(from, static_cast<int>(low.size()), static_cast<int>(low.size())), to);
  const auto tail = static_cast<int>(low.size()) - 1;
  const auto first_low = static_cast<uint8_t>(low[0]), first_high = static_cast<uint8_t>(high[0]);
  const auto one = [&](uint8_t digit, const std::string& tail_low, const std::string& tail_high) {
    const NodeId next = g_.add();
    g_.byte(from, next, digit, digit);
    between(next, to, tail_low, tail_high);
  };
  if (first_low == first_high) return one(first_low, low.substr(1), high.substr(1));
  one(first_low, low.substr(1), power_of_ten(tail, '9'));
  one(first_high, power_of_ten(tail, '0'), high.substr(1));
  if (first_low + 1 >= first_high) return;
  const NodeId next = g_.add();
  g_.byte(from, next, static_cast<uint8_t>(first_low + 1), static_cast<uint8_t>(first_high - 1));
  g_.empty(digits(next, tail, tail), to);
}

void JsonGrammar::not_negative(NodeId from, NodeId to, int64_t least, int64_t most) {
  for (int64_t low = least;;) {  // those of one length after another
    const std::string first = std::to_string(low), nines = power_of_ten(static_cast<int>(first.size()), '9');
    const int64_t high = nines.size() < std::to_string(most).size() ? std::stoll(nines) : most;
    between(from, to, first, std::to_string(high));
    if (high == most) return;
    low = high + 1;
  }
}

NodeId JsonGrammar::integer(NodeId from, int64_t least, int64_t most) {
  const NodeId to = g_.add();
  if (most >= 0) not_negative(from, to, std::max<int64_t>(least, 0), most);
  if (least < 0) not_negative(g_.literal(from, "-"), to, std::max<int64_t>(1, -std::min<int64_t>(most, -1)), -least);
  return to;
}

NodeId JsonGrammar::number(NodeId from) {
  const NodeId to = g_.add(), positive = g_.add(), whole = g_.add();
  g_.empty(from, positive);
  g_.byte(from, positive, '-', '-');
  g_.byte(positive, whole, '0', '0');
  const NodeId first = g_.add();
  g_.byte(positive, first, '1', '9');
  g_.empty(digits(first, 0, 14), whole);
  const NodeId fraction = g_.add();
  g_.empty(whole, fraction);
  g_.empty(digits(g_.literal(whole, "."), 1, 15), fraction);
  g_.empty(fraction, to);
  const NodeId exponent = g_.add(), sign = g_.add();
  g_.byte(fraction, exponent, 'e', 'e');
  g_.byte(fraction, exponent, 'E', 'E');
  g_.empty(exponent, sign);
  g_.byte(exponent, sign, '+', '+');
  g_.byte(exponent, sign, '-', '-');
  g_.empty(digits(sign, 1, 2), to);
  return to;
}

NodeId JsonGrammar::object_of(NodeId from, NodeId value) {
  const NodeId to = g_.add(), open = white(g_.literal(from, "{")), entry = g_.add();
  g_.empty(open, entry);
  const NodeId colon = white(g_.literal(string(entry), ":")), after = g_.add();
  g_.call(colon, value, after);
  g_.empty(white(g_.literal(after, ",")), entry);
  g_.byte(white(after), to, '}', '}');
  g_.byte(open, to, '}', '}');
  return to;
}

NodeId JsonGrammar::make_value() {
  const NodeId begin = g_.add(), end = g_.add();
  g_.end(end);
  for (const char* word : {"true", "false", "null"}) g_.empty(g_.literal(begin, word), end);
  g_.empty(string(begin), end);
  g_.empty(number(begin), end);
  g_.empty(object_of(begin, begin), end);
  const NodeId open = white(g_.literal(begin, "[")), item = g_.add(), after = g_.add();
  g_.empty(open, item);
  g_.call(item, begin, after);
  g_.empty(white(g_.literal(after, ",")), item);
  g_.byte(white(after), end, ']', ']');
  g_.byte(open, end, ']', ']');
  return begin;
}

NodeId JsonGrammar::value(NodeId from) {
  if (!value_) value_ = make_value();
  const NodeId to = g_.add();
  g_.call(from, *value_, to);
  return to;
}

NodeId JsonGrammar::object(NodeId from) {
  if (!value_) value_ = make_value();
  return object_of(from, *value_);
}

}  // namespace moestro::grammar
