#include "common/config/mixed_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace moestro::config {
namespace {

constexpr std::string_view kForm = "off, or LOW[,t1=SCORE][,t2=SCORE][,share=SHARE], as in int4,t1=0.6,t2=0.9";

/// NaN is no number from 0 to 1.
Result<double> parse_part_of_one(std::string_view text) {
  double value = 0;
  const auto [stopped, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || stopped != text.data() + text.size() || !(value >= 0 && value <= 1))
    return invalid_argument("'" + std::string(text) + "' is not a number from 0 to 1");
  return value;
}

Status set_one(std::string_view one, MixedOptions& options) {
  const size_t equals = one.find('=');
  const std::string_view key = one.substr(0, equals);
  double* const field = key == "t1" ? &options.t1 : key == "t2" ? &options.t2 : key == "share" ? &options.share
                                                                                               : nullptr;
  if (equals == std::string_view::npos || field == nullptr)
    return invalid_argument("'" + std::string(one) + "' is none of t1=SCORE, t2=SCORE and share=SHARE");
  auto value = parse_part_of_one(one.substr(equals + 1));
  if (!value.is_ok()) return value.status().with_context(std::string(key));
  *field = *value;
  return Status::ok();
}

Result<MixedOptions> parse_settings(std::string_view text) {
  MixedOptions options;
  const std::string_view low = text.substr(0, text.find(','));
  MOESTRO_ASSIGN_OR_RETURN(options.low, parse_dtype(low));
  for (std::string_view rest = text.substr(low.size()); !rest.empty();) {
    rest.remove_prefix(1);
    const std::string_view one = rest.substr(0, rest.find(','));
    MOESTRO_RETURN_IF_ERROR(set_one(one, options));
    rest.remove_prefix(one.size());
  }
  if (options.t1 > options.t2)
    return invalid_argument(fmt::format("t1={} is above t2={}: what may be left out matters less than what may be low",
                                        options.t1, options.t2));
  if (options.share <= 0 || options.share >= 1)
    return invalid_argument(fmt::format("share={} leaves no room for one of the two copies", options.share));
  return options;
}

}  // namespace

Result<std::optional<MixedOptions>> parse_mixed(std::string_view text) {
  if (text == "off") return std::optional<MixedOptions>();
  auto options = parse_settings(text);
  if (!options.is_ok())
    return invalid_argument("'" + std::string(text) + "': " + options.status().message() + "; it is " +
                            std::string(kForm));
  return std::optional(*options);
}

}  // namespace moestro::config
