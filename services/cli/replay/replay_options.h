#pragma once
// The flags of `moestro replay`, as given and as settings.

#include <optional>
#include <string>
#include <vector>

#include "services/cli/replay/replay_run.h"

namespace moestro::cli {

struct ReplayOptions {
  std::vector<std::string> traces;
  std::string slots = "25%";
  std::string vram, expert_bytes, attention_bytes, hardware, link;
  std::string cache = "auto", predict = "auto";
  double copy_ratio = 1;     ///< time of one copy / time of one expert, if no hardware is named
  double expert_ms = 1;      ///< time of one expert, and of a layer's attention, if no hardware is named
  double split = 0.5;
  int64_t batch = 1, chunk = 512;
  bool keep = true, prefetch = true;
  tier::PrefetchOptions how{};
  std::string restart;       ///< empty, checkpoint or nothing: ReplayCase::Start
  bool sweep = false, json = false;
};

/// Slots of `text`: "32" or "25%" of the experts. kInvalidArgument.
Result<int32_t> parse_slots(const std::string& text, int64_t experts);

/// The setting from flags and hardware. kInvalidArgument names the flag.
Result<ReplayCase> read_case(const ReplayOptions& options, const tier::Routes& routes);

/// `setup` with a link on which copying one expert takes `ratio` times as long as computing it.
tier::ReplaySetup with_copy_ratio(tier::ReplaySetup setup, double ratio);
double copy_ratio_of(const tier::ReplaySetup& setup);

}  // namespace moestro::cli
