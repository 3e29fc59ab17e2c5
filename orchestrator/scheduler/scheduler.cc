#include <algorithm>
#include <functional>

#include "common/check.h"
#include "orchestrator/scheduler/scheduler_parts.h"

namespace moestro::orchestrator {

Scheduler::Scheduler(SchedulerOptions options) : options_(std::move(options)), hasher_(options_.prefix_secret) {
  MOESTRO_CHECK(options_.steps_in_flight == 1 || options_.steps_in_flight == 2,
                "a worker has one or two plans under way");
}
Scheduler::~Scheduler() = default;

std::vector<Action> Scheduler::step(Event event) {
  actions_.clear();
  std::visit([this](auto&& e) { on(std::move(e)); }, std::move(event));
  begin_to_leave();
  admit();
  make_plans();
  let_leave();
  make_releases();
  return std::move(actions_);
}

size_t Scheduler::waiting_of_batches() const {
  const auto of_batch = [](const Sequence* s) { return s->request.background; };
  return batches_.size() + aged_waiting_ + static_cast<size_t>(std::ranges::count_if(apart_, of_batch));
}

size_t Scheduler::places() const {
  size_t places = 0;
  for (const auto& [id, w] : workers_)
    places += w->has_states() ? std::min(w->limits.step_sequences_max, w->limits.state_slots)
                              : w->limits.step_sequences_max;
  return places;
}

KvFigures Scheduler::kv() const {
  KvFigures figures;
  for (const auto& [id, w] : workers_) {
    figures.blocks += w->kv.total();
    figures.held += w->kv.held();
    figures.cached += w->kv.cached();
    figures.host_blocks += w->kv.host().total();
    figures.host_used += w->kv.host().used();
    figures.state_slots += w->states.total();
    figures.states_held += w->states.held();
    figures.states_cached += w->states.cached();
  }
  figures.reused_tokens = reused_tokens_;
  figures.moved_out_tokens = moved_out_;
  figures.moved_in_tokens = moved_in_;
  figures.states_kept = states_kept_;
  figures.states_restored = states_restored_;
  return figures;
}

Scheduler::Sequence* Scheduler::find(SequenceId id) {
  const auto it = sequences_.find(id);
  return it == sequences_.end() ? nullptr : it->second.get();
}

void Scheduler::on(Submitted&& event) {
  MOESTRO_CHECK(!event.request.prompt.empty(), "a prompt has at least one token");
  MOESTRO_CHECK(event.request.pooling == Pooling::kNone || event.request.tokens_max == 0, "only prompts are pooled");
  MOESTRO_CHECK(!event.request.source || !event.request.source->empty(), "a source has at least one token");
  auto s = std::make_unique<Sequence>();
  s->tokens = event.request.prompt;
  s->request = std::move(event.request);
  if (s->request.pooling == Pooling::kLast) s->pooled = s->prompt() - 1;
  s->without_worker_since = s->further_at = now_;
  enter_origin(*s);
  enqueue(*s, /*first=*/false);
  const SequenceId id = s->request.id;
  MOESTRO_CHECK(sequences_.emplace(id, std::move(s)).second, "a sequence id is used once");
}

void Scheduler::on(Cancelled&& event) {
  Sequence* s = find(event.id);
  if (s == nullptr) return;  // it has just finished
  if (event.sampled > 0) {  // its text has ended it, at a stop string
    s->stands = s->prompt() + event.sampled - 1;  // the last was sampled, not computed
    if (s->request.background) answers_.ended(event.sampled);
  }
  remove(*s);
}

void Scheduler::on(WorkerJoined&& event) {
  const WorkerLimits& l = event.limits;
  Worker& worker = *workers_
                        .emplace(event.worker, std::make_unique<Worker>(Worker{
                                                   event.worker, l, event.version,
                                                   KvBlocks(l.kv_blocks, l.kv_block_tokens, l.kv_host_blocks)}))
                        .first->second;
  worker.batch_turn = BatchTurn(options_.interactive_weight);
  worker.step_growth = StepGrowth(options_.usual_step);
  if (!is_current(worker)) worker.leaves_from = now_ + options_.renew_pause;
  renewed_first_ = false;
  no_longer_missed(worker);
  set_apart();
}

void Scheduler::on(Tick&& event) {
  now_ = event.now;
  std::erase_if(missing_, [this](const Room& room) { return now_ - room.left >= options_.worker_wait; });
  age();
  if (!workers_.empty()) return;
  for (const FairQueue* queue : {&interactive_, &batches_})
    for (const SequenceId id : queue->waiting()) fail_if_forgotten(*find(id));
  for (Sequence* s : std::vector(apart_)) fail_if_forgotten(*s);
}

void Scheduler::fail_if_forgotten(Sequence& s) {
  if (now_ - s.without_worker_since < options_.worker_wait) return;
  const auto waited = std::chrono::duration_cast<std::chrono::seconds>(now_ - s.without_worker_since);
  fail(s, unavailable("no worker has been there for " + std::to_string(waited.count()) +
                      " s, and this request is not held longer (--worker-wait); try again later"));
}

/// Takes a sequence off its worker, to be prefilled again from its tokens.
void Scheduler::send_back(Worker& worker, Sequence& s) {
  withdraw_all(worker, s);
  give_back_all(worker, s);
  release(worker, s);
  std::erase(worker.running, &s);
  s.worker = nullptr;
  s.computed = 0;
  enqueue(s, /*first=*/true);
}

void Scheduler::release(Worker& worker, const Sequence& s) {
  worker.released.push_back({s.request.id, s.stands >= 0 ? std::min(s.stands, s.computed) : s.computed});
}

void Scheduler::remove(Sequence& s) {
  if (s.worker != nullptr) {
    withdraw_all(*s.worker, s);
    give_back_all(*s.worker, s);
    release(*s.worker, s);
    std::erase(s.worker->running, &s);
  } else {
    dequeue(s);
  }
  queue_of(s).leave(*s.flow);
  leave_origin(s);
  sequences_.erase(s.request.id);
}

void Scheduler::fail(Sequence& s, Status error) {
  actions_.push_back(Failed{s.request.id, std::move(error)});
  remove(s);
}

void Scheduler::fail(Part& part, const Status& error) {
  const std::vector<Sequence*> all = those_of(part);
  withdraw(part);
  for (Sequence* s : all) fail(*s, error);
}

void Scheduler::on(PlanDone&& event) {
  const auto it = workers_.find(event.worker);
  if (it == workers_.end()) return;
  Worker& worker = *it->second;
  const int64_t tokens = worker.step_times.done(event.outcome.plan, event.took);
  const auto flight = std::find_if(worker.flights.begin(), worker.flights.end(),
                                   [&](const Flight& f) { return f.plan == event.outcome.plan; });
  if (flight == worker.flights.end()) return;  // from a worker that was given up
  if (event.outcome.error.is_ok() && !flight->overtakes) worker.step_growth.done(tokens, event.took);
  const auto index = static_cast<size_t>(flight - worker.flights.begin());
  if (!event.outcome.error.is_ok()) return plan_failed(worker, index, event.outcome.error);
  if (index > 0 && !flight->overtakes)
    return plan_failed(worker, index, internal_error("the worker answered a plan before the one that it follows"));
  clear_sources(*flight, event.outcome);
  for (size_t i = 0; i < event.outcome.sequences.size(); ++i) {
    SequenceOutcome& outcome = event.outcome.sequences[i];
    if (Part* part = part_of(*flight, i, outcome.id)) apply(worker, *part, outcome);
  }
  for (Part& part : flight->parts)  // a plan answers for every sequence that it had
    if (part.sequence != nullptr) fail(part, internal_error("the worker's answer left this request out"));
  settle(worker, *flight);
  worker.flights.erase(flight);
}

/// The part that an outcome is of, unless its sequence has left; `index`: where it is if the worker answers in the
/// plan's order.
Scheduler::Part* Scheduler::part_of(Flight& flight, size_t index, SequenceId id) {
  const auto is_its = [&](const Part& p) { return p.sequence != nullptr && p.id == id; };
  if (index < flight.parts.size() && is_its(flight.parts[index])) return &flight.parts[index];
  const auto part = std::find_if(flight.parts.begin(), flight.parts.end(), is_its);
  return part == flight.parts.end() ? nullptr : &*part;
}

void Scheduler::leave_out_dropped(WorkerId worker, PlanOutcome& outcome) const {
  const auto it = workers_.find(worker);
  if (it == workers_.end()) return;
  for (Flight& flight : it->second->flights) {
    if (flight.plan != outcome.plan) continue;
    for (size_t i = 0; i < outcome.sequences.size(); ++i)
      if (part_of(flight, i, outcome.sequences[i].id) == nullptr) outcome.sequences[i].activations.clear();
  }
}

PlanWork Scheduler::work_of(WorkerId worker, PlanId plan) const {
  PlanWork work;
  const auto it = workers_.find(worker);
  if (it == workers_.end()) return work;
  for (const Flight& flight : it->second->flights) {
    if (flight.plan != plan) continue;
    for (const Part& part : flight.parts)
      work.tokens += part.tokens + part.source,
          work.reads_prompts = work.reads_prompts || part.tokens > 1 || part.source > 0;
  }
  return work;
}

/// What a part computed is there.
void Scheduler::land(Part& part) {
  let_go_of_states(*part.sequence->worker, part);
  part.sequence->in_flight -= part.tokens;
  part.sequence->awaited -= part.samples ? 1 : 0;
  if (part.source > 0) part.sequence->memory->under_way = false;
  part.sequence = nullptr;
}

/// What a part computes counts for nothing. The worker may not have taken the block table in: all of it is sent again.
void Scheduler::withdraw(Part& part) {
  if (part.sequence == nullptr) return;
  part.sequence->blocks_sent = 0;
  part.sequence->history_sent = 0;
  land(part);
}

void Scheduler::withdraw_all(Worker& worker, const Sequence& s) {
  for (Flight& flight : worker.flights)
    for (Part& part : flight.parts) {
      if (part.sequence != &s) continue;
      if (hand_on_source(worker, part)) continue;
      leave_written(worker, flight, part);
      withdraw(part);
    }
}

/// A plan that failed as a whole: its sequences are tried one by one, so that only the one at fault fails. What was
/// sent after it built on it: it is planned again, and is nobody's fault.
void Scheduler::plan_failed(Worker& worker, size_t index, const Status& error) {
  Flight failed = std::move(worker.flights[index]);
  worker.flights.erase(worker.flights.begin() + static_cast<std::ptrdiff_t>(index));
  settle(worker, failed);
  std::vector<SequenceId> touched;
  for (size_t later = index; later < worker.flights.size(); ++later) {
    if (worker.flights[later].overtakes) continue;  // it builds on no plan
    for (Part& part : worker.flights[later].parts) {
      touched.push_back(part.id);
      withdraw(part);
    }
    worker.flights[later].lost = true;
  }
  for (Part& part : failed.parts) {
    if (part.sequence == nullptr) continue;
    touched.push_back(part.id);
    if (failed.parts.size() == 1) {
      fail(part, error);
      continue;
    }
    Sequence& s = *part.sequence;
    if (part.source > 0) s.origin->alone = true;
    else s.alone_until = std::max(s.alone_until, part.end());
    withdraw(part);
  }
  if (worker.has_states()) begin_again(worker, touched);
}

/// Nobody knows whether their states have gone on. The last admitted is sent back first, so that the queue keeps the
/// order of admission.
void Scheduler::begin_again(Worker& worker, const std::vector<SequenceId>& ids) {
  std::vector<Sequence*> here;
  for (const SequenceId id : ids)
    if (Sequence* s = find(id); s != nullptr && s->worker == &worker) here.push_back(s);
  std::ranges::sort(here, std::ranges::greater(), &Sequence::admission);
  here.erase(std::unique(here.begin(), here.end()), here.end());
  for (Sequence* s : here) send_back(worker, *s);
}

void Scheduler::apply(Worker& worker, Part& part, SequenceOutcome& outcome) {
  Sequence& s = *part.sequence;
  const int64_t first = part.first, tokens = part.tokens;
  const bool sampled = part.samples;
  MOESTRO_CHECK(first == s.computed, "what is done of a sequence follows what was done before");
  if (part.source > 0) return take_in_source(part, outcome);
  if (outcome.error.is_ok()) keep_states(worker, s, part);
  land(part);
  if (!outcome.error.is_ok()) return fail(s, outcome.error);
  const bool scored = s.request.score_top >= 0 && first < s.prompt() - 1;
  const bool pooled = s.pools(first + tokens);
  if (outcome.sampled.size() != (sampled ? 1u : 0u) ||
      outcome.scores.size() != (scored ? static_cast<size_t>(tokens) : 0u) ||
      (pooled ? !pool(s, first + tokens, std::move(outcome.state_sum)) : !outcome.state_sum.empty()))
    return fail(s, internal_error("the worker's answer does not match what was asked of it"));
  s.computed = first + tokens;
  publish(worker, s, first);
  leave_behind(worker, s);
  s.reached = std::max(s.reached, s.computed);
  if (!s.alone()) s.deaths = 0;  // beyond where its workers died
  if (s.computed > s.furthest) {
    s.furthest = s.computed;
    s.further_at = now_;
  }

  Progress progress;
  progress.id = s.request.id;
  progress.prompt_tokens_done = std::min(s.computed, s.prompt());
  progress.prompt_tokens_cached = s.cached_tokens;
  progress.copies = outcome.copies;
  for (int64_t i = 0; scored && i < tokens; ++i) {
    const int64_t position = first + i;
    if (position < s.scored || position + 1 >= s.prompt()) continue;
    progress.prompt_scores.push_back(std::move(outcome.scores[static_cast<size_t>(i)]));
    s.scored = position + 1;
  }
  if (sampled) {
    s.tokens.push_back(outcome.sampled[0].id);
    s.allowed = nullptr;
    if (s.request.constraint && !ends(s, s.tokens.back()) && !s.request.constraint->accept(s.tokens.back()))
      return fail(s, internal_error("the worker sampled a token that it was told not to"));
    progress.sampled = std::move(outcome.sampled);
  }
  if (!progress.sampled.empty() || !progress.prompt_scores.empty() || pooled) s.version = worker.version;
  actions_.push_back(std::move(progress));
  if (finished(worker, s)) remove(s);
}

/// Takes in the sum of the states up to position `end`. False: it is not of as many values as those before.
bool Scheduler::pool(Sequence& s, int64_t end, std::vector<double> state_sum) {
  if (state_sum.empty() || (!s.state_sum.empty() && state_sum.size() != s.state_sum.size())) return false;
  if (s.state_sum.empty())
    s.state_sum = std::move(state_sum);
  else
    std::transform(s.state_sum.begin(), s.state_sum.end(), state_sum.begin(), s.state_sum.begin(), std::plus<>());
  s.pooled = end;
  return true;
}

/// The tokens that end a sequence.
std::vector<TokenId> Scheduler::ends_of(const Sequence& s) const {
  std::vector<TokenId> ends = s.request.stop_ids;
  if (!s.request.ignore_eos) ends.insert(ends.end(), options_.eos_ids.begin(), options_.eos_ids.end());
  return ends;
}

bool Scheduler::ends(const Sequence& s, TokenId token) const {
  const auto has = [token](const std::vector<TokenId>& ids) { return std::ranges::find(ids, token) != ids.end(); };
  return has(s.request.stop_ids) || (!s.request.ignore_eos && has(options_.eos_ids));
}

bool Scheduler::finished(Worker& worker, Sequence& s) {
  if (!s.samples()) {
    if (s.computed < s.length()) return false;
    if (s.request.pooling == Pooling::kMean)
      for (double& value : s.state_sum) value /= static_cast<double>(s.prompt());
    actions_.push_back(Finished{s.request.id, FinishReason::kLength, std::move(s.state_sum)});
    return true;
  }
  const int64_t sampled = s.length() - s.prompt();
  if (sampled == 0) return false;
  const bool said_all = s.request.constraint && s.request.constraint->complete();
  const bool stops = said_all || ends(s, s.tokens.back());
  const bool full = sampled >= s.request.tokens_max || s.length() >= worker.length_max(s);
  if (!stops && !full) return false;
  if (s.request.background) answers_.ended(sampled);
  actions_.push_back(Finished{s.request.id, stops ? FinishReason::kStop : FinishReason::kLength});
  return true;
}

}  // namespace moestro::orchestrator
