#include "services/worker/cuda/step_buffers.h"

#include <algorithm>

#include "common/planner/sheet_rates.h"

namespace moestro::cuda {

Result<planner::StepSize> choose_step_buffers(const planner::ModelSizes& sizes, int64_t kv_tokens, uint64_t room_bytes,
                                              const std::function<Result<DeviceNeeds>(int64_t)>& needs,
                                              const config::CudaDeviceSpec& spec) {
  constexpr auto kWhole = planner::Memories::Device::kWhole;
  return planner::choose_step_size([&](int64_t tokens) -> Result<planner::PlanInput> {
    MOESTRO_ASSIGN_OR_RETURN(const DeviceNeeds device, needs(tokens));
    planner::PlanInput in;
    // The device's own figure counts: the planner would count the cache and the states of its workload's lines.
    in.sizes = sizes;
    in.sizes.kv_block_bytes = in.sizes.state_bytes = 0;
    in.rates = planner::typical_rates(sizes, kWhole, 1);
    in.memories = {
        .device = kWhole,
        .device_bytes = room_bytes - std::min(room_bytes, device.kv_bytes),
        .host_bytes = 2 * (sizes.dense_bytes + sizes.experts_bytes()),
        .counts_dense = spec.dense_in_turn,
        .dense_share = spec.dense_share};
    in.needs = {.dense_bytes = device.dense_bytes,
                .workspace_bytes = device.workspace_bytes,
                .expert_bytes = sizes.expert_bytes,
                .slot_bytes = device.expert_bytes,
                .experts = static_cast<int64_t>(device.experts),
                .dense_layer_bytes = device.dense_layers,
                .experts_at_once = device.experts_at_once};
    in.workload = planner::lines_that_fill(kv_tokens, kv_tokens);
    in.workload.step_tokens = tokens, in.workload.steps_grow = false;
    return in;
  });
}

}  // namespace moestro::cuda
