#pragma once
// What a load sends and when, drawn at random or from a trace. The same seed gives the same load on every machine.

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace moestro::cli {

struct Arrival {
  double due_s = 0;  ///< after the load's begin
  int32_t prompt_tokens = 1, output_tokens = 1;
  std::vector<uint32_t> blocks =
      {};  ///< names of the prompt's blocks: equal names have equal tokens; empty: nothing is shared
  int32_t block_tokens = 512;         ///< as Mooncake's traces hash prompts
};

inline constexpr double kAllAtOnce = std::numeric_limits<double>::infinity();

struct LengthRange {
  int64_t min = 1, max = 1;
};

/// ExpertFlow's load by default: exponential gaps, lengths uniform within ranges.
struct PoissonOptions {
  double rate = kAllAtOnce;  ///< requests a second
  int64_t count = 256;
  LengthRange prompt = {8, 128}, output = {1, 128};
  uint64_t seed = 1;
};
/// The first request is due at once, so `rate` is that of the gaps.
std::vector<Arrival> poisson_arrivals(const PoissonOptions& options);

/// Of a model as it is served.
struct LengthLimits {
  int64_t context = 0;  ///< 0: not known, and nothing is cut
  int64_t source = 0;   ///< of an encoder-decoder model: the longest prompt; 0: it has no encoder
};
/// Reduces lengths so that prompt and output fit in the context, the prompt first. With an encoder each is cut for
/// itself: source and target share no context. Returns how many were cut.
int64_t cut_to(const LengthLimits& limits, std::vector<Arrival>& arrivals);

/// "17,4,2101": ids below `vocab`. Those of shared blocks depend on the block's name, all others on `index`, the
/// request's number.
std::string prompt_ids(const Arrival& arrival, uint32_t index, int64_t vocab, uint64_t seed);

}  // namespace moestro::cli
