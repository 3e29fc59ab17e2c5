#include "orchestrator/scheduler/scheduler.h"

#include <algorithm>

#include "common/check.h"

namespace moestro::orchestrator {

struct Scheduler::Sequence {
  SequenceRequest request;
  std::vector<TokenId> tokens;  ///< prompt and what has been sampled
  int64_t computed = 0;         ///< positions whose KV its worker holds
  int64_t scored = 0;           ///< prompt positions whose score has been given out
  Worker* worker = nullptr;     ///< null: waiting
  Nanos without_worker_since{0};  ///< while waiting: since when no worker has been there
  std::vector<uint32_t> blocks;
  uint32_t blocks_sent = 0;     ///< entries of `blocks` that the worker knows
  uint64_t admission = 0;       ///< order of admission; the highest is the youngest
  int64_t in_flight = 0;        ///< tokens in the plan under way
  int64_t furthest = 0;         ///< the highest `computed` so far
  int deaths = 0;               ///< of its workers while it was in flight, since it last got further
  bool alone = false;           ///< was in a plan that failed as a whole: runs by itself until it succeeds
  bool cancelled = false;       ///< while in flight: removed when the plan is done

  int64_t length() const { return static_cast<int64_t>(tokens.size()); }
  int64_t prompt() const { return static_cast<int64_t>(request.prompt.size()); }
  bool samples() const { return request.tokens_max > 0; }
  /// Tokens that a worker must have room for, alone with this sequence.
  int64_t least_room() const { return request.open_ended ? length() + 1 : prompt() + request.tokens_max; }
};

struct Scheduler::Worker {
  WorkerId id;
  WorkerLimits limits;
  KvBlocks kv;
  std::vector<Sequence*> running;  ///< in order of admission
  std::optional<PlanId> plan;      ///< under way
  std::vector<SequenceId> planned;
  std::vector<SequenceId> released;

