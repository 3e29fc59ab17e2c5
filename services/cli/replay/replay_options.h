#pragma once
// The flags of `moestro replay`, as given and as settings.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "services/cli/replay/replay_run.h"

namespace moestro::cli {

struct ReplayOptions {
  std::vector<std::string> traces;
  std::string slots;         ///< empty, and no vram: kSlots, or with a drive no device at all
  std::string drive, host;   ///< empty: host memory has every expert
  std::string host_cache;    ///< empty: a store's default
  std::string mixed = "off";  ///< config::parse_mixed
  std::string vram, expert_bytes, attention_bytes, hardware, link;
  std::string cache = "auto", predict = "auto";
  double copy_ratio = 1;     ///< time of one copy / time of one expert, if no hardware is named
  double cpu_ratio = 0;      ///< ReplayTimes::cpu_ratio
  double expert_ms = 1;      ///< time of one expert, and of a layer's attention, if no hardware is named
  double split = 0.5;
  int64_t batch = 1, chunk = 512;
  std::string order;                 ///< empty: as in the trace; first-come or overlap: mixed
  int64_t waiting = 64, passes = 16;  ///< tier::OverlapOrder
  bool keep = true, prefetch = true;
  tier::PrefetchOptions how{};
  std::string restart;       ///< empty, checkpoint or nothing: ReplayCase::Start
  bool sweep = false, json = false;
};

inline constexpr const char* kSlots = "25%";  ///< of a device, if nothing else is said

/// Slots of `text`: "32" or "25%" of the experts. kInvalidArgument.
Result<int32_t> parse_slots(const std::string& text, int64_t experts);

/// Of `what.setup.slots`, which are memory for full copies alone: the rooms of both kinds. Nothing without
/// `what.setup.mixed`. kInvalidArgument: low copies that are not smaller, or leave no room for a full one.
Status share_slots(ReplayCase& what, const tier::Routes& routes);

/// "25%" as 0.25; nullopt: it is not a percentage above 0 and at most 100.
std::optional<double> parse_percent(std::string_view text);

/// The setting from flags and hardware. kInvalidArgument names the flag.
Result<ReplayCase> read_case(const ReplayOptions& options, const tier::Routes& routes);

/// What a replay without a device is compared with takes slots and link for host memory and drive (ReplayCase::cpu).
/// After a change of them: sets the host from them.
void set_host_from_setup(ReplayCase& what);

/// `setup` with a link on which copying one expert takes `ratio` times as long as computing it.
tier::ReplaySetup with_copy_ratio(tier::ReplaySetup setup, double ratio);
double copy_ratio_of(const tier::ReplaySetup& setup);

}  // namespace moestro::cli
