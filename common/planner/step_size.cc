#include "common/planner/step_size.h"

#include <algorithm>

#include "common/step_tokens.h"

namespace moestro::planner {
namespace {

constexpr int64_t kSizes[] = {kUsualStepTokens, 1024, 2048, 4096};
constexpr double kFaster = 1.1;  ///< at reading prompts; forecasts are up to a tenth off
constexpr double kLonger = 2;    ///< that a step may last, for those who wait for its end
constexpr double kSlowerDecoding = 1.02;

Result<ScheduleOption> forecast(const PlanInput& in) {
  return forecast_arrangement(in, Arrangement{.rows = std::min(in.workload.sequences, kLayerwiseSequencesMax)});
}

bool everything_is_there(const PlanInput& in, const Placement& p) {
  return (in.memories.device == Memories::Device::kHost ? p.host_experts : p.device_experts) >= p.experts;
}

}  // namespace

Workload lines_that_fill(int64_t kv_tokens, int64_t context) {
  constexpr Workload kLine{.prompt = 512, .generate = 128};
  context = std::min(context, kv_tokens);
  Workload w;
  w.prompt = std::clamp<int64_t>(context * kLine.prompt / (kLine.prompt + kLine.generate), 1, kLine.prompt);
  w.generate = std::clamp<int64_t>(context - w.prompt, 1, kLine.generate);
  w.sequences = std::max<int64_t>(1, kv_tokens / round_up(w.prompt + w.generate, kKvTokensPerBlock));
  return w;
}

std::span<const int64_t> step_sizes() {
  return kSizes;
}

Result<StepSize> choose_step_size(const std::function<Result<PlanInput>(int64_t)>& input) {
  MOESTRO_ASSIGN_OR_RETURN(const PlanInput first, input(kUsualStepTokens));
  MOESTRO_ASSIGN_OR_RETURN(const ScheduleOption usual, forecast(first));
  StepSize best{.tokens = kUsualStepTokens};
  if (everything_is_there(first, usual.placement)) return best;
  best.prompt_tokens_per_s = best.usual_prompt_tokens_per_s = usual.prompt.tokens_per_s();
  for (const int64_t tokens : step_sizes().subspan(1)) {
    if (tokens > first.workload.prompt * std::min(first.workload.sequences, kLayerwiseSequencesMax)) break;
    const auto in = input(tokens);
    if (!in.is_ok()) break;
    const auto larger = forecast(*in);
    if (!larger.is_ok()) break;  // no room for its buffers
    if (larger->prompt.forecast.seconds > kLonger * usual.prompt.forecast.seconds ||
        larger->decode.seconds > kSlowerDecoding * usual.decode.seconds)
      break;
    if (larger->prompt.tokens_per_s() < kFaster * best.prompt_tokens_per_s) continue;
    best.tokens = tokens, best.prompt_tokens_per_s = larger->prompt.tokens_per_s();
  }
  return best;
}

}  // namespace moestro::planner
