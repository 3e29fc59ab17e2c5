#pragma once
// What the memory tiers of a Moestro server did during a load: /v1/moestro/status after the load, less that before.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "services/cli/common/server_options.h"

namespace moestro::cli {

/// Counters of a server, or what was added to them.
struct TierUse {
  struct Experts {
    uint64_t hits = 0, misses = 0;
  };
  Experts memory = {};                       ///< of workers that compute in host memory: found there, or not
  std::optional<Experts> device = {};        ///< of workers whose device has a memory of its own
  uint64_t link_bytes = 0;                   ///< copied to those devices
  std::optional<uint64_t> drive_bytes = {};  ///< read by the store; nothing while no store answers
  double step_s = 0, stall_s = 0;            ///< of all workers; stalls are the part that waited for experts
  double uptime_s = 0;
};

/// Nothing if this is not a Moestro server's status.
std::optional<TierUse> read_tier_use(std::string_view status);

/// Asks the server. Takes longer than a second if it has a store, because its figures of the store are up to a second
/// old. Nothing if it does not answer, or is another program.
std::optional<TierUse> ask_tier_use(const Server& server);

/// What was added in between. Nothing if one of them is missing, or the server was started again.
std::optional<TierUse> added(const std::optional<TierUse>& before, const std::optional<TierUse>& after);

/// The members are named as in the status.
nlohmann::ordered_json tier_use_json(const TierUse& use);
std::string tier_use_text(const TierUse& use);

}  // namespace moestro::cli
