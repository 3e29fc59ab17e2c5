#pragma once
// Replays a routing trace on a simulated device: policy, predictor, slots and link on a virtual clock, with the same
// DeviceTier and Predictor objects that a worker uses.
//
// The device computes one thing at a time: a layer's attention, its router, then its experts: first those that are
// present, then the others as they arrive. Meanwhile the link carries one chunk at a time, and a CPU may compute some
// of the layer's missing experts (ReplayTimes::cpu_ratio). If no expert of the layer is present, the device stalls.
//
// Host memory has every expert, or is a tier of its own that a drive fills (ReplayHost). A CPU has no other tier.

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/prediction/predictor.h"
#include "common/tier/device_tier.h"
#include "common/tier/replay_host.h"
#include "common/tier/routes.h"
#include "common/tier/virtual_link.h"
#include "common/tier/visit_oracle.h"

namespace moestro::tier {

/// Durations. A copy takes latency + bytes / rate.
struct ReplayTimes {
  Nanos attention{0};         ///< of a layer, with its router
  Nanos attention_token{0};   ///< each token more than the first
  Nanos expert{0};            ///< an expert with one token: its weights are read once
  Nanos expert_token{0};      ///< each token more than the first
  Nanos step{0};              ///< around the layers: head, sampling, the scheduler
  double link_bytes_per_s = 0;
  Nanos link_latency{0};
  double cpu_ratio = 0;       ///< the CPU's time for an expert, divided by the device's; 0: it computes none

  /// The device's, for an expert with so many tokens.
  Nanos of_expert(int64_t tokens) const { return expert + expert_token * (tokens - 1); }
  /// The CPU's; nullopt: it computes none.
  std::optional<Nanos> on_cpu(int64_t tokens) const {
    if (cpu_ratio <= 0) return std::nullopt;
    return Nanos(static_cast<int64_t>(cpu_ratio * static_cast<double>(of_expert(tokens).count())));
  }
};

struct ReplaySetup {
  int32_t slots = 1;
  uint64_t expert_bytes = 0;
  uint64_t chunk_bytes = uint64_t{1} << 20;
  bool prefetch = true;
  bool keep = true;      ///< TierOptions::keep
  PrefetchOptions how{};
  ReplayTimes times{};
  int32_t batch = 1;     ///< requests that decode at once; each joins when another ends
  int32_t chunk = 512;   ///< tokens of a prompt in one step, at most
  size_t warm = 0;       ///< requests; steps before the next one begins are not counted
  std::optional<MixedOptions> mixed = std::nullopt;  ///< experts have low copies; the routes have gate weights
  int32_t low_slots = 0;              ///< with `mixed`: for low copies
  uint64_t low_bytes = 0;             ///< of a low copy

  /// Of an expert.
  Nanos copy_time() const { return times.link_latency + time_of_bytes(expert_bytes, times.link_bytes_per_s); }
};

/// Figures of the decoding steps, unless stated otherwise.
struct ReplayReport {
  static constexpr int kAfterPrompt = 8;
  uint64_t steps = 0, tokens = 0;
  uint64_t uses = 0, hits = 0, late = 0;
  uint64_t choices = 0, low = 0, skipped = 0, on_cpu = 0;  ///< tokens x experts: all, by a low copy, by none, by the
                                                           ///< CPU; with `mixed` or a CPU
  double penalty = 0;  ///< experts that were waited for, where a low copy counts by its share of a full one's bytes
  Nanos time{0}, stall{0};
  Nanos drive_stall{0};  ///< of the stall: what was waited for had to be read from the drive
  uint64_t moved_bytes = 0, wasted_bytes = 0;  ///< by the link; on a CPU by the drive
  uint64_t prompt_steps = 0, prompt_tokens = 0;
  Nanos prompt_time{0}, prompt_stall{0};
  uint64_t prompt_moved_bytes = 0;
  HostCounters host, prompt_host;  ///< of decoding steps, and of prompts; nothing without a ReplayHost
  uint64_t prompt_uses = 0;  ///< experts that a step of prompts used at a layer, each once for all of its tokens
  uint64_t prompt_held = 0, prompt_kept = 0;  ///< experts in slots before each such step, and how many of those were
                                              ///< there after it
  uint64_t after_uses = 0, after_hits = 0;    ///< of the decoding steps next after one, kAfterPrompt at most
  TierCounters counters;             ///< of all steps; on a CPU, what host memory did
  Nanos total_time{0}, total_stall{0};  ///< of all steps
  std::vector<uint64_t> layer_uses, layer_hits;
  /// Of each request, in the order in which they began: from the start of the replay to its first step, and to the
  /// end of its prompt's last step.
  std::vector<Nanos> began_at, first_token_at;
  std::vector<double> request_hit_rate;  ///< of each request, in the order in which they began

