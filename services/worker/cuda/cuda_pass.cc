#include "services/worker/cuda/cuda_pass.h"

#include <algorithm>
#include <utility>

#include "common/log.h"
#include "services/worker/cuda/cuda_needs.h"
#include "services/worker/cuda/float_bytes.h"
#include "services/worker/cuda/group_pass.h"
#include "services/worker/cuda/model_on_gpu.h"
#include "services/worker/engine/attention_chunks.h"

namespace moestro::cuda {
namespace {

/// Of the layers that see chunks.
int64_t chunk_of(const model::ModelSpec& spec) {
  for (const model::LayerSpec& layer : spec.layers)
    if (layer.attention.chunk > 0) return layer.attention.chunk;
  return 0;
}

/// The first layer with entries in the KV cache for each position; null: there is none.
const kernels::AttentionShape* first_attention(const engine::PassParts& parts) {
  const auto& layers = parts.math.spec.layers;
  const auto found = std::ranges::find_if(layers, [](const model::LayerSpec& layer) { return !layer.delta; });
  return found == layers.end() ? nullptr : &parts.math.cache.shape(static_cast<size_t>(found - layers.begin()));
}

/// Latent attention reads its sequences in another order, so both kinds have no graphs in one model.
bool has_two_kinds_of_attention(const model::ModelSpec& spec) {
  const auto latent = [](const model::LayerSpec& layer) { return layer.latent.has_value(); };
  return std::ranges::any_of(spec.layers, latent) && !std::ranges::all_of(spec.layers, latent);
}

/// Whether what is sent once a step serves all layers: the sequences, whole and in chunks, and the rotation for sinks,
/// which depends on the window.
bool sees_alike(const engine::PassParts& parts) {
  const kernels::AttentionShape* const first = first_attention(parts);
  const model::ModelSpec& spec = parts.math.spec;
  if (has_two_kinds_of_attention(spec)) return false;
  for (size_t l = 0; l < spec.layers.size(); ++l) {
    if (spec.layers[l].delta) continue;
    const kernels::AttentionShape& s = parts.math.cache.shape(l);
    const int64_t chunk = spec.layers[l].attention.chunk;
    if (parts.math.cache.latent_shape(l).heads != parts.math.cache.latent_shape(0).heads) return false;
    if (s.heads != first->heads || s.kv_heads != first->kv_heads || s.sinks != first->sinks ||
        (s.sinks > 0 && s.window != first->window) || (chunk > 0 && chunk != chunk_of(spec)))
      return false;
  }
  return true;
}

template <class P>
Result<std::unique_ptr<engine::Pass>> make_pass(const engine::PassParts& parts, const CudaParts& cuda) {
  auto pass = std::make_unique<P>(parts, cuda);
  MOESTRO_RETURN_IF_ERROR(pass->status().with_context("buffers of a step on the device (--step-tokens)"));
  return Result<std::unique_ptr<engine::Pass>>(std::move(pass));
}

}  // namespace

engine::Backend cuda_backend(const CudaParts& cuda) {
  return {cuda.ops, cuda.memory, [cuda](const engine::PassParts& parts) -> Result<std::unique_ptr<engine::Pass>> {
            if (parts.options.micro_batches != engine::MicroBatches::kTogether)
              return unsupported("micro-batches in turn on a CUDA device; it computes all rows of a layer together");
            MOESTRO_RETURN_IF_ERROR(check_on_gpu(parts.math.spec));
            return parts.options.schedule == engine::ScheduleKind::kLayerwise ? make_pass<CudaPass>(parts, cuda)
                                                                              : make_pass<GroupPass>(parts, cuda);
          },
          cuda.kv_link, false, &cuda.host_ops};
}

CudaPass::CudaPass(const engine::PassParts& parts, const CudaParts& cuda)
    : p_(parts),
      ops_(cuda.ops),
      queue_(cuda.ops.queue()),
      memory_(cuda.memory),
      slots_(cuda.slots),
      schedule_(lanes::make_layerwise_schedule(parts.shape)),
      machine_(*schedule_, lanes::kStreamComputes),
      driver_(parts.clock),
      step_(parts, cuda.ops, cuda.memory, cuda.host_ops),
      kv_(cuda.ops, parts.math.cache),
      graphs_(cuda.ops.queue(), cuda.graphs && sees_alike(parts)),
      calm_visits_(cuda.calm_visits),
      hidden_(spec().hidden),
      experts_(spec().moe().experts),
      top_k_(spec().moe().top_k),
      chunk_(chunk_of(spec())),
      buffers_(cuda.memory) {
  const int64_t n = parts.options.step_tokens_max, moe_layers = spec().moe_layers();
  for (float*& stream : streams_) stream = buffers_.make<float>(n * hidden_);
  device_tables_ = buffers_.make<uint64_t>(moe_layers * experts_);
  device_left_out_ = buffers_.make<uint8_t>(n * step_.inputs_of_row());
  if (spec().moe().before_attention)
    for (float*& kept : kept_inputs_) kept = buffers_.make<float>(n * hidden_);
  table_.resize(static_cast<size_t>(experts_)), read_of_.resize(static_cast<size_t>(experts_));
  tables_.assign(static_cast<size_t>(moe_layers * experts_),
                 ~uint64_t{0});  // as nothing lies: whatever is launched first is sent
  if (!ops_.options().deterministic)
    host_experts_.emplace(ops_, memory_, cuda.host_ops, p_.layouts.full, engine::gated_unit(spec().moe().expert),
                          slots_, p_.experts, top_k_, spec().moe().router.on_input, p_.clock);
  if (cuda.graphs && !graphs_.are_on())
    log::info("decode steps are not launched as graphs: this model's layers differ in heads, in chunks, or in the "
              "window that is used with sinks");
  int32_t stream = 0;
  kept_room_ = kept_states_room(spec(), n, p_.math.states.slots());
  kept_states_ = buffers_.make<float>(kept_room_.layers * kept_room_.of_layer());
  int64_t states = 0;  // layers with states since the last with experts
  for (const model::LayerSpec& layer : spec().layers) {
    Layer& l = layers_.emplace_back();
    l.stream = stream;
    if (layer.delta) l.kept = kept_states_ + states++ * kept_room_.of_layer();
    if (!layer.moe_index) continue;
    states = 0;
    l.moe = static_cast<int32_t>(layer.moe_index->value);
    queue_.note("make_event", queue_.functions.make_event(0, &l.routed));
    stream = 1 - stream;  // its back leaves the rows that entered it as they were
  }
}

CudaPass::~CudaPass() {
  (void)queue_.functions.wait_stream(queue_.stream);
  for (const Layer& l : layers_)
    if (l.routed != nullptr) (void)queue_.functions.end_event(l.routed);
}

Status CudaPass::status() const {
  MOESTRO_RETURN_IF_ERROR(step_.status());
  return buffers_.status();
}

void CudaPass::set_watch(engine::ExpertWatch* watch) {
  watch_ = watch;
  graphs_.clear();  // they ask the routers of this lookahead
  step_.set_watch(watch);
}

// --- a step ---

Result<lanes::ExecutionTotals> CudaPass::run(const engine::StepPlan& plan, const engine::StepBatch& batch,
                                             std::vector<Status>& failed,
                                             std::vector<engine::SequenceOutcome>& outcomes) {
  const Nanos begin_at = p_.clock.now();
  begin(plan, batch, failed);
  auto totals = driver_.run(machine_, *this, timeline_);
  if (!totals.is_ok()) {
    p_.experts.abandon();
    held_.clear();
    if (p_.stream != nullptr) p_.stream->abandon();
    if (watch_ != nullptr) watch_->abandon();
    return totals;
  }
  kv_.settled();
  step_.finish(failed, outcomes);
  if (timeline_ != nullptr) timeline_->end_step();
  if (p_.stream != nullptr) totals->stalled += p_.stream->stalled();
  totals->elapsed = p_.clock.now() - begin_at;
  totals->busy[static_cast<int>(lanes::Lane::kCompute)] = totals->elapsed - totals->stalled;
  return totals;
}

void CudaPass::begin(const engine::StepPlan& plan, const engine::StepBatch& batch, std::vector<Status>& failed) {
  batch_ = &batch;
  work_ = {};
  head_queued_ = told_ = false;
  routers_.clear();
  reads_ = 0;
  if (timeline_ != nullptr) timeline_->begin_step(plan.id.value);
  step_.begin(plan, batch, failed);
  resident_ = all_resident();
  kept_end_ = again_end_ = 0;
  begin_graphs();
  machine_.begin(engine::step_shape(batch));
}

/// Steps that decode one token a sequence come again and again; with what is sent here their segments differ in nothing
/// but their shape. Not while blocks of the cache come in, which each layer waits for.
void CudaPass::begin_graphs() {
  as_graphs_ =
      graphs_.are_on() && timeline_ == nullptr && !kv_.pending() &&
      std::ranges::all_of(batch_->attention, [](const kernels::AttentionSequence& s) { return s.tokens == 1; });
  if (!as_graphs_) return;
  shape_ = {.rows = static_cast<int32_t>(step_.rows()), .asked_ahead = step_.asked_ahead()};
  if (spec().layers.front().latent) {
    shape_.parts = static_cast<int32_t>(ops_.send_sequences(
        p_.math.cache.latent_shape(0), p_.math.cache.layer(0).dtype, batch_->attention));
    return;
  }
  if (const kernels::AttentionShape* attention = first_attention(p_)) {
    shape_.parts = static_cast<int32_t>(ops_.send_sequences(*attention, batch_->attention));
    shape_.has_gap = attention->has_gap(batch_->furthest);
    if (chunk_ > 0) {
      kernels::AttentionShape in_chunks = *attention;
      in_chunks.view = engine::kChunkView;
      engine::cut_into_chunks(batch_->attention, chunk_, chunks_);
      shape_.chunk_parts = static_cast<int32_t>(ops_.send_sequences(in_chunks, chunks_));
    }
  }
  if (!spec().has_states()) return;
  ops_.send_states(batch_->attention);
  shape_.keeps = !resident_;
}

/// Not where routers are asked ahead: guesses of two layers have a place at a time.
bool CudaPass::all_resident() const {
  return !p_.options.capacity_factor && step_.asked_ahead() == 0 && slots_.holds_all();
}

/// A layer that cannot be told apart on the device from one that drops rows is launched when its rows are known. Where
/// not all experts are resident, no second layer is queued on an assumption about the one before.
bool CudaPass::expects_all(int32_t layer) {
  if (resident_) return true;
  return machine_.assumptions() == 0 && !p_.options.capacity_factor && step_.guard().left_out().empty() &&
         (slots_.holds_all() || layers_[static_cast<size_t>(layer)].calm >= calm_visits_) &&
         has_dense_behind(static_cast<size_t>(layer));
}

// --- what the host does beside it ---

Status CudaPass::take_routes(size_t layer) {
  if (queue_.error == 0) queue_.note("wait_event", queue_.functions.wait_event(layers_[layer].routed));
  MOESTRO_RETURN_IF_ERROR(ops_.status());
  at_ = {step_.moe_layer(layer)};
  routed_ = p_.experts.route(at_, step_.ids(layer, step_.all_rows()), top_k_, step_.guard().left_out());
  if (!step_.is_watched()) return Status::ok();
  step_.tell_watch(layer, routed_);
  watch_->foresee(at_.layer);
  return Status::ok();
}

bool CudaPass::lease(size_t layer) {
  missing_.clear();
  for (const lanes::RoutedExpert& r : routed_) {
    if (p_.experts.acquire(r.expert, at_.layer, r.expert)) step_.marks().uses(static_cast<int32_t>(layer), r.expert);
    else missing_.push_back(r);
  }
  return missing_.empty();
}

bool CudaPass::lie_as_launched(size_t layer) const {
  const uint64_t* launched = tables_.data() + table_of(layer);
  return std::ranges::all_of(routed_,
                             [&](const lanes::RoutedExpert& r) { return address(r.expert) == launched[r.expert]; });
}

/// What was queued behind the layer's router is void: the rows that entered its experts are as they were, the rest of
/// their input is made again. States of sequences were kept.
void CudaPass::rewind(size_t layer) {
  ++work_.rewinds;
  again_end_ = kept_end_;
  routers_.clear();
  engine::LayerMath& math = step_.math();
  step_.marks().begin(lanes::TaskKind::kRouter, static_cast<int32_t>(layer));
  math.norm_after_attention(layer, stream(layer));
  if (const float* kept = kept_inputs_[layers_[layer].stream])
    memory_.copy(math.h(), kept, step_.rows() * hidden_ * kFloatBytes);
  step_.weight_inputs(layer, step_.all_rows());
  for (HeldLayer& held : held_)
    if (held.layer > layer) held.is = HeldLayer::kToBeQueued;
  if (spec().layers[layer].moe.shared_ffn > 0) {
    math.shared_expert(layer);
    reads_dense(layer);
  }
  step_.marks().end();
  step_.forget_notes(layer);
}

/// Where each expert of a layer that was not queued ahead is computed.
Status CudaPass::find_places(size_t layer) {
  step_.clear_rows(p_.experts.dropped(at_));
  places_.assign(routed_.size(), lanes::Place::kHere);
  std::span<const lanes::RoutedExpert> on_host;
  if (host_experts_) on_host = host_experts_->choose(at_, missing_, step_.expert_input(), step_.rows());
  for (size_t i = 0; i < routed_.size(); ++i) {
    if (p_.experts.data(at_.layer, routed_[i].expert) != nullptr) continue;
    const bool here = std::ranges::find(on_host, routed_[i].expert, &lanes::RoutedExpert::expert) != on_host.end();
    places_[i] = here ? lanes::Place::kHost : lanes::Place::kArrives;
  }
  machine_.routed(static_cast<int32_t>(layer), at_.micro_batch, routed_, places_);
  return ops_.status();
}

Status CudaPass::take_choice(lanes::TaskId router) {
  const auto layer = static_cast<size_t>(machine_[router].layer);
  MOESTRO_RETURN_IF_ERROR(take_routes(layer));
  const bool all_there = lease(layer), ahead = machine_.assumptions() > 0;
  layers_[layer].calm = all_there ? std::min(layers_[layer].calm + 1, calm_visits_) : 0;
  if (ahead && all_there && lie_as_launched(layer)) {
    machine_.holds(static_cast<int32_t>(layer));
    return let_go();
  }
  if (resident_) return internal_error("an expert of a device that holds them all is not where it was");
  if (ahead) rewind(layer);
  return find_places(layer);
}

Status CudaPass::take_arrival(std::vector<lanes::TaskId>& ended) {
  MOESTRO_ASSIGN_OR_RETURN(const int32_t expert, p_.experts.wait());
  if (p_.experts.data(at_.layer, expert) == nullptr) {
    step_.fail_users(at_, expert, p_.experts.failure(at_.layer, expert));
    step_.clear_rows(p_.experts.rows(at_, expert));
  }
  --reads_;
  ended.push_back(read_of_[static_cast<size_t>(expert)]);
  return Status::ok();
}

Status CudaPass::wait_any(std::vector<lanes::TaskId>& ended) {
  if (reads_ > 0) return take_arrival(ended);
  if (!routers_.empty()) {
    const lanes::TaskId router = routers_.front();
    routers_.pop_front();
    MOESTRO_RETURN_IF_ERROR(take_choice(router));
    MOESTRO_RETURN_IF_ERROR(let_dense_go());
    ended.push_back(router);
    return Status::ok();
  }
  if (!head_queued_) head();
  MOESTRO_RETURN_IF_ERROR(ops_.wait());
  ended.push_back(last_queued_);
  return Status::ok();
}

Status CudaPass::compute_on_host(std::span<const lanes::TaskId> tasks) {
  work_.host_experts += tasks.size(), work_.host_rows += host_experts_->compute(step_.expert_rows());
  for (const HostExperts::Spoiled& expert : host_experts_->spoiled()) step_.fail_users(at_, expert.expert, expert.why);
  return ops_.status();
}

/// Nothing is held while the host waits: what is queued reads its slot before the next copy into it.
Status CudaPass::let_go() {
  if (!std::exchange(told_, true)) MOESTRO_RETURN_IF_ERROR(slots_.launched());
  for (const lanes::RoutedExpert& r : routed_) step_.release(at_, r.expert);
  return Status::ok();
}

}  // namespace moestro::cuda
