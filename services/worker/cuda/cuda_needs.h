#pragma once
// How much memory of a GPU an engine takes, computed before anything is allocated. The code names the allocation next
// to each figure, and a test compares the sum with the memory that is really taken.

#include <string_view>

#include "common/expert_layout.h"
#include "common/model/model_spec.h"
#include "kernels/cuda/cuda_ops.h"
#include "services/worker/cuda/device_budget.h"
#include "services/worker/engine/engine_options.h"
#include "store/pack/manifest.h"

namespace moestro::cuda {

/// Workspaces of the operations for the largest step of these options.
kernels::cuda::CudaOps::Room ops_workspace(const model::ModelSpec& spec, const engine::EngineOptions& options);

/// Room for states of sequences that layers overwrite before it is known whether they will be computed once more.
struct KeptStatesRoom {
  int64_t sequences = 0;  ///< of a step
  int64_t layers = 0;     ///< the most with states from one layer of experts to the next
  int64_t floats = 0;     ///< of a sequence in a layer
  int64_t of_layer() const { return sequences * floats; }
};
KeptStatesRoom kept_states_room(const model::ModelSpec& spec, int64_t step_tokens_max, int64_t state_slots);

/// kUnsupported: no kernel of GPUs computes with `what`, "dense weights", in this format.
Status check_format(std::string_view what, DType format);

/// `precision`: of the experts. kUnsupported names the first thing that GPUs lack: a setting of the model, experts of
/// a layer, a tensor.
Result<DeviceNeeds> device_needs(const store::Manifest& manifest, const engine::EngineOptions& options,
                                 DType precision);

}  // namespace moestro::cuda
