#include "services/cli/replay/host_options.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/config/units.h"
#include "common/policy/make_policy.h"
#include "common/settings.h"
#include "store/machine/placement.h"

namespace moestro::cli {
namespace {

constexpr uint64_t kExpertBytesMax = uint64_t{1} << 40;
constexpr double kReadSecondsMax = 3600;  ///< so that a replay ends before its clock does

/// RATE[,latency=T]
Status parse_drive(std::string_view text, HostCase& host) {
  const std::string_view rate = text.substr(0, text.find(','));
  MOESTRO_ASSIGN_OR_RETURN(const uint64_t bytes, config::parse_rate(rate));
  if (bytes == 0) return invalid_argument("a drive of 0 bytes a second reads nothing: give its rate, such as 2GiB/s");
  host.drive_bytes_per_s = static_cast<double>(bytes);
  if (rate.size() == text.size()) return Status::ok();
  const Setting latency{"latency", [&host](std::string_view value) -> Status {
                          MOESTRO_ASSIGN_OR_RETURN(host.drive_latency, config::parse_fine_duration(value));
                          return Status::ok();
                        }};
  return read_settings(text.substr(rate.size() + 1), {&latency, 1},
                       "not latency=T: write it as 2GiB/s,latency=100us");
}

/// Experts that --host has room for. A store rounds each up to whole pages.
Result<int64_t> experts_held(const std::string& text, int64_t experts, uint64_t expert_bytes) {
  if (text.ends_with('%')) {
    const auto share = parse_percent(text);
    if (!share) return invalid_argument("a share of the experts is more than 0% and at most 100%, as in 50%");
    return static_cast<int64_t>(std::round(*share * static_cast<double>(experts)));
  }
  MOESTRO_ASSIGN_OR_RETURN(const uint64_t bytes, config::parse_size(text));
  const uint64_t held = bytes / store::Placement::rounded(expert_bytes);
  return static_cast<int64_t>(std::min(held, static_cast<uint64_t>(experts)));
}

}  // namespace

Result<std::optional<HostCase>> read_host(const ReplayOptions& o, const tier::Routes& routes, uint64_t expert_bytes) {
  if (o.drive.empty()) {
    for (const auto& [flag, given] : {std::pair("--host", &o.host), std::pair("--host-cache", &o.host_cache)})
      if (!given->empty())
        return invalid_argument(std::string(flag) + " " + *given +
                                " needs --drive RATE: without a drive host memory has every expert");
    return std::optional<HostCase>();
  }
  HostCase host;
  MOESTRO_RETURN_IF_ERROR(parse_drive(o.drive, host).with_context("--drive " + o.drive));
  if (o.host.empty())
    return invalid_argument(
        "--drive has no effect while host memory has every expert: say how much it has, as in --host 16GiB or --host "
        "50%");
  if (o.expert_bytes.empty())
    return invalid_argument("--drive needs --expert-bytes: a trace does not say how large experts are");
  if (expert_bytes > kExpertBytesMax)
    return invalid_argument("--expert-bytes " + o.expert_bytes + ": at most 1TiB with --drive");
  const double seconds = static_cast<double>(expert_bytes) / host.drive_bytes_per_s +
                         std::chrono::duration<double>(host.drive_latency).count();
  if (seconds > kReadSecondsMax)
    return invalid_argument("--drive " + o.drive + ": reading one expert of " + config::readable_size(expert_bytes) +
                            " would take more than an hour: give bytes a second, such as 2GiB/s");
  const int64_t experts = int64_t{routes.layers} * routes.experts;
  auto held = experts_held(o.host, experts, expert_bytes);
  if (!held.is_ok()) return held.status().with_context("--host " + o.host);
  if (*held >= experts)
    return invalid_argument("--host " + o.host + " has room for all " + std::to_string(experts) +
                            " experts, so --drive has no effect: leave out both, or give it less");
  if (*held < routes.top_k)
    return invalid_argument("--host " + o.host + " has room for " + std::to_string(*held) + " experts of " +
                            config::readable_size(expert_bytes) + ", and a token uses " +
                            std::to_string(routes.top_k) + " of a layer at once: give it at least " +
                            config::readable_size(store::Placement::rounded(expert_bytes) *
                                                  static_cast<uint64_t>(routes.top_k)));
  host.experts = static_cast<int32_t>(*held);
  if (!o.host_cache.empty()) host.cache = o.host_cache;
  MOESTRO_RETURN_IF_ERROR(policy::make_policy(host.cache, 1).status().with_context("--host-cache"));
  return std::optional(host);
}

Status check_no_device_flags(const ReplayOptions& o) {
  const ReplayOptions none;
  const tier::PrefetchOptions &how = o.how, &usual = none.how;
  const std::pair<const char*, bool> flags[] = {
      {"--cache", o.cache != none.cache},
      {"--link", !o.link.empty()},
      {"--copy-ratio", o.copy_ratio != none.copy_ratio},
      {"--no-keep", !o.keep},
      {"--horizon", how.horizon != usual.horizon},
      {"--choices", how.choices != usual.choices},
      {"--no-proximity", !how.proximity},
      {"--no-budget", !how.budget},
      {"--no-guard", !how.guard},
      {"--no-patience", !how.patience},
      {"--no-thrift", !how.thrift},
      {"--no-calibrate", !how.calibrate}};
  for (const auto& [flag, given] : flags)
    if (given)
      return invalid_argument(std::string(flag) + " is of a device: give it --slots or --vram, or leave " + flag +
                              " out to replay a CPU (its cache is --host-cache)");
  return Status::ok();
}

}  // namespace moestro::cli
