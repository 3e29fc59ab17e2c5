#include "services/worker/cuda/cuda_pass.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/log.h"
#include "services/worker/cuda/cuda_needs.h"

namespace moestro::cuda {
namespace {

/// Visits without a miss after which a layer is taken to have all that it will want.
constexpr int32_t kCalm = 2;
constexpr auto kFloat = static_cast<int64_t>(sizeof(float));

}  // namespace

engine::Backend cuda_backend(const CudaParts& cuda) {
  return {cuda.ops, cuda.memory, [cuda](const engine::PassParts& parts) -> Result<std::unique_ptr<engine::Pass>> {
            auto pass = std::make_unique<CudaPass>(parts, cuda);
            MOESTRO_RETURN_IF_ERROR(pass->status().with_context("buffers of a step on the device (--step-tokens)"));
            return Result<std::unique_ptr<engine::Pass>>(std::move(pass));
          }};
}

CudaPass::CudaPass(const engine::PassParts& parts, const CudaParts& cuda)
    : p_(parts), ops_(cuda.ops), queue_(cuda.ops.queue()), memory_(cuda.memory), slots_(cuda.slots), math_(parts.math, parts.options.step_tokens_max),
      head_(parts.math.spec, parts.math.weights, cuda.ops, cuda.memory, cuda.host_ops, parts.options.step_tokens_max),
      kv_(cuda.ops, parts.math.cache), guard_(cuda.host_ops, parts.math.spec.hidden, parts.options.step_tokens_max), hidden_(spec().hidden), experts_(spec().moe().experts),
      top_k_(spec().moe().top_k), moe_layers_(spec().moe_layers()), step_tokens_max_(parts.options.step_tokens_max), buffers_(cuda.memory),
      ids_(cuda.ops, step_tokens_max_ * moe_layers_ * top_k_), notes_(cuda.ops, step_tokens_max_ * static_cast<int64_t>(spec().layers.size())),
      weights_(cuda.ops, step_tokens_max_ * moe_layers_ * top_k_) {
  const int64_t n = step_tokens_max_, layers = static_cast<int64_t>(spec().layers.size());
  for (float*& stream : streams_) stream = buffers_.make<float>(n * hidden_);
  expert_rows_ = buffers_.make<float>(n * top_k_ * hidden_);
  device_ids_ = buffers_.make<int32_t>(n * moe_layers_ * top_k_);
  device_weights_ = buffers_.make<float>(n * moe_layers_ * top_k_);
  device_notes_ = buffers_.make<int32_t>(n * layers);
  device_table_ = buffers_.make<uint64_t>(moe_layers_ * experts_);
  device_left_out_ = buffers_.make<uint8_t>(n);
  table_.resize(static_cast<size_t>(experts_));
  const OpsWorkspace workspace = ops_workspace(spec(), parts.options);
  ops_.reserve(workspace.activated, workspace.routes, workspace.partial);
  if (!ops_.options().deterministic) host_experts_.emplace(ops_, memory_, cuda.host_ops, p_.layout, slots_, p_.experts, top_k_, p_.clock);
  const MoestroCudaFunctions& f = queue_.functions;
  queue_.note("make_stream", f.make_stream(1, &out_));
  queue_.note("make_event", f.make_event(0, &computed_));
  int32_t stream = 0;
  for (const model::LayerSpec& layer : spec().layers) {
    Layer& l = layers_.emplace_back();
    l.stream = stream;
    if (!layer.moe_index) continue;
    l.moe = static_cast<int32_t>(layer.moe_index->value);
    queue_.note("make_event", f.make_event(0, &l.routed));
    stream = 1 - stream;  // its back leaves the rows that entered it as they were
  }
  last_stream_ = stream;
}

CudaPass::~CudaPass() {
  const MoestroCudaFunctions& f = queue_.functions;
  (void)f.wait_stream(queue_.stream);
  if (out_ != nullptr) (void)f.wait_stream(out_), (void)f.end_stream(out_);
  if (computed_ != nullptr) (void)f.end_event(computed_);
  for (const Layer& l : layers_)
    if (l.routed != nullptr) (void)f.end_event(l.routed);
  for (MoestroCudaEvent mark : marks_) (void)f.end_event(mark);
}

Status CudaPass::status() const {
  MOESTRO_RETURN_IF_ERROR(ops_.status());
  MOESTRO_RETURN_IF_ERROR(math_.status());
  MOESTRO_RETURN_IF_ERROR(head_.status());
  return buffers_.status();
}

void CudaPass::set_watch(engine::ExpertWatch* watch) {
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

// --- a step ---

Result<lanes::ExecutionTotals> CudaPass::run(const engine::StepPlan& plan, const engine::StepBatch& batch, std::vector<Status>& failed,
                                             std::vector<engine::SequenceOutcome>& outcomes) {
  const Nanos begin_at = p_.clock.now();
  begin(plan.id, batch, failed);
  Status status = run_layers();
  if (status.is_ok()) {
    head_.launch(plan, batch, streams_[last_stream_]);
    mark(2 * layers_.size() + 1);
    if (queue_.error == 0)
      queue_.note("copy_out", queue_.functions.copy_out(notes_.data(), device_notes_, notes_count() * sizeof(int32_t), queue_.stream));
    status = ops_.wait();
  }
  if (!status.is_ok()) {
    p_.experts.abandon();
    if (watch_ != nullptr) watch_->abandon();
    return status;
  }
  kv_.settled();
  take_notes();
  head_not_finite_ = head_.finish(plan, batch, failed, outcomes);
  if (timeline_ != nullptr) draw(plan.id.value, begin_at);
  lanes::ExecutionTotals totals;
  totals.elapsed = p_.clock.now() - begin_at;
  totals.stalled = stalled_;
  totals.busy[static_cast<int>(lanes::Lane::kCompute)] = totals.elapsed - stalled_;
  return totals;
}

void CudaPass::begin(PlanId plan, const engine::StepBatch& batch, std::vector<Status>& failed) {
  batch_ = &batch;
  rows_ = batch.rows();
  stalled_ = Nanos(0);
  head_not_finite_ = 0;
  guard_.begin(batch, failed);
  p_.experts.begin_step(plan, batch.row_share);
  mark(0);
  memory_.fill(device_notes_, 0xff, static_cast<int64_t>(notes_count() * sizeof(int32_t)));
  math_.begin(batch);
}

Status CudaPass::run_layers() {
  const size_t count = layers_.size();
  math_.embed(stream(0));
  front(0);
  for (size_t l = 0; l < count; ++l) {
    const bool sparse = layers_[l].moe >= 0, ahead = sparse && expects_all(l);
    if (ahead) {
      slots_.addresses(moe_layer(l), table_);
      launch_experts(l);
      back(l);
    }
    if ((ahead || !sparse) && l + 1 < count) front(l + 1);
    if (!sparse) continue;
    MOESTRO_ASSIGN_OR_RETURN(const auto routed, take_routes(l));
    const bool all_there = lease(routed);
    layers_[l].calm = all_there ? std::min(layers_[l].calm + 1, kCalm) : 0;
    if (ahead && all_there && lie_as_launched(routed)) {
      MOESTRO_RETURN_IF_ERROR(let_go(routed));
      continue;
    }
    if (ahead) rewind(l);
    MOESTRO_RETURN_IF_ERROR(compute(l, routed));
    back(l);
    if (l + 1 < count) front(l + 1);
  }
  return ops_.status();
}

/// A layer that cannot be told apart on the device from one that drops rows is launched when its rows are known.
bool CudaPass::expects_all(size_t layer) const {
  return !p_.options.capacity_factor && guard_.left_out().empty() && (slots_.holds_all() || layers_[layer].calm >= kCalm);
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
  if (lookahead_) guess(layer);
  send_routes(layer);
  if (spec().layers[layer].moe.shared_ffn > 0) math_.shared_expert(layer);
  mark(2 * layer + 1);
}

/// On the compute stream: the next layer's guesses are written where these are.
void CudaPass::guess(size_t layer) {
  Layer& l = layers_[layer];
  const auto answer = lookahead_->ask(moe_layer(layer), watch_->gate_lookahead(), stream(layer), rows_);
  l.guessed_layers = answer.layers;
  if (answer.layers == 0 || queue_.error != 0) return;
  queue_.note("copy_out", queue_.functions.copy_out(guesses_of(layer), answer.logits, static_cast<uint64_t>(answer.count * kFloat), queue_.stream));
}

/// Beside the computing, which goes on.
void CudaPass::send_routes(size_t layer) {
  const MoestroCudaFunctions& f = queue_.functions;
  const int64_t first = first_choice(layer);
  const auto count = static_cast<uint64_t>(rows_ * top_k_);
  if (queue_.error != 0) return;
  queue_.note("record_event", f.record_event(computed_, queue_.stream)) && queue_.note("stream_waits", f.stream_waits(out_, computed_)) &&
      queue_.note("copy_out", f.copy_out(ids_.data() + first, device_ids_ + first, count * sizeof(int32_t), out_)) &&
      queue_.note("copy_out", f.copy_out(weights_.data() + first, device_weights_ + first, count * sizeof(float), out_)) &&
      queue_.note("record_event", f.record_event(layers_[layer].routed, out_));
}

void CudaPass::launch_experts(size_t layer) {
  launched_ = table_;
  uint64_t* table = device_table_ + layers_[layer].moe * experts_;
  memory_.copy_in(table, table_.data(), experts_ * static_cast<int64_t>(sizeof(uint64_t)));
  const auto left_out = guard_.left_out();
  if (!left_out.empty()) memory_.copy_in(device_left_out_, left_out.data(), static_cast<int64_t>(left_out.size()));
  ops_.experts({.layout = p_.layout,
                .slots = table,
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

void CudaPass::look_at(size_t layer, float* x) { ops_.guard(x, rows_, hidden_, static_cast<int32_t>(layer), device_notes_ + static_cast<int64_t>(layer) * rows_); }

// --- what the host does beside it ---

Result<std::span<const lanes::RoutedExpert>> CudaPass::take_routes(size_t layer) {
  if (queue_.error == 0) queue_.note("wait_event", queue_.functions.wait_event(layers_[layer].routed));
  MOESTRO_RETURN_IF_ERROR(ops_.status());
  const std::span<const int32_t> ids(ids_.data() + first_choice(layer), static_cast<size_t>(rows_ * top_k_));
  const auto routed = p_.experts.route(moe_layer(layer), ids, top_k_, guard_.left_out());
  if (watch_ == nullptr) return routed;
  watch_->routed(moe_layer(layer), ids, routed, p_.experts.uses());
  if (const int32_t guessed = lookahead_ ? layers_[layer].guessed_layers : 0; guessed > 0)
    watch_->guessed(moe_layer(layer), guessed, {guesses_of(layer), static_cast<size_t>(rows_ * guessed * experts_)});
  watch_->foresee(moe_layer(layer));
  return routed;
}

bool CudaPass::lease(std::span<const lanes::RoutedExpert> routed) {
  missing_.clear();
  for (const lanes::RoutedExpert& r : routed)
    if (!p_.experts.acquire(r.expert, r.expert)) missing_.push_back(r);
  return missing_.empty();
}

bool CudaPass::lie_as_launched(std::span<const lanes::RoutedExpert> routed) const {
  return std::ranges::all_of(routed, [this](const lanes::RoutedExpert& r) { return address(r.expert) == launched_[static_cast<size_t>(r.expert)]; });
}

/// What was queued behind the layer's front is void: its rows are as they entered the back, the rest of its input is made again.
void CudaPass::rewind(size_t layer) {
  math_.norm_after_attention(layer, stream(layer));
  if (spec().layers[layer].moe.shared_ffn > 0) math_.shared_expert(layer);
  const auto first = static_cast<int64_t>(layer) * rows_;
  memory_.fill(device_notes_ + first, 0xff, (static_cast<int64_t>(notes_count()) - first) * static_cast<int64_t>(sizeof(int32_t)));
}

/// Nothing is held while the host waits for an expert: what is there is queued and let go of first.
Status CudaPass::compute(size_t layer, std::span<const lanes::RoutedExpert> routed) {
  clear_rows(p_.experts.dropped());
  const bool some_on_cpu = host_experts_ && host_experts_->choose(missing_, math_.h(), rows_);
  if (p_.options.capacity_factor) {
    for (const lanes::RoutedExpert& r : routed) compute_one(r.expert);
  } else {
    for (int32_t e = 0; e < experts_; ++e) table_[static_cast<size_t>(e)] = address(e);
    launch_experts(layer);
  }
  MOESTRO_RETURN_IF_ERROR(let_go(routed));
  const auto left = missing_.size() - static_cast<size_t>(some_on_cpu ? host_experts_->compute(expert_rows_) : 0);
  return left == 0 ? Status::ok() : compute_what_arrives(left);
}

Status CudaPass::compute_what_arrives(size_t count) {
  MOESTRO_RETURN_IF_ERROR(p_.experts.request_missing());
  for (; count > 0; --count) {
    const Nanos from = p_.clock.now();
    MOESTRO_ASSIGN_OR_RETURN(const engine::ExpertDispatch::Arrival arrival, p_.experts.wait());
    stalled_ += p_.clock.now() - from;
    const int32_t expert = arrival.read;
    if (arrival.status.is_ok()) {
      compute_one(expert);
      MOESTRO_RETURN_IF_ERROR(slots_.launched());
      p_.experts.release(expert);
      continue;
    }
    for (const kernels::RoutedRow& r : p_.experts.rows(expert)) guard_.fail(batch_->sequence_of[static_cast<size_t>(r.token)], arrival.status);
    clear_rows(p_.experts.rows(expert));
  }
  return Status::ok();
}

void CudaPass::compute_one(int32_t expert) {
  if (const std::byte* blob = p_.experts.data(expert)) ops_.expert_ffn(p_.layout, blob, math_.h(), p_.experts.rows(expert), top_k_, expert_rows_);
}

Status CudaPass::let_go(std::span<const lanes::RoutedExpert> routed) {
  MOESTRO_RETURN_IF_ERROR(slots_.launched());
  for (const lanes::RoutedExpert& r : routed) p_.experts.release(r.expert);
  return Status::ok();
}

void CudaPass::clear_rows(std::span<const kernels::RoutedRow> rows) {
  for (const kernels::RoutedRow& r : rows) memory_.fill(expert_rows_ + (r.token * top_k_ + r.rank) * hidden_, 0, hidden_ * kFloat);
}

/// The first layer after which a row was not finite, for each sequence that has such rows.
void CudaPass::take_notes() {
  const int32_t* notes = notes_.data();
  for (size_t l = 0; l < layers_.size(); ++l)
    for (int64_t r = 0; r < rows_; ++r) {
      if (notes[static_cast<int64_t>(l) * rows_ + r] < 0) continue;
      const engine::TokenRange range = batch_->rows_of[batch_->sequence_of[static_cast<size_t>(r)]];
      const int32_t* first = notes + static_cast<int64_t>(l) * rows_ + range.first;
      const auto rows = std::count_if(first, first + range.count, [](int32_t note) { return note >= 0; });
      guard_.fail_row(l, r, "values are not finite, or too large for a norm in f32,", rows - 1);
    }
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
    timeline_->slice({.task = {.kind = kind, .layer = layer, .cost = {}}, .id = static_cast<lanes::TaskId>(at), .begin = before, .end = end});
    before = end;
  };
  for (size_t l = 0; l < layers_.size(); ++l) {
    slice(2 * l + 1, lanes::TaskKind::kAttention, static_cast<int32_t>(l));
    slice(2 * l + 2, layers_[l].moe < 0 ? lanes::TaskKind::kDenseMlp : lanes::TaskKind::kExpert, static_cast<int32_t>(l));
  }
  slice(2 * layers_.size() + 1, lanes::TaskKind::kHead, -1);
  timeline_->end_step();
}

}  // namespace moestro::cuda