  /// The longest sequence that it can hold.
  int64_t length_max() const { return std::min<int64_t>(limits.context_max, int64_t{kv.total()} * limits.kv_block_tokens); }
  int64_t load() const {
    int64_t tokens = 0;
    for (const Sequence* s : running) tokens += 1 + s->length() - s->computed;
    return tokens;
  }
};

Scheduler::Scheduler(SchedulerOptions options) : options_(std::move(options)) {}
Scheduler::~Scheduler() = default;

std::vector<Action> Scheduler::step(Event event) {
  actions_.clear();
  std::visit([this](auto&& e) { on(std::move(e)); }, std::move(event));
  admit();
  make_plans();
  return std::move(actions_);
}

std::pair<uint64_t, uint64_t> Scheduler::kv_blocks() const {
  uint64_t used = 0, total = 0;
  for (const auto& [id, w] : workers_) {
    total += w->kv.total();
    used += w->kv.total() - w->kv.free();
  }
  return {used, total};
}

Scheduler::Sequence* Scheduler::find(SequenceId id) {
  const auto it = sequences_.find(id);
  return it == sequences_.end() ? nullptr : it->second.get();
}

void Scheduler::on(Submitted&& event) {
  MOESTRO_CHECK(!event.request.prompt.empty(), "a prompt has at least one token");
  auto s = std::make_unique<Sequence>();
  s->tokens = event.request.prompt;
  s->request = std::move(event.request);
  s->without_worker_since = now_;
  waiting_.push_back(s.get());
  const SequenceId id = s->request.id;
  MOESTRO_CHECK(sequences_.emplace(id, std::move(s)).second, "a sequence id is used once");
}

void Scheduler::on(Cancelled&& event) {
  Sequence* s = find(event.id);
  if (s == nullptr) return;  // it has just finished
  if (s->in_flight > 0)
    s->cancelled = true;
  else
    remove(*s);
}

void Scheduler::on(WorkerJoined&& event) {
  workers_.emplace(event.worker, std::make_unique<Worker>(Worker{event.worker, event.limits,
                                                                 KvBlocks(event.limits.kv_blocks, event.limits.kv_block_tokens),
                                                                 {}, {}, {}, {}}));
}

void Scheduler::on(WorkerLost&& event) {
  const auto it = workers_.find(event.worker);
  if (it == workers_.end()) return;
  Worker& worker = *it->second;
  // Last admitted first, so that the queue keeps the order of admission.
  const std::vector<Sequence*> orphans(worker.running.rbegin(), worker.running.rend());
  for (Sequence* s : orphans) {
    if (s->in_flight > 0 && ++s->deaths == options_.deaths_max - 1) s->alone = true;  // its companions shall not pay for it
    if (s->cancelled) {
      remove(*s);
    } else if (s->deaths >= options_.deaths_max) {
      fail(*s, internal_error("the worker died " + std::to_string(s->deaths) +
                              " times while it computed this request; it is not tried again"));
    } else {
      send_back(worker, *s);
    }
  }
  workers_.erase(it);
  if (workers_.empty())
    for (Sequence* s : waiting_) s->without_worker_since = now_;
}

void Scheduler::on(Tick&& event) {
  now_ = event.now;
  if (!workers_.empty()) return;
  const std::vector<Sequence*> waiting(waiting_.begin(), waiting_.end());  // failing one changes the queue
  for (Sequence* s : waiting) {
    if (now_ - s->without_worker_since < options_.worker_wait) continue;
    const auto waited = std::chrono::duration_cast<std::chrono::seconds>(now_ - s->without_worker_since);
    fail(*s, unavailable("no worker has been there for " + std::to_string(waited.count()) +
                         " s, and this request is not held longer (--worker-wait); try again later"));
  }
}

/// Takes a sequence off its worker, to be prefilled again from its tokens.
void Scheduler::send_back(Worker& worker, Sequence& s) {
  worker.kv.release(s.blocks);
  worker.released.push_back(s.request.id);
  std::erase(worker.running, &s);
  s.worker = nullptr;
  s.computed = s.blocks_sent = 0;
  s.in_flight = 0;
  waiting_.push_front(&s);
}

void Scheduler::remove(Sequence& s) {
  if (s.worker != nullptr) {
    s.worker->kv.release(s.blocks);
    s.worker->released.push_back(s.request.id);
    std::erase(s.worker->running, &s);
  } else {
    std::erase(waiting_, &s);
  }
  sequences_.erase(s.request.id);
}

void Scheduler::fail(Sequence& s, Status error) {
  actions_.push_back(Failed{s.request.id, std::move(error)});
  remove(s);
}

Scheduler::Worker* Scheduler::least_loaded_with_room(const Sequence& s) {
  Worker* best = nullptr;
  for (const auto& [id, w] : workers_) {
    if (s.least_room() > w->length_max() || w->running.size() >= w->limits.step_sequences_max) continue;
    if (w->kv.needed(s.length() + 1) > w->kv.free()) continue;
    if (best == nullptr || w->load() < best->load()) best = w.get();
  }
  return best;
}

void Scheduler::admit() {
  while (!waiting_.empty() && !workers_.empty()) {
    Sequence& s = *waiting_.front();
    const bool fits_somewhere = std::any_of(workers_.begin(), workers_.end(),
                                            [&](const auto& entry) { return s.least_room() <= entry.second->length_max(); });
    if (!fits_somewhere) {
      fail(s, invalid_argument("prompt and max_tokens together are " + std::to_string(s.least_room()) +
                        " tokens, more than any worker's KV cache or context holds; lower max_tokens or start workers with more --kv-tokens"));
      continue;
    }
    Worker* worker = least_loaded_with_room(s);
    if (worker == nullptr) return;  // the first in the queue waits for room; nobody overtakes it
    waiting_.pop_front();
    MOESTRO_CHECK(worker->kv.grow(s.blocks, s.length() + 1), "room was just found");
    s.worker = worker;
    s.admission = next_admission_++;
    worker->running.push_back(&s);
  }
}

void Scheduler::make_plans() {
  for (const auto& [id, worker] : workers_) {
    if (worker->plan.has_value() || worker->running.empty()) continue;
    Plan plan = form_plan(*worker);
    if (plan.sequences.empty()) continue;
    worker->plan = plan.id;
    worker->planned.clear();
    for (const PlannedSequence& s : plan.sequences) worker->planned.push_back(s.id);
    actions_.push_back(SendPlan{id, std::move(plan)});
  }
}

/// Makes the sequence's block table cover `tokens`, sending back younger sequences that are not in the plan yet if it must. False if `s`
/// is the youngest of those and had to go itself.
bool Scheduler::make_room(Worker& worker, Sequence& s, int64_t tokens) {
  while (!worker.kv.grow(s.blocks, tokens)) {
    Sequence* youngest = &s;
    for (Sequence* other : worker.running)
      if (other->in_flight == 0 && other->admission > youngest->admission) youngest = other;
    send_back(worker, *youngest);
    if (youngest == &s) return false;
  }
  return true;
}

Plan Scheduler::form_plan(Worker& worker) {
  Plan plan;
  plan.id = PlanId{next_plan_++};
  int64_t budget = std::min<int64_t>(options_.step_tokens, worker.limits.step_tokens_max);
  std::vector<Sequence*> order = worker.running;
  // Decodes before prompts, each in order of admission.
  std::stable_partition(order.begin(), order.end(), [](const Sequence* s) { return s->length() - s->computed == 1; });
  const auto suspect = std::find_if(order.begin(), order.end(), [](const Sequence* s) { return s->alone; });
  if (suspect != order.end()) order = {*suspect};
  for (Sequence* s : order) {
    if (budget == 0 || plan.sequences.size() >= worker.limits.step_sequences_max) break;
    if (s->worker == nullptr) continue;  // sent back to make room for an older one
    const int64_t tokens = std::min(budget, s->length() - s->computed);
    if (!make_room(worker, *s, s->computed + tokens)) continue;
    plan_chunk(*s, tokens, plan);
    budget -= tokens;
  }
  plan.released = std::exchange(worker.released, {});
  return plan;
}

void Scheduler::plan_chunk(Sequence& s, int64_t tokens, Plan& plan) {
  PlannedSequence p;
  p.id = s.request.id;
  p.first_position = s.computed;
  p.tokens.assign(s.tokens.begin() + s.computed, s.tokens.begin() + s.computed + tokens);
  p.blocks_first = s.blocks_sent;
  p.blocks.assign(s.blocks.begin() + s.blocks_sent, s.blocks.end());
  s.blocks_sent = static_cast<uint32_t>(s.blocks.size());
  p.sample = s.samples() && s.computed + tokens == s.length();
  p.sampling = s.request.sampling;
  if (s.request.score_top >= 0 && s.computed < s.prompt() - 1) {
    p.score_top = s.request.score_top;
    for (int64_t i = s.computed; i < s.computed + tokens; ++i) {
      const bool wanted = i >= s.scored && i + 1 < s.prompt();
      p.score_targets.push_back(wanted ? s.tokens[static_cast<size_t>(i + 1)] : -1);
    }
  }
  s.in_flight = tokens;
  plan.sequences.push_back(std::move(p));
}

void Scheduler::on(PlanDone&& event) {
  const auto it = workers_.find(event.worker);
  if (it == workers_.end() || it->second->plan != event.outcome.plan) return;  // from a worker that was given up
  Worker& worker = *it->second;
  worker.plan.reset();
  const std::vector<SequenceId> in_flight = std::exchange(worker.planned, {});
  if (!event.outcome.error.is_ok()) return plan_failed(in_flight, event.outcome.error);
  for (SequenceOutcome& outcome : event.outcome.sequences) {
    Sequence* s = find(outcome.id);
    if (s != nullptr && s->worker == &worker && s->in_flight > 0) apply(worker, *s, outcome);
  }
  for (SequenceId id : in_flight) {  // a plan answers for every sequence that it had
    Sequence* s = find(id);
    if (s != nullptr && s->in_flight > 0) fail(*s, internal_error("the worker's answer left this request out"));
  }
}

/// A plan that failed as a whole: its sequences are tried one by one, so that only the one at fault fails.
void Scheduler::plan_failed(const std::vector<SequenceId>& in_flight, const Status& error) {
  for (SequenceId id : in_flight) {
    Sequence* s = find(id);
    if (s == nullptr) continue;
    s->in_flight = 0;
    s->blocks_sent = 0;  // the worker may not have taken the block table in: send all of it again
    if (s->cancelled) {
      remove(*s);
    } else if (in_flight.size() == 1) {
      fail(*s, error);
    } else {
      s->alone = true;
    }
  }
}

void Scheduler::apply(Worker& worker, Sequence& s, SequenceOutcome& outcome) {
  if (s.cancelled) return remove(s);
  if (!outcome.error.is_ok()) return fail(s, outcome.error);
  const int64_t first = s.computed;
  const int64_t tokens = std::exchange(s.in_flight, 0);
  const bool sampled = s.samples() && first + tokens == s.length();
  const bool scored = s.request.score_top >= 0 && first < s.prompt() - 1;
  if (outcome.sampled.size() != (sampled ? 1u : 0u) || outcome.scores.size() != (scored ? static_cast<size_t>(tokens) : 0u))
    return fail(s, internal_error("the worker's answer does not match what was asked of it"));
  s.computed = first + tokens;
  s.alone = false;
  if (s.computed > s.furthest) {  // beyond where its workers died
    s.furthest = s.computed;
    s.deaths = 0;
  }

  Progress progress;
  progress.id = s.request.id;
  progress.prompt_tokens_done = std::min(s.computed, s.prompt());
  for (int64_t i = 0; scored && i < tokens; ++i) {
    const int64_t position = first + i;
    if (position < s.scored || position + 1 >= s.prompt()) continue;
    progress.prompt_scores.push_back(std::move(outcome.scores[static_cast<size_t>(i)]));
    s.scored = position + 1;
  }
  if (sampled) {
    s.tokens.push_back(outcome.sampled[0].id);
    progress.sampled = std::move(outcome.sampled);
  }
  actions_.push_back(std::move(progress));
  if (finished(worker, s)) remove(s);
}

bool Scheduler::finished(Worker& worker, Sequence& s) {
  if (!s.samples()) {
    if (s.computed < s.length()) return false;
    actions_.push_back(Finished{s.request.id, FinishReason::kLength});
    return true;
  }
  const int64_t sampled = s.length() - s.prompt();
  if (sampled == 0) return false;
  const bool eos = !s.request.ignore_eos &&
                   std::find(options_.eos_ids.begin(), options_.eos_ids.end(), s.tokens.back()) != options_.eos_ids.end();
  const bool full = sampled >= s.request.tokens_max || s.length() >= worker.length_max();
  if (!eos && !full) return false;
  actions_.push_back(Finished{s.request.id, eos ? FinishReason::kStop : FinishReason::kLength});
  return true;
}

}  // namespace moestro::orchestrator
