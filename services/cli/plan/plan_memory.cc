#include "services/cli/plan/plan_memory.h"

#include <algorithm>

#include "common/config/units.h"
#include "common/machine/host_memory.h"
#include "common/model/served_pack.h"
#include "common/tier/dense_window.h"
#include "services/box/host_budget.h"
#include "services/worker/cuda/cuda_needs.h"

namespace moestro::cli {
namespace {

using Kind = config::DeviceSpec::Kind;
using planner::Memories;

constexpr uint64_t kStoreAndOrchestrator = 120'000'000;  ///< 60 MB for each program
constexpr uint64_t kKeptFree = 256ull << 20;  ///< as `up` leaves it to the rest of the machine

Result<std::optional<uint64_t>> size_flag(const char* flag, const std::string& text) {
  if (text.empty() || text == "auto") return std::optional<uint64_t>();
  auto size = config::parse_size(text);
  if (!size.is_ok()) return size.status().with_context(flag);
  if (*size == 0) return invalid_argument(std::string(flag) + " " + text + ": more than nothing is needed");
  return std::optional<uint64_t>(*size);
}

/// Of the host, with this schedule.
Result<box::WorkerMemory> worker_memory(const PlanOptions& o, const PlannedModel& model, const char* schedule) {
  config::BoxConfig box;
  box.workers.kv_dtype = o.kv_dtype;
  box.workers.device = o.device;
  box.workers.schedule = schedule;
  box.orchestrator.step_tokens = o.step_tokens;
  return box::worker_memory(box, model.config_json);
}

Result<planner::Needs> host_needs(const PlanOptions& o, const PlannedModel& model) {
  MOESTRO_ASSIGN_OR_RETURN(const box::WorkerMemory worker, worker_memory(o, model, "layerwise"));
  MOESTRO_ASSIGN_OR_RETURN(const box::WorkerMemory pipeline, worker_memory(o, model, "expert-pipeline"));
  MOESTRO_ASSIGN_OR_RETURN(const box::WorkerMemory cgo, worker_memory(o, model, "cgo"));
  planner::Needs needs;
  needs.dense_bytes = model.sizes.dense_bytes;
  if (!model.sizes.has_encoder()) needs.dense_layer_bytes = model.sizes.dense_layer_bytes;
  needs.experts_at_once = tier::experts_of_two_layers(model.sizes.top_k);
  needs.kv_bytes = model.sizes.kv_bytes(o.sequences, workload_of(o, model).kv_positions());
  needs.state_bytes = static_cast<uint64_t>(o.sequences) * model.sizes.state_bytes;
  needs.workspace_bytes = worker.scratch_bytes;
  needs.pipeline_workspace_bytes = pipeline.scratch_bytes;
  needs.cgo_workspace_bytes = cgo.scratch_bytes;
  needs.process_bytes = worker.process_bytes + kStoreAndOrchestrator;
  needs.expert_bytes = needs.slot_bytes = model.sizes.expert_bytes;
  needs.experts = model.sizes.all_experts();
  return needs;
}

/// On a GPU the workspace and the slots are those that the worker allocates there: of a pack, as long as the longest
/// expert of any layer, whatever their formats.
Status add_cuda_needs(const PlanOptions& o, const PlannedModel& model, planner::Needs& needs) {
  store::Manifest shape;  // of the configuration alone: dense weights are counted from the model's sizes
  shape.config_json = model.config_json;
  if (!model.manifest) MOESTRO_RETURN_IF_ERROR(cuda::check_format("dense weights", model.sizes.precisions.dense));
  engine::EngineOptions options;
  options.kv_dtype = model.sizes.precisions.kv;
  options.kv_tokens = o.sequences * round_up(o.prompt + o.generate, planner::kKvTokensPerBlock);
  options.step_tokens_max = o.step_tokens;
  options.step_sequences_max = std::min(o.sequences, o.step_tokens);
  MOESTRO_ASSIGN_OR_RETURN(const cuda::DeviceNeeds device,
                           cuda::device_needs(model.manifest ? *model.manifest : shape, options, model.experts));
  needs.workspace_bytes = device.workspace_bytes;
  needs.slot_bytes = device.expert_bytes;
  return Status::ok();
}

Result<uint64_t> device_bytes(const config::DeviceSpec& device, std::optional<uint64_t> vram,
                              const Hardware* hardware) {
  if (device.kind == Kind::kEmulated) return vram.value_or(device.emulated.vram_bytes);
  if (hardware == nullptr)
    return invalid_argument(
        "--device cuda needs --hardware FILE.yaml: a GPU's rates are not measured yet; configs/hardware has cards");
  if (hardware->memory_bytes == 0)
    return invalid_argument("--device cuda: " + hardware->name + " has no section device");
  const uint64_t free = hardware->memory_bytes - std::min(hardware->memory_bytes,
                                                          cuda::driver_margin(hardware->memory_bytes));
  if (!vram && device.cuda.vram_bytes > 0) vram = device.cuda.vram_bytes;
  return vram ? std::min(*vram, free) : free;
}

/// A file's memory; of another machine whose file does not have it, what --dram and the rest need; or this machine's.
void place_host(const PlanOptions& o, const Hardware* hardware, PlannedMemory& memory) {
  const auto kept = [](uint64_t bytes) { return bytes - std::min(bytes, kKeptFree); };
  planner::Memories& m = memory.memories;
  if (hardware != nullptr && hardware->host.memory_bytes) {
    memory.host = o.hardware;
    m.host_bytes = kept(*hardware->host.memory_bytes);
  } else if (hardware != nullptr && m.arena_bytes) {
    memory.host = "--dram, and the rest in addition";
    const planner::Needs& n = memory.needs;
    const uint64_t workspace_bytes = std::max({n.workspace_bytes, n.pipeline_workspace_bytes, n.cgo_workspace_bytes});
    m.host_bytes = *m.arena_bytes + n.kv_bytes + n.state_bytes + workspace_bytes + n.process_bytes;
    if (m.device == planner::Memories::Device::kExpertsOnly) m.host_bytes += m.device_bytes;
  } else {
    memory.host = "this machine";
    m.host_bytes = kept(machine::read_host_memory().left().bytes);
  }
}

}  // namespace

Result<PlannedMemory> plan_memory(const PlanOptions& o, const PlannedModel& model, const Hardware* hardware) {
  PlannedMemory memory;
  auto device = config::parse_device(o.device);
  if (!device.is_ok()) return device.status().with_context("--device");
  memory.device = *device;
  MOESTRO_RETURN_IF_ERROR(
      model::check_device(model.description.spec, o.device, memory.device.kind == Kind::kCuda));
  MOESTRO_ASSIGN_OR_RETURN(const auto vram, size_flag("--vram", o.vram));
  MOESTRO_ASSIGN_OR_RETURN(memory.memories.arena_bytes, size_flag("--dram", o.dram));
  MOESTRO_ASSIGN_OR_RETURN(memory.needs, host_needs(o, model));
  if (memory.device.kind == Kind::kCpu) {
    if (vram) return invalid_argument("--vram goes with --device cuda or emulated; the CPU has no memory of its own");
  } else {
    memory.memories.device =
        memory.device.kind == Kind::kCuda ? Memories::Device::kWhole : Memories::Device::kExpertsOnly;
    memory.memories.counts_kv = memory.device.emulated.counts_kv;
    const config::DeviceSpec& spec = memory.device;
    memory.memories.counts_dense = spec.emulated.counts_dense || spec.cuda.dense_in_turn;
    memory.memories.dense_share = std::min(spec.emulated.dense_share, spec.cuda.dense_share);
    if (memory.memories.dense_share < 1 && model.sizes.has_encoder())
      return unsupported("--device " + o.device + ": a model with an encoder where dense weights take turns in memory: "
                         "take dense=counted, and a device with room for all of them");
    MOESTRO_ASSIGN_OR_RETURN(memory.memories.device_bytes, device_bytes(memory.device, vram, hardware));
  }
  if (memory.device.kind == Kind::kCuda) MOESTRO_RETURN_IF_ERROR(add_cuda_needs(o, model, memory.needs));
  place_host(o, hardware, memory);
  return memory;
}

}  // namespace moestro::cli
