#include "services/box/host_budget.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "common/config/device_spec.h"
#include "common/dtype.h"
#include "common/model/mixer.h"
#include "kernels/ops.h"

namespace moestro::box {
namespace {

constexpr int64_t kStepSequences = 256;  ///< where the configuration says auto
constexpr uint64_t kProcessBytes = 60'000'000;
constexpr uint64_t kCudaBytes =
    300'000'000;  ///< what CUDA takes of the host for a process, with pinned buffers; estimated

uint64_t kv_bytes(const model::ModelSpec& spec, int64_t tokens, DType dtype) {
  const int64_t blocks = (tokens + kernels::kKvBlockTokens - 1) / kernels::kKvBlockTokens;
  uint64_t bytes = 0;
  for (const model::LayerSpec& layer : spec.layers)
    bytes += static_cast<uint64_t>(model::kv_block_bytes(layer.kv, dtype) * blocks);
  return bytes;
}

uint64_t scratch_bytes(const model::ModelSpec& spec, int64_t step_tokens, int64_t sequences) {
  int64_t widest = 0, cross = 0, source = 0;  // the last two: of an encoder-decoder model, its own buffers
  for (const model::LayerSpec& layer : spec.layers) {
    if (layer.cross)
      cross = std::max(cross, spec.hidden + 2 * (layer.cross->heads + layer.cross->kv_heads) * layer.cross->head_dim);
    if (layer.stack == model::LayerSpec::Stack::kEncoder)
      source = std::max(source, 2 * layer.attention.kv_heads * layer.attention.head_dim);
    int64_t width = 4 * spec.hidden + model::mixer_size(spec, layer).step_floats;
    if (layer.moe_index) {
      const model::MoeSpec& moe = layer.moe;
      const int64_t rows = (moe.router.on_input ? 2 : 1) * moe.top_k + (moe.before_attention ? 1 : 0);
      width += moe.experts + rows * spec.hidden + 2 * std::max(moe.expert.ffn, moe.shared_ffn);
    } else {
      width += 2 * layer.dense_ffn;
    }
    widest = std::max(widest, width);
  }
  widest += cross + source;
  return static_cast<uint64_t>(4 * (step_tokens * widest + std::min(sequences, step_tokens) * spec.vocab));
}

/// Where the host attends: queries, keys, values and sums of a step's rows in its memory.
uint64_t attended_bytes(const model::ModelSpec& spec, int64_t rows) {
  int64_t widest = 0;
  for (const model::LayerSpec& layer : spec.layers) {
    const model::AttentionSpec& a = layer.attention;
    widest = std::max(widest, 2 * (a.heads + a.kv_heads) * a.head_dim);
  }
  return static_cast<uint64_t>(4 * rows * widest);
}

}  // namespace

Result<WorkerMemory> worker_memory(const config::BoxConfig& box, const std::string& config_json) {
  MOESTRO_ASSIGN_OR_RETURN(const auto model, model::describe_model(config_json, ""));
  MOESTRO_ASSIGN_OR_RETURN(const DType dtype, parse_dtype(box.workers.kv_dtype));
  WorkerMemory memory;
  memory.workers = static_cast<uint64_t>(box.workers.count);
  const int64_t kv_tokens = box.workers.kv_tokens.value_or(kAutoKvTokens);
  memory.kv_bytes = kv_bytes(model.spec, kv_tokens, dtype);
  memory.state_bytes = static_cast<uint64_t>(
      model::state_budget(model.spec, kv_tokens, dtype, box.workers.state_slots.value_or(0)).bytes);
  const int64_t step_tokens = config::step_buffers(box);
  const bool layerwise = box.workers.schedule == "layerwise" ||
                         (box.workers.schedule == "auto" && box.workers.kv_home != "host");
  memory.scratch_bytes = scratch_bytes(model.spec, step_tokens, layerwise ? kStepSequences : step_tokens);
  // As in Engine::Impl::load(), but for dense weights that take turns, of which nothing is known here yet.
  const bool can_overtake = !model.spec.has_states() && !model.spec.is_encoder_decoder();
  const int64_t overtaking = can_overtake ? config::overtaking_tokens(box) : 0;
  if (overtaking > 0) memory.scratch_bytes += scratch_bytes(model.spec, overtaking, overtaking);
  const bool host_attends = box.workers.schedule == "cgo";
  if (host_attends) memory.scratch_bytes += attended_bytes(model.spec, step_tokens + overtaking);
  memory.process_bytes = kProcessBytes;
  MOESTRO_ASSIGN_OR_RETURN(const config::DeviceSpec device, config::parse_device(box.workers.device));
  memory.device_bytes = device.emulated.vram_bytes;  // with the KV that is in use, where its home is host memory
  if (device.emulated.counts_kv && box.workers.kv_home != "host") memory.kv_bytes = 0;  // it is within these
  if (device.kind == config::DeviceSpec::Kind::kCuda) {  // the rest lies in the GPU's memory
    const bool at_home = box.workers.kv_home == "host";
    const int64_t here = at_home ? kv_tokens - std::min(kv_tokens, box.workers.kv_resident_tokens)
                                 : box.workers.kv_host_tokens;
    memory.kv_bytes = kv_bytes(model.spec, here, dtype);
    memory.state_bytes = 0;
    memory.scratch_bytes = host_attends ? attended_bytes(model.spec, step_tokens) : 0;  // no step overtakes another
    memory.process_bytes += kCudaBytes;
  }
  return memory;
}

uint64_t workers_bytes(const config::BoxConfig& box, std::span<const std::filesystem::path> packs) {
  uint64_t bytes = 0;
  for (const std::filesystem::path& pack : packs)
    if (const auto workers = worker_memory(box, pack)) bytes += workers->total();
  return bytes;
}

Result<WorkerMemory> worker_memory(const config::BoxConfig& box, const std::filesystem::path& pack) {
  std::ifstream in(pack / "config.json", std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) return not_found("no config.json in " + pack.string());
  return worker_memory(box, text.str());
}

}  // namespace moestro::box
