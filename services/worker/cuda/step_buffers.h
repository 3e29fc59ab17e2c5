#pragma once
// For how many tokens of a step a GPU's worker has buffers, where the configuration leaves it open.

#include <functional>

#include "common/config/device_spec.h"
#include "common/planner/step_size.h"
#include "common/step_tokens.h"
#include "services/worker/cuda/device_budget.h"

namespace moestro::cuda {

/// By what experts lose to the buffers and what steps gain (planner::choose_step_size), with rates of a typical GPU:
/// how fast this one is is not known before it serves, and the scheduler takes no steps that are measured to last too
/// long. `room_bytes`: of the GPU's memory, for everything. `needs(n)`: with buffers for steps of n tokens. Host memory
/// is taken to hold all experts: if it does not, larger steps gain more. `spec`: whether dense weights may take turns.
Result<planner::StepSize> choose_step_buffers(const planner::ModelSizes& sizes, int64_t kv_tokens, uint64_t room_bytes,
                                              const std::function<Result<DeviceNeeds>(int64_t)>& needs,
                                              const config::CudaDeviceSpec& spec = {});

}  // namespace moestro::cuda
