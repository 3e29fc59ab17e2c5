#include "orchestrator/grammar/number_range.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <string>
#include <vector>

namespace moestro::grammar {
namespace {

/// Numbers without sign between two bounds, whose own signs do not count, as an automaton over digits: as long as a
/// number's digits are those of a bound, the next digit is bound by the bound's.
class Magnitudes {
 public:
  Magnitudes(ByteGrammar& g, const NumberRange& range, std::optional<NumberBound> low, std::optional<NumberBound> high,
             NodeId to)
      : g_(g), range_(range), low_(std::move(low)), high_(std::move(high)), to_(to) {}

  /// False: there are none, and nothing was added to `from`.
  bool add(NodeId from) {
    bool any = false;
    for (int length = 1; length <= range_.digits; ++length) {
      const auto size = static_cast<size_t>(length);
      if ((low_ && size < low_->whole.size()) || (high_ && size > high_->whole.size())) continue;
      const auto begin = node({length, 0, low_ && size == low_->whole.size(), high_ && size == high_->whole.size(), 0});
      if (!begin) continue;
      g_.empty(from, *begin);
      any = true;
    }
    return any;
  }

 private:
  struct Spot {
    int length;            ///< digits before the point
    int said;              ///< digits so far
    bool at_low, at_high;  ///< they are the bound's
    int64_t rest;          ///< of a division by the divisor
    auto operator<=>(const Spot&) const = default;
  };

  static char digit(const NumberBound& bound, const Spot& s) {
    const auto said = static_cast<size_t>(s.said), length = static_cast<size_t>(s.length);
    if (said < length) return bound.whole[said];
    return said - length < bound.fraction.size() ? bound.fraction[said - length] : '0';
  }
  /// The number is the bound if nothing more is said.
  static bool is_bound(const NumberBound& bound, const Spot& s) {
    return bound.fraction.size() <= static_cast<size_t>(s.said - s.length);
  }
  bool may_end(const Spot& s) const {
    if (s.said < s.length || s.rest != 0) return false;
    if (s.at_low && (!is_bound(*low_, s) || low_->exclusive)) return false;
    return !(s.at_high && is_bound(*high_, s) && high_->exclusive);
  }

  /// The node of a spot from which a number can come to its end.
  std::optional<NodeId> node(const Spot& s) {
    // What can follow in a whole number away from the bounds depends on how many digits are left, not on its length.
    if (range_.fraction_digits == 0 && s.said > 1 && !s.at_low && !s.at_high)
      return node({s.length - s.said + 1, 1, false, false, s.rest});
    if (const auto known = nodes_.find(s); known != nodes_.end()) return known->second;
    std::vector<std::pair<char, NodeId>> ways;
    const int fraction_max = std::min(range_.fraction_digits, range_.digits - s.length);
    for (char c = s.said == 0 && s.length > 1 ? '1' : '0'; c <= '9' && s.said < s.length + fraction_max; ++c) {
      const char low = s.at_low ? digit(*low_, s) : '0', high = s.at_high ? digit(*high_, s) : '9';
      if (c < low || c > high) continue;
      const auto next = node({s.length, s.said + 1, s.at_low && c == low, s.at_high && c == high,
                              (s.rest * 10 + (c - '0')) % range_.divisor});
      if (next) ways.emplace_back(c, *next);
    }
    const bool ends = may_end(s);
    if (!ends && ways.empty()) return nodes_[s] = std::nullopt;
    const NodeId here = g_.add();
    if (ends) g_.empty(here, to_);
    NodeId before_digit = here;
    if (s.said == s.length && !ways.empty()) g_.byte(here, before_digit = g_.add(), '.', '.');
    for (size_t i = 0; i < ways.size();) {  // neighbouring digits that lead to one node are one edge
      size_t end = i + 1;
      while (end < ways.size() && ways[end].second == ways[i].second && ways[end].first == ways[end - 1].first + 1)
        ++end;
      g_.byte(before_digit, ways[i].second, static_cast<uint8_t>(ways[i].first),
              static_cast<uint8_t>(ways[end - 1].first));
      i = end;
    }
    return nodes_[s] = here;
  }

  ByteGrammar& g_;
  const NumberRange& range_;
  const std::optional<NumberBound> low_, high_;
  const NodeId to_;
  std::map<Spot, std::optional<NodeId>> nodes_;
};

}  // namespace

NumberBound NumberBound::of(double value, bool exclusive) {
  std::array<char, 1200> text{};  // the smallest doubles have 1074 digits behind the point
  const auto written =
      std::to_chars(text.data(), text.data() + text.size(), std::fabs(value), std::chars_format::fixed);
  const std::string_view all(text.data(), written.ptr);
  const size_t point = std::min(all.find('.'), all.size());
  NumberBound bound{value < 0, std::string(all.substr(0, point)),
                    std::string(all.substr(std::min(point + 1, all.size()))), exclusive};
  bound.fraction.erase(bound.fraction.find_last_not_of('0') + 1);
  return bound;
}

NumberBound NumberBound::of(int64_t value) {
  const std::string text = std::to_string(value);
  return {value < 0, text.substr(value < 0 ? 1 : 0)};
}

std::optional<NodeId> add_number(ByteGrammar& grammar, NodeId from, const NumberRange& range) {
  const auto &least = range.least, &most = range.most;
  const NodeId to = grammar.add();
  bool any = false;
  if (!most || !most->negative)
    any = Magnitudes(grammar, range, least && !least->negative ? least : std::nullopt, most, to).add(from);
  if (!least || least->negative) {
    const auto nearer = most && most->negative ? most : NumberBound{.exclusive = true};  // 0 has no sign
    const NodeId minus = grammar.add();
    if (Magnitudes(grammar, range, nearer, least, to).add(minus)) {
      grammar.byte(from, minus, '-', '-');
      any = true;
    }
  }
  return any ? std::optional(to) : std::nullopt;
}

}  // namespace moestro::grammar
