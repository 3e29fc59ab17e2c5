#include "common/config/mixed_spec.h"

#include <fmt/format.h>

#include <charconv>

#include "common/settings.h"

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

Result<MixedOptions> parse_settings(std::string_view text) {
  MixedOptions options;
  const std::string_view low = text.substr(0, text.find(','));
  MOESTRO_ASSIGN_OR_RETURN(options.low, parse_dtype(low));
  const auto into = [](double& field) {
    return [&field](std::string_view value) -> Status {
      MOESTRO_ASSIGN_OR_RETURN(field, parse_part_of_one(value));
      return Status::ok();
    };
  };
  const Setting settings[] = {{"t1", into(options.t1)}, {"t2", into(options.t2)}, {"share", into(options.share)}};
  if (low.size() < text.size())
    MOESTRO_RETURN_IF_ERROR(
        read_settings(text.substr(low.size() + 1), settings, "none of t1=SCORE, t2=SCORE and share=SHARE"));
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
