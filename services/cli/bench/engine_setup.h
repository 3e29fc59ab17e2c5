#pragma once
// The engine of a benchmark, after its options were checked against the pack and the machine.

#include <memory>

#include "common/clock.h"
#include "kernels/limits/device_limits.h"
#include "services/cli/bench/engine_bench.h"
#include "services/worker/engine/engine.h"
#include "services/worker/worker_device.h"
#include "store/blob_source.h"

namespace moestro::cli {

/// Pack, operations and engine, in the order of construction.
struct BenchedEngine {
  std::unique_ptr<store::BlobSource> source;
  std::unique_ptr<kernels::Ops> ops;
  std::unique_ptr<cuda::CudaDevice> cuda;  ///< null: another device
  std::unique_ptr<kernels::limits::DeviceLimits>
      device_limits;  ///< for that device, with memory that experts then cannot use; null: not requested
  std::unique_ptr<device::WorkerDevice> device;
  std::unique_ptr<engine::Engine> engine;
  DType experts = DType::kF32;
};

/// The requested measurements, in the order of the table; kInvalidArgument if there is none.
Result<std::vector<EngineCase>> bench_cases(const EngineBenchOptions& options);
/// Refuses what does not fit in the model's context, the KV cache or the machine's memory, and names the option and the
/// figure.
Result<BenchedEngine> open_engine(const EngineBenchOptions& options, const std::vector<EngineCase>& cases,
                                  const Clock& clock);

/// Bytes that are available without swapping; 0 if the system does not say.
uint64_t memory_available();

}  // namespace moestro::cli