  double hit_rate() const { return uses == 0 ? 0 : static_cast<double>(hits) / static_cast<double>(uses); }
  /// Share of the experts in slots before a prompt's step that were still there after it.
  double prompt_kept_share() const {
    return prompt_held == 0 ? 0 : static_cast<double>(prompt_kept) / static_cast<double>(prompt_held);
  }
  double after_hit_rate() const {
    return after_uses == 0 ? 0 : static_cast<double>(after_hits) / static_cast<double>(after_uses);
  }
  double stall_per_token_s() const {
    return tokens == 0 ? 0 : std::chrono::duration<double>(stall).count() / static_cast<double>(tokens);
  }
  double time_per_token_s() const {
    return tokens == 0 ? 0 : std::chrono::duration<double>(time).count() / static_cast<double>(tokens);
  }
};

/// One expert of a step's layer, and its tokens.
struct StepUse {
  uint16_t expert = 0;
  uint16_t tokens = 0;
  Want want = Want::kFull;  ///< the greatest of its tokens
};
/// What one step computes: tokens of some requests.
struct ReplayStep {
  bool scan = false;                                       ///< mostly of prompts
  std::vector<prediction::IterationSequence> sequences;
  std::vector<uint32_t> first;                             ///< by sequence: its tokens in `tokens`
  std::vector<RoutedToken> tokens;
  std::vector<size_t> began, ended;  ///< indices into `sequences` of those whose first or last step it is
};
/// The steps that serve `requests` (indices), `batch` at a time. Each prompt has separate steps of at most `chunk`
/// tokens. Then all running requests decode one token per step.
std::vector<ReplayStep> plan_steps(const Routes& routes, std::span<const size_t> requests, int32_t batch,
                                   int32_t chunk);
/// The choices of all tokens of a step at a layer, ascending by expert. `mixed` null: all are wanted full.
void uses_of(const Routes& routes, const ReplayStep& step, int32_t layer, std::vector<StepUse>& out,
             const MixedOptions* mixed = nullptr);

/// The experts that the steps need, a visit for each layer.
Visits visits_of(const Routes& routes, std::span<const ReplayStep> steps);

/// The predictor, and a callback for each request that ends (so that it can enter the history that the predictor
/// reads).
struct Foresight {
  prediction::Predictor* predictor = nullptr;  ///< null: no forecasts
  std::function<void(size_t request)> ended{};
  NextChunk fetches{};  ///< what knows the future chooses what is copied; null: the tier does
};

/// Shows the requests to the predictor without a device, so that it learns before others are judged.
void train(const Routes& routes, std::span<const size_t> requests, const Foresight& foresight);

/// `host`: host memory that a drive fills; null: it has every expert, as with `setup.mixed`. `low`: the policy of low
/// copies, where there are some.
ReplayReport replay(const Routes& routes, std::span<const size_t> requests, const ReplaySetup& setup,
                    std::unique_ptr<policy::CachePolicy> policy, const Foresight& foresight,
                    ReplayHost* host = nullptr, std::unique_ptr<policy::CachePolicy> low = nullptr);
/// A CPU computes experts where they lie in host memory. Slots and the link of `setup` have no meaning.
ReplayReport replay_on_cpu(const Routes& routes, std::span<const size_t> requests, const ReplaySetup& setup,
                           const Foresight& foresight, ReplayHost& host);

/// Belady's oracle on demand: fewest misses without prefetch. A layer's experts are used at once, those present first.
ReplayReport replay_belady(const Routes& routes, std::span<const size_t> requests, const ReplaySetup& setup);

/// A predictor that knows the next pass of every layer, one token ahead.
std::unique_ptr<prediction::Predictor> make_perfect_predictor(const Routes& routes, std::span<const size_t> requests,
                                                              const ReplaySetup& setup);

}  // namespace moestro::tier
