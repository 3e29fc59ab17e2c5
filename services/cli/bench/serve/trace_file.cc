#include "services/cli/bench/serve/trace_file.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "services/cli/common/json_text.h"

namespace moestro::cli {
namespace {

constexpr int64_t kTokensMax = 10'000'000;
constexpr int64_t kBlockTokens =
    512;  ///< of a hash id; shorter prompts have shorter blocks, so that they share as much
constexpr std::string_view kAzureHeader = "TIMESTAMP,ContextTokens,GeneratedTokens";

/// A line of a trace, its time from an arbitrary beginning.
struct Recorded {
  double at_s = 0;
  int64_t prompt = 0, output = 0;
  std::vector<uint32_t> blocks;
};

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return n;
}

/// "2023-11-16 18:17:03.9799600", perhaps with a "T" and a "Z" or "+00:00": seconds since 1970.
std::optional<double> timestamp(std::string_view text) {
  for (const std::string_view zone : {"+00:00", "Z"})
    if (text.ends_with(zone)) text.remove_suffix(zone.size());
  if (text.size() < 19 || text[4] != '-' || text[7] != '-' || (text[10] != ' ' && text[10] != 'T') || text[13] != ':' ||
      text[16] != ':')
    return std::nullopt;
  int64_t part[6];
  const std::pair<size_t, size_t> places[6] = {{0, 4}, {5, 2}, {8, 2}, {11, 2}, {14, 2}, {17, 2}};
  for (size_t i = 0; i < 6; ++i) {
    const auto n = whole_number(text.substr(places[i].first, places[i].second));
    if (!n || *n < 0) return std::nullopt;
    part[i] = *n;
  }
  const std::chrono::year_month_day day{std::chrono::year(static_cast<int>(part[0])),
                                        std::chrono::month(static_cast<unsigned>(part[1])),
                                        std::chrono::day(static_cast<unsigned>(part[2]))};
  if (!day.ok() || part[3] > 23 || part[4] > 59 || part[5] > 60) return std::nullopt;
  double fraction = 0;
  if (text.size() > 19) {
    const std::string_view digits = text.substr(20);
    const auto n = whole_number(digits);
    if (text[19] != '.' || !n || *n < 0 || digits.size() > 18) return std::nullopt;
    fraction = static_cast<double>(*n) / std::pow(10.0, static_cast<double>(digits.size()));
  }
  const auto days = std::chrono::sys_days(day).time_since_epoch().count();
  return static_cast<double>(((days * 24 + part[3]) * 60 + part[4]) * 60 + part[5]) + fraction;
}

Result<Recorded> azure_line(std::string_view line) {
  const size_t first = line.find(','), second = line.find(',', first + 1);
  if (first == std::string_view::npos || second == std::string_view::npos)
    return invalid_argument("three columns are needed: " + std::string(kAzureHeader));
  const auto at = timestamp(line.substr(0, first));
  if (!at)
    return invalid_argument("'" + std::string(line.substr(0, first)) + "' is no time like 2023-11-16 18:17:03.9799600");
  const auto prompt = whole_number(line.substr(first + 1, second - first - 1)),
             output = whole_number(line.substr(second + 1));
  if (!prompt || !output) return invalid_argument("ContextTokens and GeneratedTokens must be whole numbers");
  return Recorded{*at, *prompt, *output, {}};
}

Result<Recorded> mooncake_line(std::string_view line) {
  MOESTRO_ASSIGN_OR_RETURN(const nlohmann::json value, parse_json(line));
  if (!value.is_object()) return invalid_argument("not a JSON object");
  const auto number = [&](const char* key) {
    return value.contains(key) && value[key].is_number() ? std::optional(value[key].get<double>()) : std::nullopt;
  };
  const auto at = number("timestamp"), prompt = number("input_length"), output = number("output_length");
  if (!at || !prompt || !output)
    return invalid_argument("numbers timestamp (milliseconds), input_length and output_length are needed");
  const auto length = [](double tokens) {
    return tokens >= 0 && tokens <= static_cast<double>(kTokensMax) ? static_cast<int64_t>(tokens) : -1;
  };
  if (!(*at >= 0 && *at < 1e15)) return invalid_argument("the timestamp is not within 0 and 1e15 milliseconds");
  Recorded r{*at * 1e-3, length(*prompt), length(*output), {}};
  if (!value.contains("hash_ids")) return r;
  const nlohmann::json& ids = value["hash_ids"];
  if (!ids.is_array()) return invalid_argument("hash_ids must be a list");
  for (const nlohmann::json& id : ids) {
    if (!id.is_number_unsigned()) return invalid_argument("hash_ids must be whole numbers");
    r.blocks.push_back(static_cast<uint32_t>(id.get<uint64_t>()));
  }
  return r;
}

Status check(const Recorded& r) {
  for (const int64_t tokens : {r.prompt, r.output})
    if (tokens < 0 || tokens > kTokensMax)
      return invalid_argument("a length is not within 0 and " + std::to_string(kTokensMax) + " tokens");
  return Status::ok();
}

std::string_view without_spaces_around(std::string_view line) {
  if (line.starts_with("\xef\xbb\xbf")) line.remove_prefix(3);  // a byte order mark
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ' || line.back() == '\t')) line.remove_suffix(1);
  while (!line.empty() && (line.front() == ' ' || line.front() == '\t')) line.remove_prefix(1);
  return line;
}

}  // namespace

Result<std::vector<Arrival>> read_trace(const std::filesystem::path& file, const TraceOptions& o) {
  std::ifstream in(file);
  if (!in || std::filesystem::is_directory(file)) return invalid_argument(file.string() + ": cannot be read");
  std::vector<Recorded> all;
  bool json = false, begun = false;
  int64_t number = 0;
  for (std::string text; std::getline(in, text);) {
    ++number;
    const std::string_view line = without_spaces_around(text);
    if (line.empty()) continue;
    if (!std::exchange(begun, true)) {
      json = line.front() == '{';
      if (!json && line != kAzureHeader)
        return invalid_argument(file.string() + ": line 1 is neither '" + std::string(kAzureHeader) +
                                "' nor a JSON object with timestamp, input_length and output_length");
      if (!json) continue;
    }
    auto recorded = json ? mooncake_line(line) : azure_line(line);
    Status status = recorded.status();
    if (status.is_ok()) status = check(*recorded);
    if (!status.is_ok())
      return invalid_argument(file.string() + ": line " + std::to_string(number) + ": " + status.message());
    all.push_back(std::move(*recorded));
  }
  if (all.empty()) return invalid_argument(file.string() + ": there is no request in it");
  std::stable_sort(all.begin(), all.end(), [](const Recorded& a, const Recorded& b) { return a.at_s < b.at_s; });
  if (o.count_max > 0 && all.size() > static_cast<size_t>(o.count_max)) all.resize(static_cast<size_t>(o.count_max));
  const auto tokens = [&](int64_t n) {
    return static_cast<int32_t>(
        std::clamp<double>(std::round(static_cast<double>(n) * o.lengths), 1, static_cast<double>(kTokensMax)));
  };
  std::vector<Arrival> arrivals;
  for (Recorded& r : all)
    arrivals.push_back({.due_s = (r.at_s - all.front().at_s) / o.speed,
                        .prompt_tokens = tokens(r.prompt),
                        .output_tokens = tokens(r.output),
                        .blocks = std::move(r.blocks),
                        .block_tokens = tokens(kBlockTokens)});
  return arrivals;
}

}  // namespace moestro::cli
