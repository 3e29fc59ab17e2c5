#include "services/worker/choose_schedule.h"

#include <algorithm>
#include <string>

namespace moestro::worker {

using engine::KvHome;
using engine::ScheduleKind;
using Device = config::DeviceSpec::Kind;

Result<ScheduleKind> choose_schedule(const config::BoxConfig::Workers& w, Device on) {
  const bool kv_moves = w.kv_home == "host" && on != Device::kCpu;
  if (w.schedule == "auto") return kv_moves ? ScheduleKind::kExpertPipeline : ScheduleKind::kLayerwise;
  if (w.schedule == "cgo") {
    if (on == Device::kCpu)
      return unsupported("--schedule cgo on the CPU: it divides a step between host and device, and here the host "
                         "computes everything; take layerwise or expert-pipeline");
    if (on == Device::kCuda && w.deterministic)
      return invalid_argument("--schedule cgo with --deterministic on a GPU: the host attends to what decodes, and "
                              "sums in another order than the GPU, so answers would depend on the steps that a "
                              "sequence is in; take expert-pipeline");
    if (!kv_moves)
      return invalid_argument("--schedule cgo: the host attends, so the home of the KV cache is host memory; add "
                              "--kv-home host");
    return ScheduleKind::kCgo;
  }
  if (w.schedule == "layerwise") {
    if (kv_moves)
      return invalid_argument("--schedule layerwise with --kv-home host: it does not move KV; take expert-pipeline "
                              "or cgo");
    return ScheduleKind::kLayerwise;
  }
  return ScheduleKind::kExpertPipeline;
}

Status take_schedule(const config::BoxConfig& box, Device on, engine::EngineOptions& o) {
  const config::BoxConfig::Workers& w = box.workers;
  MOESTRO_ASSIGN_OR_RETURN(o.schedule, choose_schedule(w, on));
  const bool cuts = o.schedule != ScheduleKind::kLayerwise;
  if (w.kv_home != "host" && (w.kv_resident_tokens > 0 || w.kv_ring_tokens))
    return invalid_argument("--kv-resident-tokens and --kv-ring-tokens say what a device has of a KV cache whose home "
                            "is host memory; they need --kv-home host");
  if (on == Device::kCpu && (w.kv_resident_tokens > 0 || w.kv_ring_tokens))
    return invalid_argument("--kv-resident-tokens and --kv-ring-tokens need a device with its own memory; on the CPU "
                            "the whole KV cache is in host memory. Leave them out");
  if (!cuts && (w.micro_batches || w.micro_batch_rows))
    return invalid_argument("--micro-batches and --micro-batch-rows need --schedule expert-pipeline or cgo; the "
                            "layerwise schedule computes all rows of a step together");
  if (o.schedule == ScheduleKind::kCgo && w.kv_resident_tokens > 0)
    return invalid_argument("--kv-resident-tokens " + std::to_string(w.kv_resident_tokens) +
                            " with --schedule cgo: the host attends to all of the KV cache; leave it out");
  o.kv_home = w.kv_home == "host" ? KvHome::kHost : KvHome::kDevice;
  o.kv_resident_tokens = w.kv_resident_tokens;
  o.kv_ring_tokens = w.kv_ring_tokens.value_or(0);
  o.cut = {.count = w.micro_batches.value_or(0), .rows = w.micro_batch_rows.value_or(0),
           .least = engine::MicroBatchOptions::kRowsUsual};
  o.step_tokens_max = config::step_buffers(box);
  if (cuts) o.step_sequences_max = std::max(o.step_sequences_max, o.step_tokens_max);
  return Status::ok();
}

}  // namespace moestro::worker
