#include "services/worker/cuda/step_buffers.h"

#include <algorithm>

#include "common/planner/sheet_rates.h"

namespace moestro::cuda {
namespace {

constexpr int64_t kPrompt = 512, kGenerate = 128;
constexpr auto kWhole = planner::Memories::Device::kWhole;

/// Lines that fill the KV cache.
planner::Workload workload(int64_t kv_tokens, int64_t step_tokens) {
  const int64_t prompt = std::clamp<int64_t>(kv_tokens * kPrompt / (kPrompt + kGenerate), 1, kPrompt);
  const int64_t generate = std::clamp<int64_t>(kv_tokens - prompt, 1, kGenerate);
  return {.prompt = prompt,
          .generate = generate,
          .sequences = std::max<int64_t>(1, kv_tokens / round_up(prompt + generate, planner::kKvTokensPerBlock)),
          .step_tokens = step_tokens,
          .steps_grow = false};
}

}  // namespace

Result<planner::StepSize> choose_step_buffers(const planner::ModelSizes& sizes, int64_t kv_tokens, uint64_t room_bytes,
                                              const std::function<Result<DeviceNeeds>(int64_t)>& needs) {
  return planner::choose_step_size([&](int64_t tokens) -> Result<planner::PlanInput> {
    MOESTRO_ASSIGN_OR_RETURN(const DeviceNeeds device, needs(tokens));
    planner::PlanInput in;
    in.sizes = sizes;
    in.rates = planner::typical_rates(sizes, kWhole, 1);
    in.memories = {
        .device = kWhole, .device_bytes = room_bytes, .host_bytes = 2 * (sizes.dense_bytes + sizes.experts_bytes())};
    in.needs = {.dense_bytes = device.dense_bytes,
                .workspace_bytes = device.workspace_bytes,
                .expert_bytes = sizes.expert_bytes,
                .slot_bytes = device.expert_bytes,
                .experts = static_cast<int64_t>(device.experts)};
    in.workload = workload(kv_tokens, tokens);
    return in;
  });
}

}  // namespace moestro::cuda
