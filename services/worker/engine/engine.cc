#include "services/worker/engine/engine_impl.h"

#include <algorithm>
#include <utility>

#include "common/dense_layout.h"
#include "common/mixed_refusals.h"
#include "services/worker/engine/host_attention.h"
#include "services/worker/engine/kv_ring.h"
#include "services/worker/engine/visible_positions.h"

namespace moestro::engine {
namespace {

Status check_precision(const char* flag, DType precision, const store::Manifest& manifest) {
  const std::vector<DType>& held = manifest.expert_precisions;
  if (std::find(held.begin(), held.end(), precision) != held.end()) return Status::ok();
  std::string names;
  for (const DType d : held) names += (names.empty() ? "" : ", ") + std::string(dtype_name(d));
  return invalid_argument(std::string(flag) + " " + std::string(dtype_name(precision)) + ": the pack of '" +
                          manifest.model_name + "' has its experts as " + names +
                          "; `moestro pack --experts` adds others to a new pack");
}

}  // namespace

/// Where the CPU computes, host memory is the KV's home in any case.
Status Engine::Impl::check_schedule() {
  if (options.cut.count < 0 || options.cut.rows < 0)
    return invalid_argument("--micro-batches " + std::to_string(options.cut.count) + ", --micro-batch-rows " +
                            std::to_string(options.cut.rows) + ": a micro-batch has at least one row");
  if (backend.kv_link == nullptr && backend.memory.is_host()) options.kv_home = KvHome::kDevice;
  if (options.kv_home == KvHome::kHost) MOESTRO_RETURN_IF_ERROR(check_kv_in_host_memory(description.spec));
  if (options.schedule == ScheduleKind::kCgo) MOESTRO_RETURN_IF_ERROR(check_cgo());
  if (options.kv_home == KvHome::kDevice) {
    backend.kv_link = nullptr;
    return Status::ok();
  }
  if (backend.kv_link == nullptr)
    return unsupported("--kv-home host on this device, whose link does not carry the KV of running sequences");
  if (options.schedule == ScheduleKind::kLayerwise)
    return unsupported("--kv-home host with the layerwise schedule, which does not move KV; take --schedule "
                       "expert-pipeline or cgo");
  return Status::ok();
}

Status Engine::Impl::check_cgo() const {
  if (backend.host_ops == nullptr || options.kv_home == KvHome::kDevice)
    return unsupported("--schedule cgo on this device, for which no host attends; take a GPU or an emulated device "
                       "with --kv-home host, or another schedule");
  if (options.kv_resident_tokens > 0)
    return invalid_argument("--kv-resident-tokens " + std::to_string(options.kv_resident_tokens) +
                            " with --schedule cgo: the host attends to all of the KV cache; leave it out");
  return check_host_attention(description.spec, options);
}

Status Engine::Impl::load() {
  MOESTRO_RETURN_IF_ERROR(check_options(options, backend.ops.options().deterministic));
  const store::Manifest& manifest = source.manifest();
  MOESTRO_ASSIGN_OR_RETURN(description, model::describe_model(manifest.config_json, manifest.generation_config_json));
  MOESTRO_RETURN_IF_ERROR(check_schedule());
  MOESTRO_RETURN_IF_ERROR(check_overtaking());
  const model::ModelSpec& spec = description.spec;
  if (options.state_slots > 0 && !spec.has_states())
    return invalid_argument("--state-slots " + std::to_string(options.state_slots) +
                            ": the model has no states of sequences; leave it out");
  MOESTRO_RETURN_IF_ERROR(check_visible(options.visible, spec));
  MOESTRO_RETURN_IF_ERROR(check_mixers(spec, options.visible, backend.ops));
  if (spec.is_encoder_decoder()) MOESTRO_RETURN_IF_ERROR(check_encoder_decoder(options));
  const int64_t moe_layers = spec.moe_layers();
  if (moe_layers == 0) return unsupported("a model without a single MoE layer");
  const DType precision = options.expert_precision.value_or(manifest.expert_precisions.front());
  MOESTRO_RETURN_IF_ERROR(check_precision("--precision", precision, manifest));
  MOESTRO_ASSIGN_OR_RETURN(layouts.full, layouts_of(precision));
  MOESTRO_RETURN_IF_ERROR(load_low_copies());
  MOESTRO_ASSIGN_OR_RETURN(weights, DenseWeights::load(source, description, backend.ops, backend.memory));

  const int64_t blocks = ceil_div(options.kv_tokens, kernels::kKvBlockTokens);
  limits = {.model = options.model, .vocab = spec.vocab, .kv_blocks = blocks,
            .kv_host_blocks = ceil_div(options.kv_host_tokens, kernels::kKvBlockTokens),
            .context_max = positions_max(options, spec, blocks),
            .step_tokens_max = options.step_tokens_max, .step_sequences_max = options.step_sequences_max,
            .visible = visible_in_all(spec, options.visible),
            .mixed = options.mixed.has_value(),
            .encoder_decoder = spec.is_encoder_decoder()};
  if (limits.kv_host_blocks > 0 && limits.visible.window > 0)
    return invalid_argument("--kv-host-tokens: queries see a window of " + std::to_string(limits.visible.window) +
                            " positions, and blocks that leave it are not needed again; leave it out");
  MOESTRO_ASSIGN_OR_RETURN(cache, KvCache::create(spec, options, backend.memory));
  MOESTRO_ASSIGN_OR_RETURN(states, SequenceStates::create(spec, options, backend.memory));
  limits.state_slots = states->slots(), limits.state_interval = states->interval();
  if (knows_routes())
    routes = RouteMemory(blocks + limits.kv_host_blocks, kernels::kKvBlockTokens, moe_layers, spec.moe().top_k);
  rope = RopeTables(spec.rope, std::min(limits.context_max, spec.max_position));
  shape = model_shape(spec, *weights, layouts.full, *cache);
  MOESTRO_RETURN_IF_ERROR(make_stream());
  MOESTRO_RETURN_IF_ERROR(make_track(usual, options.step_tokens_max));
  // A parked step holds layers that it has asked for ahead: another one might wait for their places for ever.
  if (!spec.has_states() && !spec.is_encoder_decoder() && !stream)
    limits.overtaking_tokens_max = std::min(options.overtaking_tokens_max, options.step_tokens_max);
  return limits.overtaking_tokens_max > 0 ? make_track(overtaking, limits.overtaking_tokens_max) : Status::ok();
}

Result<std::vector<ExpertLayout>> Engine::Impl::layouts_of(DType precision) const {
  const store::Manifest& manifest = source.manifest();
  const model::ModelSpec& spec = description.spec;
  MOESTRO_ASSIGN_OR_RETURN(auto found, manifest.expert_layouts(spec.moe().expert, precision));
  if (std::ssize(found) != spec.moe_layers()) return corrupt("the pack has experts of another number of layers");
  for (const ExpertLayout& layout : found)
    for (const DType d : {layout.formats().gate, layout.formats().up, layout.formats().down})
      if (!backend.ops.supports(d))
        return unsupported("experts as " + std::string(dtype_name(d)) +
                           " on this device; choose another with --precision, or pack one (moestro pack --experts)");
  for (const store::Blob& b : manifest.blobs)
    if (b.kind == store::BlobKind::kExpert && b.precision == precision &&
        (b.moe_layer.value >= found.size() || b.length != static_cast<uint64_t>(found[b.moe_layer.value].bytes())))
      return corrupt("expert " + std::to_string(b.expert.value) + " of MoE layer " + std::to_string(b.moe_layer.value) +
                     " has " + std::to_string(b.length) + " bytes, which is not what its shape needs");
  return found;
}

Status Engine::Impl::load_low_copies() {
  if (!options.mixed) return Status::ok();
  const DType low = options.mixed->low;
  if (!backend.memory.is_host()) return mixed_on_a_gpu();
  MOESTRO_RETURN_IF_ERROR(check_precision("--mixed", low, source.manifest()));
  MOESTRO_ASSIGN_OR_RETURN(layouts.low, layouts_of(low));
  for (size_t l = 0; l < layouts.full.size(); ++l)
    if (layouts.low[l].bytes() >= layouts.full[l].bytes())
      return invalid_argument("--mixed " + std::string(dtype_name(low)) + ": its experts are not smaller than the ones "
                              "that are served (--precision)");
  return Status::ok();
}

Status Engine::Impl::make_stream() {
  if (source.streamed().empty()) return Status::ok();
  const std::string until = std::string(backend.dense_over_link ? "give the device more (vram=SIZE, dense=counted)"
                                                                   : "raise --dram") + " until all of them stay";
  if (options.schedule == ScheduleKind::kCgo)
    return unsupported("--schedule cgo where dense weights take turns in memory: take --schedule layerwise or "
                       "expert-pipeline, or " + until);
  if (description.spec.is_encoder_decoder())
    return unsupported("a model with an encoder where dense weights take turns in memory: " + until);
  // Where kernels are queued ahead the pass holds layers by itself, and no task of the schedule reads them.
  const bool queues = !backend.memory.is_host();
  stream.emplace(source, *weights, description.spec, clock, queues);
  for (size_t layer = 0; layer < shape.layers.size(); ++layer) {
    shape.layers[layer].streamed_by_link = backend.dense_over_link;
    if (const auto blob = weights->streamed_blob(layer); blob && !queues)
      shape.layers[layer].streamed_bytes = static_cast<double>(source.manifest().blobs[*blob].length);
  }
  return Status::ok();
}

/// Sources have no sampler, no states and no KV of their own. No target of the same plan may use their memory: it would
/// be computed even if the source fails.
Status Engine::Impl::admit_source(const StepPlan& plan, uint32_t index, SequenceState& state) {
  const PlanSequence& s = plan.sequences[index];
  MOESTRO_RETURN_IF_ERROR(check_source(plan, s, on->ranges[index], limits));
  MOESTRO_RETURN_IF_ERROR(update_memory(s, on->ranges[index], limits, cache->filled(), state));
  on->sources.add(plan, index, on->ranges[index], state, rope, limits.visible);
  cache->mark_lost(state.memory, 0, on->ranges[index].count);  // until all of the plan has been admitted
  return Status::ok();
}

Status Engine::Impl::admit(const StepPlan& plan, uint32_t index) {
  const PlanSequence& s = plan.sequences[index];
  SequenceState& state = sequences.obtain(s.id);
  if (s.source && limits.encoder_decoder) return admit_source(plan, index, state);
  if (has_ended(plan, s, on->ranges[index], state)) return Status::ok();
  MOESTRO_RETURN_IF_ERROR(update_memory(s, on->ranges[index], limits, cache->filled(), state));
  MOESTRO_RETURN_IF_ERROR(update_blocks(s, limits, state.blocks));
  MOESTRO_RETURN_IF_ERROR(update_history(plan, s, limits, state));
  MOESTRO_RETURN_IF_ERROR(check_sequence(plan, s, on->ranges[index], state, limits, cache->filled()));
  const int64_t first = plan.tokens[on->ranges[index].first].position;
  MOESTRO_RETURN_IF_ERROR(check_states(s, first, first + on->ranges[index].count - 1, states->tokens_in()));
  MOESTRO_RETURN_IF_ERROR(cut_before(index, state, first));
  MOESTRO_RETURN_IF_ERROR(states->claim(first, s.state, s.states));
  on->batch.add(plan, index, on->ranges[index], state, rope, limits.visible);
  if (options.mixed)
    on->experts->low_shares().add(on->ranges[index].count, std::min(s.low_share_max, options.mixed->max_share),
                                  state.copies);
  if (!cache->has_places()) cache->mark_written(state.blocks, first, first + on->ranges[index].count);
  return Status::ok();
}

/// With cgo, a step that only decodes takes no places.
bool Engine::Impl::moves_kv() const {
  return cache->has_places() && !(options.schedule == ScheduleKind::kCgo && on->batch.decodes);
}

/// The schedules for throughput cut where the options say, and where the KV of the sequences before leaves no room for
/// this one's.
Status Engine::Impl::cut_before(uint32_t index, const SequenceState& state, int64_t first) {
  if (options.schedule == ScheduleKind::kLayerwise) return Status::ok();
  const int64_t rows = on->ranges[index].count;
  const int64_t blocks = moves_kv() ? place_blocks_of(*cache, state.blocks, first, rows) : 0;
  if (moves_kv() && blocks > cache->place_blocks())
    return exhausted("its step needs " + std::to_string(blocks * kernels::kKvBlockTokens) +
                     " tokens of KV on the device at once, which has room for " +
                     std::to_string(cache->place_blocks() * kernels::kKvBlockTokens) + " (--kv-ring-tokens)");
  if (on->cut.before(rows, blocks)) on->batch.begin_micro_batch();
  return Status::ok();
}

void Engine::Impl::release(std::span<const ReleasedSequence> released) {
  for (const ReleasedSequence& r : released) {
    sequences.forget(r.id);
    if (watch != nullptr) watch->forget(r.id);
    if (release_observer) release_observer(r);
  }
}

/// Whoever asks for copies that cannot be made has another idea of what lies in this cache: then nothing that lies
/// there is read again.
Status Engine::Impl::copy_kv(const StepPlan& plan) {
  if (Status checked = check_copies(plan, limits); !checked.is_ok()) {
    cache->forget_all();
    return checked;
  }
  on->pass->copy_kv(plan.kv_copies);
  for (const KvCopy& c : plan.kv_copies) {
    cache->mark_copied(c.from, c.to);
    if (knows_routes()) routes.copy_block(c.from, c.to);
  }
  return Status::ok();
}

Status Engine::Impl::prepare(const StepPlan& plan, PlanId before) {
  // Whatever becomes of the plan: whoever made it goes by them.
  release(plan.released);
  MOESTRO_RETURN_IF_ERROR(copy_kv(plan));
  if (plan.parent.value != 0 && plan.parent != before)
    return unavailable("plan " + std::to_string(plan.id.value) + " builds on plan " +
                       std::to_string(plan.parent.value) + ", which failed or is not the one before it");
  MOESTRO_RETURN_IF_ERROR(check_plan(plan, limits, on->ranges));
  for (StepBatch* of : {&on->sources, &on->batch}) {
    of->clear();
    of->rows_of.resize(plan.sequences.size());
  }
  on->experts->low_shares().clear();
  on->failed.assign(plan.sequences.size(), Status::ok());
  states->begin_plan();
  on->batch.decodes = std::ranges::all_of(on->ranges, [](const TokenRange& range) { return range.count <= 1; });
  on->cut.begin(options.cut, static_cast<int64_t>(plan.tokens.size()), moves_kv() ? cache->place_blocks() : 0);
  // Sources first: until all of the plan has been admitted, their memory is no target's.
  for (StepBatch* of : {&on->sources, &on->batch}) {
    for (uint32_t i = 0; i < plan.sequences.size(); ++i) {
      if (in_turn() && std::ranges::binary_search(plan.micro_batches, i)) of->begin_micro_batch();
      if (plan.sequences[i].source == of->encodes) on->failed[i] = admit(plan, i);
    }
  }
  for (uint32_t i = 0; i < plan.sequences.size() && on->sources.rows() > 0; ++i)
    if (const TokenRange rows = on->sources.rows_of[i]; rows.count > 0)
      cache->mark_written(sequences.obtain(plan.sequences[i].id).memory, 0, rows.count);
  // With places, what a sequence writes is in host memory after its micro-batch: no other of this plan may read it.
  for (uint32_t i = 0; i < plan.sequences.size() && cache->has_places(); ++i) {
    const TokenRange rows = on->batch.rows_of[i];
    if (rows.count == 0) continue;
    const int64_t first = on->batch.positions[rows.first];
    cache->mark_written(sequences.obtain(plan.sequences[i].id).blocks, first, first + rows.count);
  }
  return Status::ok();
}

/// A pass of the step, with what it gives all of it.
Status Engine::Impl::execute(const StepPlan& plan, StepBatch& of, StepOutcome& out) {
  if (of.rows() == 0) return Status::ok();
  // While a step has parked its weights stay as they are: if they were wrong, that is found when either step ends.
  if (on == &usual) MOESTRO_RETURN_IF_ERROR(weights->renew(source));
  if (stream) stream->begin(plan.id);
  if (watch != nullptr) tell_found(plan);
  if (watch != nullptr) watch->begin_step(plan.id, watched_sequences(plan, of));
  MOESTRO_ASSIGN_OR_RETURN(const lanes::ExecutionTotals totals, on->pass->run(plan, of, on->failed, out.sequences));
  if (watch != nullptr) watch->end_step();
  MOESTRO_RETURN_IF_ERROR(weights->check());
  if (stream) MOESTRO_RETURN_IF_ERROR(stream->check());
  out.stall_us += static_cast<uint64_t>(totals.stalled.count() / 1000);
  out.kv_stall_us += static_cast<uint64_t>(totals.kv_stalled.count() / 1000);
  out.parked_us += static_cast<uint64_t>(totals.parked.count() / 1000);
  out.parks += static_cast<uint32_t>(totals.parks);
  if (stream) out.dense_stall_us += static_cast<uint64_t>(stream->stalled().count() / 1000);
  out.nonfinite_sequences += on->pass->not_finite();
  out.dropped_rows += on->experts->over_capacity();
  out.device = on->pass->device_work();
  const std::span<const CopyCounts> by_layer = on->experts->layer_copies();
  out.layer_copies.assign(by_layer.begin(), by_layer.end());
  return Status::ok();
}

std::span<const WatchedSequence> Engine::Impl::watched_sequences(const StepPlan& plan, const StepBatch& of) {
  on->watched.clear();
  for (uint32_t i = 0; i < plan.sequences.size(); ++i) {
    const TokenRange rows = of.rows_of[i];
    if (rows.count == 0) continue;
    const SequenceId id = plan.sequences[i].id;
    on->watched.push_back({id, rows.count == 1 && sequences.obtain(id).decoding, static_cast<int32_t>(rows.first),
                       static_cast<int32_t>(rows.count)});
  }
  return on->watched;
}

/// What was there of a sequence before its first step here.
void Engine::Impl::tell_found(const StepPlan& plan) {
  for (uint32_t i = 0; i < plan.sequences.size() && knows_routes(); ++i) {
    const TokenRange rows = on->batch.rows_of[i];
    const SequenceState& state = sequences.obtain(plan.sequences[i].id);
    if (rows.count == 0 || state.last_plan.value != 0) continue;
    const int64_t before = on->batch.positions[rows.first];
    found_counts.clear();
    if (before > 0) routes.count(state.blocks, 0, before, found_counts);
    if (!found_counts.empty()) watch->found(plan.sequences[i].id, before, found_counts);
  }
}

/// A failed sequence's keys and values are not to be built upon.
void Engine::Impl::lose_kv(const StepPlan& plan, uint32_t index) {
  const TokenRange rows = batch_of(plan.sequences[index]).rows_of[index];
  if (rows.count == 0) return;
  if (plan.sequences[index].source)
    return cache->mark_lost(sequences.obtain(plan.sequences[index].id).memory, 0, rows.count);
  const int64_t first = on->batch.positions[rows.first];
  cache->mark_lost(sequences.obtain(plan.sequences[index].id).blocks, first, first + rows.count);
  states->lose(plan.sequences[index].states);
}

void Engine::Impl::finish(const StepPlan& plan, uint32_t index, SequenceOutcome& out) {
  out.id = plan.sequences[index].id;
  out.status = on->failed[index];
  SequenceState& state = sequences.obtain(out.id);
  state.last_plan = plan.id;
  state.last_sampled = -1;
  if (!out.status.is_ok()) {
    out.sampled.clear();
    out.scores.clear();
    out.state_sum.clear();
    return lose_kv(plan, index);
  }
  const TokenRange rows = batch_of(plan.sequences[index]).rows_of[index];
  if (rows.count == 0) return;  // it had ended before
  if (limits.encoder_decoder) return count_stack(plan.sequences[index], rows, state, out);
  const int64_t first = on->batch.positions[rows.first], last = first + rows.count;
  const int64_t top_k = description.spec.moe().top_k, moe_layers = description.spec.moe_layers();
  if (options.mixed) {
    out.copies = on->experts->copies(rows);
    out.copies.choices = static_cast<uint64_t>(rows.count * top_k * moe_layers);
    state.copies += out.copies;
  }
  const int64_t counted = std::max(state.counted, plan.sequences[index].counted);
  const int64_t fresh = std::clamp<int64_t>(counted - first, 0, rows.count);
  if (knows_routes()) {
    if (counted < first)
      routes.count(state.blocks, counted, first,
                   out.activations);  // computed for another, and used by this one as well
    routes.keep(state.blocks, first, rows.count, on->pass->routes(), on->batch.rows(), rows.first);
  }
  activation::count_routes(on->pass->routes(), moe_layers, on->batch.rows(), top_k, rows.first + fresh,
                           rows.first + rows.count, count_scratch, out.activations);
  if (observer && fresh < rows.count)
    observer({out.id, state.decoding, plan.sequences[index].text_ends, first + fresh, rows.count - fresh, moe_layers,
              top_k, on->batch.rows(), rows.first + fresh, on->pass->routes(), on->pass->route_weights()});
  state.counted = std::max(state.counted, last);
  if (!plan.sequences[index].score_targets.empty()) out.scores.resize(plan.sequences[index].score_targets.size());
  if (!out.sampled.empty()) {
    state.last_sampled = out.sampled.back().id;
    state.decoding = true;
  }
}

/// `finish` of a sequence of an encoder-decoder model: of the MoE layers of the stack that its rows went through. A
/// source counts each time that it is encoded, as it has no positions of the target's.
void Engine::Impl::count_stack(const PlanSequence& s, TokenRange rows, SequenceState& state, SequenceOutcome& out) {
  const StepBatch& of = batch_of(s);
  const model::ModelSpec& spec = description.spec;
  const int64_t encoder = spec.encoder_moe_layers(), top_k = spec.moe().top_k;
  const int64_t first_layer = s.source ? 0 : encoder, layers = s.source ? encoder : spec.moe_layers() - encoder;
  int64_t fresh = 0;
  if (!s.source) {
    const int64_t first = of.positions[rows.first];
    fresh = std::clamp<int64_t>(std::max(state.counted, s.counted) - first, 0, rows.count);
    state.counted = std::max(state.counted, first + rows.count);
  }
  const auto stack = on->pass->routes().subspan(static_cast<size_t>(first_layer * of.rows() * top_k),
                                            static_cast<size_t>(layers * of.rows() * top_k));
  const size_t before = out.activations.size();
  activation::count_routes(stack, layers, of.rows(), top_k, rows.first + fresh, rows.first + rows.count, count_scratch,
                           out.activations);
  for (size_t i = before; i < out.activations.size(); ++i)
    out.activations[i].layer.value += static_cast<uint32_t>(first_layer);
  if (!s.score_targets.empty()) out.scores.resize(s.score_targets.size());
  if (out.sampled.empty()) return;
  state.last_sampled = out.sampled.back().id;
  state.decoding = true;
}

void StepOutcome::begin(PlanId of, size_t count) {
  sequences.resize(count);
  for (SequenceOutcome& s : sequences) {
    s.sampled.clear();
    s.scores.clear();
    s.activations.clear();
    s.state_sum.clear();
    s.copies = {};
    s.status = Status::ok();
  }
  // The counters go back to zero with everything that a new outcome would have.
  layer_copies.clear();
  *this = StepOutcome{.plan = of, .sequences = std::move(sequences), .layer_copies = std::move(layer_copies)};
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::create(const EngineOptions& options, store::BlobSource& source,
                                               kernels::Ops& ops, const Clock& clock) {
  return create(options, source, cpu_backend(ops), clock);
}

Result<std::unique_ptr<Engine>> Engine::create(const EngineOptions& options, store::BlobSource& source,
                                               const Backend& backend, const Clock& clock) {
  auto impl = std::make_unique<Impl>(options, source, backend, clock);
  MOESTRO_RETURN_IF_ERROR(impl->load());
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

const model::ModelSpec& Engine::spec() const { return impl_->description.spec; }
const EngineLimits& Engine::limits() const { return impl_->limits; }
int64_t Engine::kv_bytes() const { return impl_->cache->bytes(); }
int64_t Engine::state_bytes() const { return impl_->states->bytes(); }
int64_t Engine::kv_host_bytes() const { return impl_->cache->host_bytes(); }
void Engine::set_timeline(lanes::Timeline* timeline) {
  impl_->usual.pass->set_timeline(timeline);
  if (impl_->overtaking.pass != nullptr) impl_->overtaking.pass->set_timeline(timeline);
}
void Engine::set_expert_watch(ExpertWatch* watch) {
  impl_->watch = watch;
  impl_->usual.pass->set_watch(watch);
  if (impl_->overtaking.pass != nullptr) impl_->overtaking.pass->set_watch(watch);
}
void Engine::set_route_observer(RouteObserver observer) { impl_->observer = std::move(observer); }
void Engine::set_release_observer(ReleaseObserver observer) { impl_->release_observer = std::move(observer); }
void Engine::release(std::span<const ReleasedSequence> released) { impl_->release(released); }

void Engine::forget_all() {
  impl_->sequences.forget_all();
  impl_->last_done = PlanId();
  impl_->cache->forget_all();
  impl_->states->forget_all();
}

Engine::WeightTraffic Engine::weight_traffic() const {
  WeightTraffic traffic{.head_bytes = impl_->shape.head_weight_bytes, .token_bytes = impl_->shape.embed_bytes_per_token,
                        .expert_bytes = 0};
  const std::vector<ExpertLayout>& layouts = impl_->layouts.full;
  for (const ExpertLayout& layout : layouts)
    traffic.expert_bytes += static_cast<double>(layout.bytes()) / static_cast<double>(layouts.size());
  for (size_t i = 0; i < impl_->shape.layers.size(); ++i) {
    const lanes::LayerShape& l = impl_->shape.layers[i];
    double of_rows = l.attention_weight_bytes + l.router_weight_bytes + l.dense_weight_bytes + l.shared_weight_bytes;
    for (const kernels::Weight* w : {&impl_->weights->layer(i).cross.k, &impl_->weights->layer(i).cross.v}) {
      const auto of_memory = static_cast<double>(dense_bytes(w->dtype, w->rows, w->cols));
      of_rows -= of_memory, traffic.source_bytes += of_memory;
    }
    const bool encodes = impl_->description.spec.layers[i].stack == model::LayerSpec::Stack::kEncoder;
    (encodes ? traffic.source_bytes : traffic.layer_bytes) += of_rows;
  }
  return traffic;
}

}  // namespace moestro::engine
