// Steps one after another, and one that overtakes another, which has parked.

#include <algorithm>
#include <string>

#include "common/check.h"
#include "services/worker/engine/engine_impl.h"

namespace moestro::engine {

Result<ExpertDispatch> Engine::Impl::make_dispatch(DType precision) {
  const model::ModelSpec& spec = description.spec;
  MOESTRO_ASSIGN_OR_RETURN(auto made,
                           ExpertDispatch::create(source, spec.moe_layers(), spec.moe().experts, precision));
  if (options.capacity_factor) made.set_capacity_factor(*options.capacity_factor);
  if (options.mixed) MOESTRO_RETURN_IF_ERROR(made.set_mixed(*options.mixed));
  return made;
}

Status Engine::Impl::make_track(Track& track, int64_t step_tokens_max) {
  track.options = options;
  track.options.step_tokens_max = step_tokens_max;
  const DType precision = options.expert_precision.value_or(source.manifest().expert_precisions.front());
  MOESTRO_ASSIGN_OR_RETURN(track.experts, make_dispatch(precision));
  const LayerMath::Parts math{description.spec, *weights, backend.ops, backend.memory, *cache, *states, rope};
  const auto encoder = static_cast<int32_t>(description.spec.encoder_layers());
  track.sources.encodes = true, track.sources.layers = {0, encoder};
  track.batch.layers = {encoder, -1};
  MOESTRO_ASSIGN_OR_RETURN(track.pass, backend.make_pass({track.options, math, layouts, *track.experts, shape, clock,
                                                         backend.kv_link, stream ? &*stream : nullptr,
                                                         options.schedule == ScheduleKind::kCgo ? backend.host_ops
                                                                                                : nullptr}));
  return Status::ok();
}

Status Engine::Impl::check_overtaking() const {
  if (options.overtaking_tokens_max < 0)
    return invalid_argument("a step that overtakes another has no fewer than 0 tokens");
  if (options.overtaking_tokens_max > 0 && !backend.parks)
    return unsupported("steps that overtake others on this device, which has been given later layers by then");
  return Status::ok();
}

/// Of a plan that is to run while another has parked. Its blocks are its own, as those of any plan are.
Status Engine::Impl::check_overtakes(const StepPlan& plan) const {
  const std::string name = "plan " + std::to_string(plan.id.value);
  if (static_cast<int64_t>(plan.tokens.size()) > limits.overtaking_tokens_max)
    return invalid_argument(name + " has " + std::to_string(plan.tokens.size()) + " tokens, and one that overtakes "
                            "another has at most " + std::to_string(limits.overtaking_tokens_max));
  if (plan.parent.value != 0 || !plan.released.empty() || !plan.kv_copies.empty())
    return invalid_argument(name + " overtakes another: it builds on no plan, releases nothing and copies nothing");
  for (const PlanSequence& s : plan.sequences)
    if (std::ranges::find(running->sequences, s.id, &PlanSequence::id) != running->sequences.end())
      return invalid_argument(name + " overtakes plan " + std::to_string(running->id.value) + ", which has sequence " +
                              std::to_string(s.id.value) + " too");
  return Status::ok();
}

Status Engine::Impl::run(const StepPlan& plan, PlanId before, StepOutcome& out) {
  const Nanos begin = clock.now();
  const store::BlobSource::Counters counted = source.counters(), apart = overtaken;
  MOESTRO_RETURN_IF_ERROR(prepare(plan, before));
  out.begin(plan.id, plan.sequences.size());
  for (StepBatch* of : {&on->sources, &on->batch}) {
    const Status executed = execute(plan, *of, out);
    if (!executed.is_ok()) {
      for (uint32_t i = 0; i < plan.sequences.size(); ++i) lose_kv(plan, i);
      return executed;
    }
    for (uint32_t i = 0; i < plan.sequences.size(); ++i)
      if (plan.sequences[i].source == of->encodes) finish(plan, i, out.sequences[i]);
  }
  const store::BlobSource::Counters now = source.counters();
  out.expert_hits = now.hits - counted.hits - (overtaken.hits - apart.hits);
  out.expert_misses = now.misses - counted.misses - (overtaken.misses - apart.misses);
  out.fetched_bytes = now.fetched_bytes - counted.fetched_bytes - (overtaken.fetched_bytes - apart.fetched_bytes);
  out.dense_bytes = now.streamed_bytes - counted.streamed_bytes;
  out.step_us = static_cast<uint64_t>((clock.now() - begin).count() / 1000) - out.parked_us;
  return Status::ok();
}

Status Engine::step(const StepPlan& plan, StepOutcome& out) {
  Impl& e = *impl_;
  e.running = &plan;
  const Status ran = e.run(plan, std::exchange(e.last_done, PlanId()), out);
  e.running = nullptr;
  if (ran.is_ok()) e.last_done = plan.id;
  return ran;
}

void Engine::set_breaks(lanes::Breaks* breaks) { impl_->usual.pass->set_breaks(breaks); }

Status Engine::overtake(const StepPlan& plan, StepOutcome& out) {
  Impl& e = *impl_;
  MOESTRO_CHECK(e.running != nullptr && e.on == &e.usual && e.overtaking.pass != nullptr,
                "a plan overtakes one that has parked, on an engine whose steps do");
  MOESTRO_RETURN_IF_ERROR(e.check_overtakes(plan));
  const store::BlobSource::Counters before = e.source.counters();
  if (e.watch != nullptr) e.watch->park();
  e.on = &e.overtaking;
  const Status ran = e.run(plan, PlanId(), out);
  e.on = &e.usual;
  if (e.watch != nullptr) e.watch->resume(e.usual.pass->routed_layer());
  e.usual.pass->resume(e.running->id);
  const store::BlobSource::Counters after = e.source.counters();
  e.overtaken.hits += after.hits - before.hits;
  e.overtaken.misses += after.misses - before.misses;
  e.overtaken.fetched_bytes += after.fetched_bytes - before.fetched_bytes;
  return ran;
}

}  // namespace moestro::engine
