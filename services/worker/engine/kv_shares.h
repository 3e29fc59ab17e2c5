#pragma once
// How much of a KV cache lies where, when its home is host memory.
//
// The first `resident` blocks stay on the device. The others lie in host memory. To be attended to, those of a
// micro-batch are copied into one of lanes::kKvPlaces equal places on the device, for one layer at a time.

#include <cstdint>

#include "common/model/model_spec.h"
#include "common/status.h"
#include "services/worker/engine/engine_options.h"

namespace moestro::engine {

struct KvShares {
  int64_t blocks = 0;        ///< of the whole cache
  int64_t resident = 0;      ///< of those, on the device for good
  int64_t place_blocks = 0;  ///< of each place
  int64_t sequence_blocks = 0;  ///< the most of one sequence that must be on the device at once
};

/// kUnsupported: the model keeps something of its sequences that cannot have its home in host memory.
Status check_kv_in_host_memory(const model::ModelSpec& spec);

/// Of options with KvHome::kHost. kUnsupported: not with this model. kInvalidArgument, with the figures: the device's
/// part is too small for a sequence, or for a micro-batch of the rows that were asked for, or the cache for a group of
/// micro-batches.
Result<KvShares> share_kv(const EngineOptions& options, const model::ModelSpec& spec);

/// Bytes that a cache takes of the device, wherever its home is.
Result<int64_t> kv_device_bytes(const EngineOptions& options, const model::ModelSpec& spec);

}  // namespace moestro::engine
