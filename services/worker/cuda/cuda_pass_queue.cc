// CudaPass: what is queued for a layer.

#include <algorithm>

#include "services/worker/cuda/cuda_pass.h"
#include "services/worker/cuda/float_bytes.h"

namespace moestro::cuda {

using lanes::TaskKind;

Status CudaPass::start(lanes::Lane lane, std::span<const lanes::TaskId> tasks, std::vector<lanes::TaskId>& ended) {
  for (const lanes::TaskId id : tasks)
    if (!lanes::is_layerwise(machine_[id])) return lanes::cannot_run("the CUDA pass", machine_[id]);
  if (lane == lanes::Lane::kCompute) return queue(tasks);
  if (lane == lanes::Lane::kHostCompute) {
    ended.insert(ended.end(), tasks.begin(), tasks.end());
    return compute_on_host(tasks);
  }
  for (const lanes::TaskId id : tasks) read_of_[static_cast<size_t>(machine_[id].expert)] = id;
  reads_ += tasks.size();
  return Status::ok();
}

Status CudaPass::queue(std::span<const lanes::TaskId> tasks) {
  last_queued_ = tasks.back();
  for (const lanes::TaskId id : tasks)
    if (machine_[id].kind == TaskKind::kRouter) routers_.push_back(id);
  while (!tasks.empty()) {
    told_ = false;
    const lanes::Task& task = machine_[tasks.front()];
    size_t queued = 1;
    if (task.assumed || (task.kind == TaskKind::kAttention && task.layer == 0)) {
      MOESTRO_ASSIGN_OR_RETURN(queued, segment(tasks));
    } else {
      MOESTRO_RETURN_IF_ERROR(queue_one(task));
    }
    tasks = tasks.subspan(queued);
  }
  step_.marks().end();
  MOESTRO_RETURN_IF_ERROR(let_dense_go());
  return ops_.status();
}

Result<size_t> CudaPass::segment(std::span<const lanes::TaskId> tasks) {
  const auto begins_next = [this](lanes::TaskId id) {
    return machine_[id].kind == TaskKind::kLayerExperts || machine_[id].kind == TaskKind::kHead;
  };
  const auto end = std::find_if(tasks.begin() + 1, tasks.end(), begins_next);
  const std::span segment = tasks.first(static_cast<size_t>(end - tasks.begin()));
  const lanes::Task& first = machine_[segment.front()];
  const int32_t next = first.assumed ? first.layer + 1 : 0;
  MOESTRO_ASSIGN_OR_RETURN(const std::optional<uint64_t> place, place_of_segment(static_cast<size_t>(next)));
  if (first.assumed) {
    slots_.addresses(step_.moe_layer(static_cast<size_t>(first.layer)), table_);
    send_table(static_cast<size_t>(first.layer));
  }
  const auto work = [&] {
    for (const lanes::TaskId id : segment) (void)queue_one(machine_[id]);  // what fails is in ops_.status()
  };
  if (!as_graphs_ || !place || !graphs_.launch({shape_, next, *place}, work)) {
    for (const lanes::TaskId id : segment) MOESTRO_RETURN_IF_ERROR(queue_one(machine_[id]));
    return segment.size();
  }
  for (const lanes::TaskId id : segment) {
    const auto layer = static_cast<size_t>(machine_[id].layer);
    if (machine_[id].kind == TaskKind::kRouter) send_routes(layer);
    if (machine_[id].kind != TaskKind::kAttention) continue;
    reads_dense(layer);
    if (may_come_again()) kept_end_ = layer + 1;
  }
  return segment.size();
}

Status CudaPass::queue_one(const lanes::Task& task) {
  const auto layer = static_cast<size_t>(task.layer);
  if (task.kind == TaskKind::kAttention) {
    MOESTRO_RETURN_IF_ERROR(hold(layer));
    kv_.before_layer(layer);
  }
  if (task.kind != TaskKind::kHead) step_.marks().begin(task.kind, task.layer, task.expert);
  switch (task.kind) {
    case TaskKind::kEmbed: step_.math().embed(stream(0)); break;
    case TaskKind::kAttention: attention(layer); break;
    case TaskKind::kDenseMlp: step_.dense_mlp(layer, step_.all_rows(), stream(layer)); break;
    case TaskKind::kRouter: route(layer); break;
    case TaskKind::kSharedExpert: step_.math().shared_expert(layer); break;
    case TaskKind::kLayerExperts: return layer_experts(task);
    case TaskKind::kExpert: return compute_arrived(task.expert);
    case TaskKind::kCombine:
      step_.combine(layer, step_.all_rows(), stream(layer), streams_[1 - layers_[layer].stream]);
      break;
    case TaskKind::kHead:
      // It adds up what it reads, so it cannot be taken back: it waits while an assumption may be wrong.
      if (resident_ || machine_.assumptions() == 0) head();
      break;
    case TaskKind::kExpertRead:
    case TaskKind::kWeightRead:
    case TaskKind::kKvLoad:
    case TaskKind::kKvSave:
    case TaskKind::kQkv:
    case TaskKind::kQkvSend:
    case TaskKind::kAttend:
    case TaskKind::kHiddenLoad:
    case TaskKind::kOutput: return lanes::cannot_run("the CUDA pass", task);
  }
  return Status::ok();
}

/// A KV cache is written once more with the same values, but a state of a sequence goes on from what it was: where a
/// layer may be computed once more its states are kept, and where it is they are what was kept.
void CudaPass::attention(size_t layer) {
  const bool again = layer < again_end_, keeps = may_come_again();
  if (layers_[layer].kept != nullptr && (again || keeps)) ops_.keep_states({layers_[layer].kept, again});
  if (keeps) kept_end_ = layer + 1;
  step_.math().attention(layer, batch_->micro_batches.front(), stream(layer), layer > 0);
  ops_.keep_states({});
  reads_dense(layer);  // by the rest of the layer too, which is queued before anybody is told
}

void CudaPass::route(size_t layer) {
  step_.route(layer, step_.all_rows(), stream(layer));
  if (float* kept = kept_inputs_[layers_[layer].stream])
    memory_.copy(kept, step_.math().h(), step_.rows() * hidden_ * kFloatBytes);
  step_.guess(layer, stream(layer));
  send_routes(layer);
}

/// Ahead of a graph that reads it, and only where it differs from what the device has: where everything is resident,
/// never again.
void CudaPass::send_table(size_t layer) {
  uint64_t* sent = tables_.data() + table_of(layer);
  if (std::equal(table_.begin(), table_.end(), sent)) return;
  std::copy(table_.begin(), table_.end(), sent);
  memory_.copy_in(device_tables_ + table_of(layer), sent, experts_ * static_cast<int64_t>(sizeof(uint64_t)));
}

const uint8_t* CudaPass::send_left_out() {
  const auto rows = step_.guard().left_out();
  if (rows.empty()) return nullptr;
  left_out_inputs_.clear();
  for (const uint8_t row : rows)
    left_out_inputs_.insert(left_out_inputs_.end(), static_cast<size_t>(step_.inputs_of_row()), row);
  memory_.copy_in(device_left_out_, left_out_inputs_.data(), static_cast<int64_t>(left_out_inputs_.size()));
  return device_left_out_;
}

/// Rows of sequences that have failed are left out; layers are not launched ahead then. An input of its own makes a
/// choice a row of one choice.
void CudaPass::launch_experts(size_t layer, bool after_router) {
  const uint8_t* const left_out = send_left_out();
  const int64_t inputs_of_row = step_.inputs_of_row(), rows = step_.rows();
  ops_.experts({.layout = p_.layouts.full[static_cast<size_t>(layers_[layer].moe)],
                .slots = device_tables_ + table_of(layer),
                .ids = step_.device_ids(layer),
                .left_out = left_out,
                .n = rows * inputs_of_row,
                .experts = experts_,
                .top_k = top_k_ / inputs_of_row,
                .x = step_.expert_input(),
                .out = step_.expert_rows(),
                .sorted = after_router && left_out == nullptr && inputs_of_row == 1 &&
                          step_.math().router_norms(layer) && ops_.sorts_routes(rows),
                .unit = engine::gated_unit(spec().moe().expert)});
}

/// Nothing is held while the host waits for an expert: what is there is queued and let go of first.
Status CudaPass::layer_experts(const lanes::Task& task) {
  const auto layer = static_cast<size_t>(task.layer);
  if (task.assumed) {
    launch_experts(layer, true);
    return Status::ok();
  }
  if (p_.options.capacity_factor) {
    for (const lanes::RoutedExpert& r : routed_) step_.compute_expert(at_, r.expert);
  } else {
    for (int32_t e = 0; e < experts_; ++e) table_[static_cast<size_t>(e)] = address(e);
    send_table(layer);
    launch_experts(layer, false);
  }
  return let_go();
}

Status CudaPass::compute_arrived(int32_t expert) {
  // It could not be had, and its sequences have failed.
  if (p_.experts.data(at_.layer, expert) == nullptr) return Status::ok();
  step_.compute_expert(at_, expert);
  told_ = true;
  MOESTRO_RETURN_IF_ERROR(slots_.launched());
  step_.release(at_, expert);
  return Status::ok();
}

void CudaPass::head() {
  head_queued_ = true;
  step_.head();
}

}  // namespace moestro::cuda
