// CudaPass: what is queued for a layer, and the timeline of it by the device's clock.

#include <algorithm>

#include "services/worker/cuda/cuda_pass.h"

namespace moestro::cuda {

void CudaPass::segment(size_t next) {
  const auto work = [this, next] {
    if (next > 0) {
      launch_experts(next - 1);
      back(next - 1);
    }
    fronts(next);
  };
  if (!as_graphs_ || !graphs_.launch({shape_, static_cast<int32_t>(next)}, work)) return work();
  while (next < layers_.size() && layers_[next].moe < 0) ++next;
  if (next < layers_.size()) send_routes(next);
}

void CudaPass::fronts(size_t next) {
  for (; next < layers_.size(); ++next) {
    front(next);
    if (layers_[next].moe >= 0) return;
  }
}

void CudaPass::front(size_t layer) {
  float* x = stream(layer);
  kv_.before_layer(layer);
  math_.attention(layer, x);
  if (layers_[layer].moe < 0) {
    mark(2 * layer + 1);
    math_.dense_mlp(layer, x);
    look_at(layer, x);
    mark(2 * layer + 2);
    return;
  }
  math_.router(layer, device_ids_ + first_choice(layer), device_weights_ + first_choice(layer));
  if (asked_ahead_ > 0) guess(layer);
  send_routes(layer);
  if (spec().layers[layer].moe.shared_ffn > 0) math_.shared_expert(layer);
  mark(2 * layer + 1);
}

/// On the compute stream: the next layer's guesses are written where these are.
void CudaPass::guess(size_t layer) {
  const auto answer = lookahead_->ask(moe_layer(layer), asked_ahead_, stream(layer), rows_);
  if (answer.layers == 0 || queue_.error != 0) return;
  queue_.note("copy_out",
              queue_.functions.copy_out(guesses_of(layer), answer.logits,
                                        static_cast<uint64_t>(answer.count) * sizeof(float), queue_.stream));
}

/// Beside the computing, which goes on. Behind a graph, not in it: only an event recorded by a call of its own is
/// certain to say, from that call on, that what was launched before has not ended yet.
void CudaPass::send_routes(size_t layer) {
  const MoestroCudaFunctions& f = queue_.functions;
  const int64_t first = first_choice(layer);
  const auto count = static_cast<uint64_t>(rows_ * top_k_);
  if (queue_.error != 0 || queue_.capturing) return;
  queue_.note("record_event", f.record_event(computed_, queue_.stream)) &&
      queue_.note("stream_waits", f.stream_waits(out_, computed_)) &&
      queue_.note("copy_out", f.copy_out(ids_.data() + first, device_ids_ + first, count * sizeof(int32_t), out_)) &&
      queue_.note("record_event", f.record_event(layers_[layer].routed, out_));
}

/// Ahead of a graph that reads it, and only where it differs from what the device has: where everything is resident,
/// never again.
void CudaPass::send_table(size_t layer) {
  uint64_t* sent = tables_.data() + table_of(layer);
  if (std::equal(table_.begin(), table_.end(), sent)) return;
  std::copy(table_.begin(), table_.end(), sent);
  memory_.copy_in(device_tables_ + table_of(layer), sent, experts_ * static_cast<int64_t>(sizeof(uint64_t)));
}

/// Rows of sequences that have failed are left out; layers are not launched ahead then.
void CudaPass::launch_experts(size_t layer) {
  const auto left_out = guard_.left_out();
  if (!left_out.empty()) memory_.copy_in(device_left_out_, left_out.data(), static_cast<int64_t>(left_out.size()));
  ops_.experts({.layout = p_.layout,
                .slots = device_tables_ + table_of(layer),
                .ids = device_ids_ + first_choice(layer),
                .left_out = left_out.empty() ? nullptr : device_left_out_,
                .n = rows_,
                .experts = experts_,
                .top_k = top_k_,
                .x = math_.h(),
                .out = expert_rows_});
}

void CudaPass::back(size_t layer) {
  float* y = streams_[1 - layers_[layer].stream];
  ops_.combine_onto(stream(layer), expert_rows_, device_weights_ + first_choice(layer), rows_, top_k_, hidden_, y);
  if (spec().layers[layer].moe.shared_ffn > 0) math_.add_shared_expert(layer, y);
  look_at(layer, y);
  mark(2 * layer + 2);
}

void CudaPass::look_at(size_t layer, float* x) {
  ops_.guard(x, rows_, hidden_, static_cast<int32_t>(layer), device_notes_ + static_cast<int64_t>(layer) * rows_);
}

// --- the timeline ---

void CudaPass::mark(size_t at) {
  if (timeline_ == nullptr || queue_.error != 0) return;
  const MoestroCudaFunctions& f = queue_.functions;
  while (marks_.size() <= at && queue_.error == 0) queue_.note("make_event", f.make_event(1, &marks_.emplace_back()));
  if (queue_.error == 0) queue_.note("record_event", f.record_event(marks_[at], queue_.stream));
}

void CudaPass::draw(uint64_t plan, Nanos begin) {
  timeline_->begin_step(plan);
  Nanos before = begin;
  const auto slice = [&](size_t at, lanes::TaskKind kind, int32_t layer) {
    float ms = 0;
    (void)queue_.functions.elapsed(&ms, marks_[0], marks_[at]);
    const Nanos end = begin + Nanos(static_cast<int64_t>(static_cast<double>(ms) * 1e6));
    timeline_->slice({.task = {.kind = kind, .layer = layer, .cost = {}},
                      .id = static_cast<lanes::TaskId>(at),
                      .begin = before,
                      .end = end});
    before = end;
  };
  for (size_t l = 0; l < layers_.size(); ++l) {
    slice(2 * l + 1, lanes::TaskKind::kAttention, static_cast<int32_t>(l));
    slice(2 * l + 2, layers_[l].moe < 0 ? lanes::TaskKind::kDenseMlp : lanes::TaskKind::kExpert,
          static_cast<int32_t>(l));
  }
  slice(2 * layers_.size() + 1, lanes::TaskKind::kHead, -1);
  timeline_->end_step();
}

}  // namespace moestro::cuda
