#include "services/worker/engine/engine_options.h"

#include <cmath>
#include <string>

#include "common/mixed_refusals.h"
#include "kernels/ops.h"

namespace moestro::engine {

Status check_options(const EngineOptions& o, bool deterministic) {
  if (o.kv_tokens < kernels::kKvBlockTokens)
    return invalid_argument("the KV cache needs at least 16 tokens (--kv-tokens)");
  if (o.kv_tokens > (int64_t{1} << 32)) return invalid_argument("the KV cache is limited to 4 Gi tokens (--kv-tokens)");
  if (o.step_tokens_max < 1 || o.step_sequences_max < 1)
    return invalid_argument("a step has at least one token and one sequence");
  if (o.state_slots < 0 || o.state_slots > (int64_t{1} << 20))
    return invalid_argument("there are 0 to 1 Mi states of sequences (--state-slots)");
  if (o.kv_host_tokens < 0 || o.kv_host_tokens > (int64_t{1} << 32))
    return invalid_argument("KV blocks in host memory hold 0 to 4 Gi tokens (--kv-host-tokens)");
  if (o.context_max < 0) return invalid_argument("the context is negative (--context)");
  if (!kernels::is_kv_dtype(o.kv_dtype))
    return unsupported("--kv-dtype " + std::string(dtype_name(o.kv_dtype)) + "; f32, bf16, f16 and int8 are");
  if (o.mixed && deterministic) return mixed_excludes_deterministic();
  if (o.mixed && (o.schedule != ScheduleKind::kLayerwise || o.micro_batches != MicroBatches::kTogether))
    return unsupported("--mixed with a step in several micro-batches; take --schedule layerwise");
  if (!o.capacity_factor) return Status::ok();
  if (!std::isfinite(*o.capacity_factor) || *o.capacity_factor <= 0)
    return invalid_argument("--capacity-factor is not a number above 0");
  if (deterministic)
    return invalid_argument(
        "--capacity-factor and --deterministic exclude each other: which tokens an expert drops depends on what else "
        "is in the batch");
  return Status::ok();
}

Status check_encoder_decoder(const EngineOptions& o) {
  const auto lacks = [](const std::string& what) {
    return unsupported(what + " with an encoder-decoder model; leave it out");
  };
  if (o.mixed) return lacks("--mixed");
  if (o.capacity_factor) return lacks("--capacity-factor");
  if (o.schedule == ScheduleKind::kExpertPipeline) return lacks("--schedule expert-pipeline");
  if (o.schedule == ScheduleKind::kCgo) return lacks("--schedule cgo");
  if (o.kv_home == KvHome::kHost) return lacks("--kv-home host");
  return Status::ok();
}

}  // namespace moestro::engine
