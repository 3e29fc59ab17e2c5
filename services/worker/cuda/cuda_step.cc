#include "services/worker/cuda/cuda_step.h"

#include <algorithm>

#include "common/log.h"
#include "services/worker/cuda/cuda_needs.h"
#include "services/worker/cuda/float_bytes.h"

namespace moestro::cuda {

CudaStep::CudaStep(const engine::PassParts& parts, kernels::cuda::CudaOps& ops, kernels::cuda::CudaMemory& memory,
                   kernels::Ops& host_ops)
    : p_(parts),
      ops_(ops),
      queue_(ops.queue()),
      memory_(memory),
      hidden_(spec().hidden),
      experts_(spec().moe().experts),
      top_k_(spec().moe().top_k),
      moe_layers_(spec().moe_layers()),
      step_tokens_max_(parts.options.step_tokens_max),
      inputs_of_row_(spec().moe().router.on_input ? top_k_ : 1),
      math_(parts.math, step_tokens_max_),
      head_(parts.math.spec, parts.math.weights, ops, memory, host_ops, step_tokens_max_),
      guard_(host_ops, parts.math.spec.hidden, step_tokens_max_),
      marks_(ops.queue(), parts.clock),
      buffers_(memory),
      ids_(ops, step_tokens_max_ * moe_layers_ * top_k_),
      notes_(ops, step_tokens_max_ * static_cast<int64_t>(spec().layers.size())),
      weights_(ops, step_tokens_max_ * moe_layers_ * top_k_) {
  const int64_t n = step_tokens_max_, layers = static_cast<int64_t>(spec().layers.size());
  expert_rows_ = buffers_.make<float>(n * top_k_ * hidden_);
  device_ids_ = buffers_.make<int32_t>(n * moe_layers_ * top_k_);
  device_weights_ = buffers_.make<float>(n * moe_layers_ * top_k_);
  device_notes_ = buffers_.make<int32_t>(n * layers);
  if (spec().moe().router.on_input) {
    expert_inputs_ = buffers_.make<float>(n * top_k_ * hidden_);
    ones_ = buffers_.make<float>(n * top_k_);
    const std::vector<float> ones(static_cast<size_t>(n * top_k_), 1.0F);
    if (ones_ != nullptr) memory_.copy_in(ones_, ones.data(), n * top_k_ * kFloatBytes);
  }
  ops_.reserve(ops_workspace(spec(), parts.options));
  const MoestroCudaFunctions& f = queue_.functions;
  queue_.note("make_stream", f.make_stream(1, &out_));
  queue_.note("make_event", f.make_event(0, &computed_));
}

CudaStep::~CudaStep() {
  const MoestroCudaFunctions& f = queue_.functions;
  (void)f.wait_stream(queue_.stream);
  if (out_ != nullptr) (void)f.wait_stream(out_), (void)f.end_stream(out_);
  if (computed_ != nullptr) (void)f.end_event(computed_);
}

Status CudaStep::status() const {
  MOESTRO_RETURN_IF_ERROR(ops_.status());
  MOESTRO_RETURN_IF_ERROR(math_.status());
  MOESTRO_RETURN_IF_ERROR(head_.status());
  return buffers_.status();
}

void CudaStep::set_watch(engine::ExpertWatch* watch) {
  watch_ = watch;
  lookahead_.reset();
  if (watch == nullptr || watch->gate_lookahead() == 0) return;
  lookahead_.emplace(spec(), p_.math.weights, ops_, memory_, step_tokens_max_, watch->gate_lookahead());
  guesses_max_ = step_tokens_max_ * std::min<int64_t>(watch->gate_lookahead(), moe_layers_) * experts_;
  guesses_.emplace(ops_, 2 * guesses_max_);
  if (const Status made = lookahead_->status(); !made.is_ok()) {  // it only guesses: steps do without
    log::warn("routers are not asked ahead, and experts are foreseen less well: {}", made.message());
    lookahead_.reset();
  }
}

void CudaStep::begin(const engine::StepPlan& plan, const engine::StepBatch& batch, std::vector<Status>& failed) {
  plan_ = &plan, batch_ = &batch;
  rows_ = batch.rows();
  head_not_finite_ = 0;
  guard_.begin(batch, failed);
  p_.experts.begin_step(plan.id, batch.micro_batches, batch.row_share);
  marks_.begin_step();
  forget_notes(0);
  math_.begin(batch);
  is_watched_ = watch_ != nullptr && watch_->wants_routes();
  asked_ahead_ = lookahead_ ? watch_->gate_lookahead() : 0;
}

void CudaStep::finish(std::vector<Status>& failed, std::vector<engine::SequenceOutcome>& outcomes) {
  take_notes();
  head_not_finite_ = head_.finish(*plan_, *batch_, failed, outcomes);
  marks_.draw();
}

void CudaStep::forget_notes(size_t layer) {
  const int64_t first = static_cast<int64_t>(layer) * rows_;
  memory_.fill(device_notes_ + first, 0xff, (notes_count() - first) * static_cast<int64_t>(sizeof(int32_t)));
}

// --- queued ---

void CudaStep::route(size_t layer, engine::TokenRange rows, const float* x) {
  math_.router(layer, rows, x, device_ids(layer, rows.first), device_weights(layer, rows.first));
  weight_inputs(layer, rows);
}

void CudaStep::weight_inputs(size_t layer, engine::TokenRange rows) {
  if (expert_inputs_ != nullptr)
    ops_.scale_rows(math_.h() + rows.first * hidden_, device_weights(layer, rows.first), rows.count, top_k_, hidden_,
                    expert_inputs_ + rows.first * top_k_ * hidden_);
}

void CudaStep::send_ids(size_t layer, engine::TokenRange rows, MoestroCudaEvent arrived) {
  const MoestroCudaFunctions& f = queue_.functions;
  if (queue_.error != 0 || queue_.capturing) return;
  const auto bytes = static_cast<uint64_t>(rows.count * top_k_) * sizeof(int32_t);
  queue_.note("record_event", f.record_event(computed_, queue_.stream)) &&
      queue_.note("stream_waits", f.stream_waits(out_, computed_)) &&
      queue_.note("copy_out",
                  f.copy_out(ids_.data() + choice(layer, rows.first), device_ids(layer, rows.first), bytes, out_)) &&
      queue_.note("record_event", f.record_event(arrived, out_));
}

void CudaStep::guess(size_t layer, const float* x) {
  if (asked_ahead_ == 0) return;
  const auto answer = lookahead_->ask(moe_layer(layer), asked_ahead_, x, rows_);
  if (answer.layers == 0 || queue_.error != 0) return;
  queue_.note("copy_out",
              queue_.functions.copy_out(guesses_of(layer), answer.logits,
                                        static_cast<uint64_t>(answer.count) * sizeof(float), queue_.stream));
}

/// An input of its own makes a choice a row of one choice.
void CudaStep::compute_expert(engine::LayerPart part, int32_t expert) {
  const std::byte* blob = p_.experts.data(part.layer, expert);
  if (blob == nullptr) return;
  auto rows = p_.experts.rows(part, expert);
  if (expert_inputs_ != nullptr) {
    engine::rows_of_choices(rows, top_k_, input_rows_);
    rows = input_rows_;
  }
  ops_.expert_ffn(p_.layouts.full[part.layer.value], blob, expert_input(), rows, top_k_ / inputs_of_row_, expert_rows_,
                  engine::gated_unit(spec().moe().expert));
}

void CudaStep::combine(size_t layer, engine::TokenRange rows, const float* x, float* y) {
  const int64_t first = int64_t{rows.first} * top_k_;
  MoestroCudaResidual work{};
  work.rows = expert_rows_ + first * hidden_, work.top_k = top_k_;
  work.weights = ones_ != nullptr ? ones_ : device_weights(layer, rows.first);
  if (spec().layers[layer].moe.shared_ffn > 0) {
    const engine::LayerMath::SharedRows shared = math_.shared_rows(layer);
    work.added = shared.rows + rows.first * hidden_;
    work.added_logit = shared.logit == nullptr ? nullptr : shared.logit + rows.first;
  }
  end_layer(layer, rows, x, y, work);
}

void CudaStep::dense_mlp(size_t layer, engine::TokenRange rows, float* x) {
  math_.dense_mlp(layer, rows, x);
  end_layer(layer, rows, x, x, {});
}

void CudaStep::end_layer(size_t layer, engine::TokenRange rows, const float* x, float* y, MoestroCudaResidual work) {
  const engine::DenseWeights& weights = p_.math.weights;
  const int64_t at = rows.first * hidden_;
  work.n = rows.count, work.hidden = hidden_;
  work.base = x + at, work.y = y + at;
  work.bad_layer = device_notes_ + static_cast<int64_t>(layer) * rows_ + rows.first;
  work.layer = static_cast<int32_t>(layer);
  const bool is_last = layer + 1 == spec().layers.size();
  work.norm = is_last ? weights.norm() : weights.layer(layer + 1).input_norm;
  work.norm_bias = is_last ? weights.norm_bias() : weights.layer(layer + 1).input_norm_bias;
  work.centred = spec().norm == model::ModelSpec::Norm::kLayer;
  work.eps = static_cast<float>(spec().norm_eps);
  work.normed = math_.h() + at;
  ops_.residual(work);
}

void CudaStep::head() {
  marks_.begin(lanes::TaskKind::kHead, -1);
  head_.launch(*plan_, *batch_, math_.h());
  marks_.end();
  if (queue_.error != 0) return;
  const auto copied = [this](void* to, const void* from, int64_t values) {
    return queue_.note("copy_out", queue_.functions.copy_out(to, from, static_cast<uint64_t>(values) * sizeof(float),
                                                             queue_.stream));
  };
  static_assert(sizeof(float) == sizeof(int32_t));
  copied(notes_.data(), device_notes_, notes_count()) &&
      copied(weights_.data(), device_weights_, static_cast<int64_t>(choices()));
}

// --- by the host ---

void CudaStep::tell_watch(size_t layer, std::span<const lanes::RoutedExpert> routed) {
  const MoeLayerId moe = moe_layer(layer);
  watch_->routed(moe, ids(layer, all_rows()), routed, p_.experts.uses(moe));
  if (const int32_t guessed = asked_ahead_ > 0 ? lookahead_->asked(moe, asked_ahead_) : 0; guessed > 0)
    watch_->guessed(moe, guessed, {guesses_of(layer), static_cast<size_t>(rows_ * guessed * experts_)});
}

Status CudaStep::wait_for_dense(size_t layer) {
  const Nanos begin = p_.clock.now();
  MOESTRO_RETURN_IF_ERROR(p_.stream->wait(layer, [] { return false; }).status());
  if (timeline_ != nullptr)
    timeline_->stall({.layer = static_cast<int32_t>(layer), .begin = begin, .end = p_.clock.now(), .dense = true,
                      .link = true});
  return Status::ok();
}

void CudaStep::release(engine::LayerPart part, int32_t expert) {
  if (const Status used = p_.experts.release(part, expert); !used.is_ok()) fail_users(part, expert, used);
}

void CudaStep::fail_users(engine::LayerPart part, int32_t expert, const Status& why) {
  for (const kernels::RoutedRow& r : p_.experts.rows(part, expert))
    guard_.fail(batch_->sequence_of[static_cast<size_t>(r.token)], why);
}

void CudaStep::clear_rows(std::span<const kernels::RoutedRow> rows) {
  for (const kernels::RoutedRow& r : rows)
    memory_.fill(expert_rows_ + (r.token * top_k_ + r.rank) * hidden_, 0, hidden_ * kFloatBytes);
}

/// The first layer after which a row was not finite, for each sequence that has such rows.
void CudaStep::take_notes() {
  const int32_t* notes = notes_.data();
  for (size_t l = 0; l < spec().layers.size(); ++l)
    for (int64_t r = 0; r < rows_; ++r) {
      if (notes[static_cast<int64_t>(l) * rows_ + r] < 0) continue;
      const engine::TokenRange range = batch_->rows_of[batch_->sequence_of[static_cast<size_t>(r)]];
      const int32_t* first = notes + static_cast<int64_t>(l) * rows_ + range.first;
      const auto rows = std::count_if(first, first + range.count, [](int32_t note) { return note >= 0; });
      guard_.fail_row(l, r, "values are not finite, or too large for a norm in f32,", rows - 1);
    }
}

}  // namespace moestro::cuda
