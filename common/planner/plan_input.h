#pragma once
// What a plan is made of.

#include <cstdint>
#include <optional>
#include <string>

#include "common/planner/forecast.h"
#include "common/planner/placement.h"
#include "common/planner/schedule_name.h"

namespace moestro::planner {

/// Sequences, each of a prompt and generated tokens. As many run at once as fit; one that ends is replaced at once.
struct Workload {
  int64_t prompt = 512, generate = 128, sequences = 1;
  int64_t step_tokens = 512;  ///< the most of one step
  bool steps_grow = true;     ///< a step that is cut may have as many for each of its micro-batches
  bool sources = false;       ///< of an encoder-decoder model: a prompt is a source, which is read as a whole, and a
                              ///< target begins with one token

  /// Of a sequence in the KV cache: with a source, its memory lies in blocks of its own.
  int64_t kv_positions() const {
    return sources ? round_up(prompt, kKvTokensPerBlock) + 1 + generate : prompt + generate;
  }
};

struct PlanInput {
  ModelSizes sizes;
  Rates rates;
  Memories memories;
  Needs needs;  ///< its KV cache is counted anew for the sequences that run at once
  Workload workload;
  std::optional<ScheduleName> schedule = {};  ///< nullopt: the fastest that workers run
  bool as_workers = false;  ///< of expert-pipeline, only arrangements that workers run; false: the papers' too
  bool kv_moves = true;  ///< arrangements with KV that has its home in host memory are considered
  /// Why the host of a worker's device cannot attend beside it; empty: it can.
  std::string no_host_attention = {};
  /// The host's threads and those that compute for the device share cores: forecasts, where both compute at once, are
  /// too good then. So cgo is considered only if `schedule` names it.
  bool host_shares_cores = false;
  bool prefetch = true;
  std::optional<double> device_hits;  ///< measured share of what decoding uses that is found where it is computed, on
                                      ///< the device or in host memory; nullopt: the resident share, which prompts
                                      ///< always have. For layerwise
  std::optional<double> foreseen;     ///< Residency::foreseen
};

}  // namespace moestro::planner
