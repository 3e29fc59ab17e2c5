#pragma once
// The options of an engine, and the limits that follow from them.

#include <cstdint>
#include <optional>
#include <string>

#include "common/clock.h"
#include "common/dtype.h"
#include "common/expert_copy.h"
#include "common/status.h"

namespace moestro::engine {

/// The positions that a query sees in every layer: the first `sinks` and the last `window`, including its own.
struct VisiblePositions {
  int64_t sinks = 0;
  int64_t window = 0;  ///< 0: all positions
};

/// How the micro-batches of a plan go through a layer.
enum class MicroBatches : uint8_t {
  kTogether,  ///< as one
  kInTurn,    ///< attention and router of one after the other's; then everything else for all rows, each expert once
};

/// How the tasks of a step are ordered (common/lanes/schedule.h).
enum class ScheduleKind : uint8_t { kLayerwise, kExpertPipeline, kCgo };

/// Where the KV of running sequences lies between its uses, on a device with a memory of its own. Where the CPU
/// computes, host memory is both.
enum class KvHome : uint8_t { kDevice, kHost };

/// How the schedules for throughput cut a step into micro-batches: whole sequences, in the order of the plan.
struct MicroBatchOptions {
  static constexpr int64_t kRowsUsual = 16, kCountUsual = 8;

  int64_t count = 0;  ///< at most so many, with about the same number of rows; 0: as many as `rows` says
  int64_t rows = 0;   ///< at most so many in each, unless one sequence has more; 0: as many as `count` says. Both 0:
                      ///< kRowsUsual or more rows each, and at most kCountUsual
  int64_t least = 0;  ///< rows: a step of fewer than `count` times as many is cut into fewer micro-batches
};

/// Parts of the expert pipeline. What they are worth is measured by leaving them out.
struct PipelineParts {
  bool hot_first = true;      ///< lanes::ExpertPipelineOptions
  bool by_expert = true;      ///< the same
  bool release_early = true;  ///< false: a layer's experts are let go of when all of them have been computed
};

struct EngineOptions {
  std::string model;            ///< id as served; a plan for another model is refused
  int64_t kv_tokens = 8192;     ///< capacity of the KV cache, rounded up to whole blocks
  int64_t kv_host_tokens =
      0;  ///< further capacity in host memory for blocks evicted from a device's; rounded up to whole blocks
  int64_t state_slots = 0;  ///< states of sequences, where the model has such; 0: as many as take the KV cache's memory
  KvHome kv_home = KvHome::kDevice;
  int64_t kv_resident_tokens = 0;  ///< kv_home host: of kv_tokens, those that stay on the device
  int64_t kv_ring_tokens = 0;      ///< kv_home host: the device's room for the others while they are used; 0: as many
                                   ///< as the longest sequence needs, and 8192 if there are as many
  int64_t context_max =
      0;  ///< positions of a sequence; 0, or more than model or cache allow: as many as they allow
  int64_t step_tokens_max = 512;
  int64_t step_sequences_max = 256;
  int64_t overtaking_tokens_max = 0;  ///< a step of at most so many tokens may run while another has parked, with
                                      ///< buffers of its own (Engine::overtake); 0: steps run one after another
  std::optional<DType> expert_precision = std::nullopt;  ///< nullopt: the pack's first
  std::optional<MixedOptions> mixed = std::nullopt;  ///< a missing expert may be served by a low copy, or by none
  std::optional<double> capacity_factor = std::nullopt;  ///< nullopt: an expert takes all its tokens
  DType kv_dtype = DType::kF32;
  VisiblePositions visible = {};  ///< with a window, contexts may be longer than the model's and than the cache
  Nanos compute_floor{0};  ///< the least time of one expert and of one attention; an emulated device waits for the rest
                           ///< of it
  MicroBatches micro_batches = MicroBatches::kTogether;  ///< of the layerwise schedule
  ScheduleKind schedule = ScheduleKind::kLayerwise;
  MicroBatchOptions cut = {};  ///< of the expert pipeline and of cgo
  PipelineParts parts = {};    ///< of the expert pipeline
  bool poison_kv = false;       ///< tests: the empty cache is NaN
};

/// Whether the options make sense, alone and together. `deterministic`: of the operations.
Status check_options(const EngineOptions& options, bool deterministic);
/// Refuses by name what encoder-decoder models do not have.
Status check_encoder_decoder(const EngineOptions& options);

/// The limits that plans are checked against.
struct EngineLimits {
  std::string model;
  int64_t vocab = 0;
  int64_t kv_blocks = 0, kv_host_blocks = 0;
  int64_t state_slots = 0, state_interval = 0;  ///< model::StateBudget
  int64_t context_max = 0;
  int64_t step_tokens_max = 0, step_sequences_max = 0;
  int64_t overtaking_tokens_max = 0;  ///< EngineOptions; 0 too where the model has states of sequences
  VisiblePositions visible;
  bool mixed = false;  ///< EngineOptions::mixed
  bool encoder_decoder = false;  ///< sequences have sources
};

}  // namespace moestro::engine
