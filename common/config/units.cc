#include "common/config/units.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace moestro::config {
namespace {

struct Unit {
  std::string_view name;
  uint64_t factor;
};

constexpr uint64_t kKi = 1024, kMi = kKi * kKi, kGi = kKi * kMi, kTi = kKi * kGi;
constexpr std::array<Unit, 14> kSizeUnits{{{"", 1},
                                           {"B", 1},
                                           {"K", kKi},
                                           {"KiB", kKi},
                                           {"KB", 1000},
                                           {"M", kMi},
                                           {"MiB", kMi},
                                           {"MB", 1000'000},
                                           {"G", kGi},
                                           {"GiB", kGi},
                                           {"GB", 1000'000'000},
                                           {"T", kTi},
                                           {"TiB", kTi},
                                           {"TB", 1000'000'000'000}}};
constexpr std::array<Unit, 4> kDurationUnits{{{"ms", 1}, {"s", 1000}, {"min", 60'000}, {"h", 3600'000}}};
constexpr std::array<Unit, 4> kFineDurationUnits{{{"ns", 1}, {"us", 1000}, {"ms", 1000'000}, {"s", 1000'000'000}}};

/// A number of digits with at most one dot, and what follows it. No sign, no exponent, no spaces but those
/// before the unit.
bool split_number(std::string_view text, double& number, std::string_view& unit) {
  const size_t end = text.find_first_not_of("0123456789.");
  std::string_view digits = text.substr(0, end);
  unit = end == std::string_view::npos ? std::string_view{} : text.substr(end);
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  if (digits.empty() || digits.front() == '.' || digits.back() == '.') return false;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return error == std::errc{} && stop == digits.data() + digits.size();
}

/// value * factor if that is finite and fits 63 bits. Whole numbers are multiplied exactly.
bool scale(std::string_view text, double number, uint64_t factor, uint64_t& result) {
  constexpr uint64_t kMax = INT64_MAX;
  if (text.find('.') == std::string_view::npos) {
    uint64_t whole = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), whole);
    if (parsed.ec != std::errc{} || whole > kMax / factor) return false;
    result = whole * factor;
    return true;
  }
  const double product = number * static_cast<double>(factor);
  if (!(product < 9.2e18)) return false;
  result = static_cast<uint64_t>(product);
  return true;
}

template <size_t N>
Result<uint64_t> parse_with(std::string_view text, const std::array<Unit, N>& units, const std::string& how) {
  double number = 0;
  std::string_view unit;
  const std::string quoted = "'" + std::string(text) + "'";
  if (!split_number(text, number, unit)) return invalid_argument(quoted + how);
  for (const Unit& known : units) {
    if (known.name != unit) continue;
    uint64_t result = 0;
    if (!scale(text, number, known.factor, result)) return invalid_argument(quoted + " is too large");
    return result;
  }
  return invalid_argument(quoted + how);
}

}  // namespace

Result<uint64_t> parse_size(std::string_view text) {
  return parse_with(text, kSizeUnits, " is not a size: write it as 512MiB, 4GiB or 4G");
}

std::string format_size(uint64_t bytes) {
  for (const Unit& unit : {Unit{"TiB", kTi}, Unit{"GiB", kGi}, Unit{"MiB", kMi}, Unit{"KiB", kKi}})
    if (bytes >= unit.factor && bytes % unit.factor == 0)
      return std::to_string(bytes / unit.factor) + std::string(unit.name);
  return std::to_string(bytes);
}

std::string readable_size(uint64_t bytes) {
  for (const Unit& unit : {Unit{"TiB", kTi}, Unit{"GiB", kGi}, Unit{"MiB", kMi}, Unit{"KiB", kKi}}) {
    if (bytes < unit.factor) continue;
    const double value = static_cast<double>(bytes) / static_cast<double>(unit.factor);
    char text[32];
    std::snprintf(text, sizeof text, "%.*f %s",
                  value < 10    ? 2
                  : value < 100 ? 1
                                : 0,
                  value, unit.name.data());
    return text;
  }
  return std::to_string(bytes) + " B";
}

Result<std::chrono::milliseconds> parse_duration(std::string_view text) {
  MOESTRO_ASSIGN_OR_RETURN(
      const uint64_t ms,
      parse_with(text, kDurationUnits, " is not a duration: write it as 250ms, 30s, 5min or 2h"));
  return std::chrono::milliseconds(static_cast<int64_t>(ms));
}

std::string format_duration(std::chrono::milliseconds duration) {
  const auto ms = static_cast<uint64_t>(duration.count());
  for (size_t i = kDurationUnits.size(); i-- > 1;) {
    const Unit& unit = kDurationUnits[i];
    if (ms >= unit.factor && ms % unit.factor == 0)
      return std::to_string(ms / unit.factor) + std::string(unit.name);
  }
  return std::to_string(ms) + "ms";
}

Result<std::chrono::nanoseconds> parse_fine_duration(std::string_view text) {
  if (text == "0") return std::chrono::nanoseconds(0);
  MOESTRO_ASSIGN_OR_RETURN(const uint64_t ns, parse_with(text, kFineDurationUnits,
                                                         " is not a duration: write it as 800ns, 10us, 1.5ms or 1s"));
  return std::chrono::nanoseconds(static_cast<int64_t>(ns));
}

Result<uint64_t> parse_rate(std::string_view text) {
  return parse_with(text.ends_with("/s") ? text.substr(0, text.size() - 2) : text, kSizeUnits,
                    " is not a rate: write it as 16GB/s or 700MiB/s");
}

}  // namespace moestro::config
