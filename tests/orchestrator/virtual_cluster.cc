#include "tests/orchestrator/virtual_cluster.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace moestro::orchestrator {

namespace {
constexpr TokenId kPlainToken = 7;

int64_t tokens_of(const Plan& plan) {
  int64_t tokens = 0;
  for (const PlannedSequence& s : plan.sequences) tokens += static_cast<int64_t>(s.tokens.size());
  return tokens;
}
}

void VirtualCluster::run(Nanos end) {
  while (!events_.empty() && events_.begin()->first <= end) {
    const auto first = events_.begin();
    now_ = std::max(now_, first->first);
    const auto what = std::move(first->second);
    events_.erase(first);
    what();
  }
  if (end != Nanos::max()) now_ = end;
}

void VirtualCluster::join(WorkerLimits limits) {
  const WorkerId id{next_worker_++};
  const auto text_of = [this](SequenceId s, size_t length) {
    std::vector<TokenId>& text = texts_[s.value];
    if (text.empty()) text = told_[s.value].request.prompt;
    const Source& source = told_[s.value].request.source;
    while (text.size() < length) text.push_back(next_token(text, source));
    return std::vector<TokenId>(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(length));
  };
  const auto source_of = [this](SequenceId s) { return told_[s.value].request.source; };
  workers_.emplace(id, Worker{limits, std::make_unique<SimulatedWorker>(limits, text_of, source_of), {}});
  feed(WorkerJoined{id, limits});
}

void VirtualCluster::kill(WorkerId id) {
  const WorkerLimits limits = workers_.at(id).limits;
  workers_.erase(id);
  ++deaths;
  feed(WorkerLost{id});
  after(back_after, [this, limits] { join(limits); });
}

std::vector<WorkerId> VirtualCluster::workers() const {
  std::vector<WorkerId> ids;
  for (const auto& [id, worker] : workers_) ids.push_back(id);
  return ids;
}

void VirtualCluster::submit(SequenceRequest request) {
  Told& told = told_[request.id.value];
  told.request = request;
  told.came = told.last_token = now_;
  feed(Submitted{std::move(request)});
}

void VirtualCluster::cancel(uint64_t id, int64_t sampled) {
  Told& told = told_.at(id);
  if (told.ended) return;
  told.cancelled = true;
  feed(Cancelled{SequenceId{id}, sampled});
  end(told);
}

void VirtualCluster::begin_step(WorkerId id, Worker& worker) {
  if (worker.busy || worker.plans.empty()) return;
  worker.busy = true;
  if (worker.limits.overtaking_tokens_max == 0 || worker.plans.front().overtakes) {
    after(cost_.of(tokens_of(worker.plans.front())), [this, id] { end_step(id); });
    return;
  }
  worker.at_hand = std::move(worker.plans.front());
  worker.plans.pop_front();
  worker.begun = model_ == Model::kPlain || worker.device->begin(worker.at_hand);
  worker.layers_left = kLayers;
  worker.gave_way = false;
  worker.since = now_;
  go_on(id);
}

/// Between two layers of the plan at hand.
void VirtualCluster::go_on(WorkerId id) {
  const auto it = workers_.find(id);
  if (it == workers_.end()) return;
  Worker& worker = it->second;
  if (!worker.plans.empty() && worker.plans.front().overtakes && !worker.gave_way && worker.layers_left > 0)
    return run_overtaking(id, worker);
  if (worker.layers_left == 0) {
    const Plan plan = std::move(worker.at_hand);
    worker.busy = false;
    if (dies_of(id, plan)) return;
    const int64_t tokens = count(id, plan);
    PlanOutcome outcome = finish(id, worker, plan);
    begin_step(id, worker);
    return feed(PlanDone{id, std::move(outcome), cost_.of(tokens)});
  }
  --worker.layers_left;
  worker.gave_way = false;
  after(cost_.of(tokens_of(worker.at_hand)) / kLayers, [this, id] { go_on(id); });
}

void VirtualCluster::run_overtaking(WorkerId id, Worker& worker) {
  worker.gave_way = true;
  const Plan plan = std::move(worker.plans.front());
  worker.plans.pop_front();
  after(cost_.of(tokens_of(plan)), [this, id, plan] {
    const auto it = workers_.find(id);
    if (it == workers_.end() || dies_of(id, plan)) return;
    ++overtaken;
    const int64_t tokens = count(id, plan);
    PlanOutcome outcome = compute(it->second, plan);
    feed(PlanDone{id, std::move(outcome), cost_.of(tokens)});
    go_on(id);
  });
}

/// What was computed between its layers is there.
PlanOutcome VirtualCluster::finish(WorkerId id, Worker& worker, const Plan& plan) {
  longest_stretch = std::max(longest_stretch, now_ - worker.since);
  if (model_ == Model::kPlain) return compute(worker, plan);
  if (!worker.begun) return {plan.id, {}, unavailable("its parent failed")};
  PlanOutcome dropped{plan.id, {}, Status::ok()};
  for (const PlannedSequence& s : plan.sequences)
    dropped.sequences.push_back({.id = s.id, .sampled = {}, .scores = {}, .error = {}, .activations = {{}}});
  scheduler_.leave_out_dropped(id, dropped);
  std::set<uint64_t> left;
  for (const SequenceOutcome& o : dropped.sequences)
    if (o.activations.empty()) left.insert(o.id.value);
  return worker.device->finish(plan, left);
}

bool VirtualCluster::dies_of(WorkerId id, const Plan& plan) {
  const bool dies = std::ranges::any_of(plan.sequences, [&](const PlannedSequence& s) {
    return s.source ? deadly_sources.contains(told_[s.id.value].request.source) : deadly.contains(s.id.value);
  });
  if (dies) kill(id);
  return dies;
}

/// Returns the plan's tokens.
int64_t VirtualCluster::count(WorkerId id, const Plan& plan) {
  ++steps[id];
  for (const PlannedSequence& s : plan.sequences) {
    const SequenceRequest& r = told_[s.id.value].request;
    computed[{r.background, r.flow}] += static_cast<int64_t>(s.tokens.size());
  }
  return tokens_of(plan);
}

void VirtualCluster::end_step(WorkerId id) {
  const auto it = workers_.find(id);
  if (it == workers_.end()) return;
  Worker& worker = it->second;
  const Plan plan = std::move(worker.plans.front());
  worker.plans.pop_front();
  worker.busy = false;
  if (dies_of(id, plan)) return;
  const int64_t tokens = count(id, plan);
  PlanOutcome outcome = compute(worker, plan);
  begin_step(id, worker);
  feed(PlanDone{id, std::move(outcome), cost_.of(tokens)});
}

PlanOutcome VirtualCluster::compute(Worker& worker, const Plan& plan) {
  if (model_ == Model::kTrue) return worker.device->compute(plan);
  PlanOutcome outcome{plan.id, {}, Status::ok()};
  for (const PlannedSequence& s : plan.sequences) {
    SequenceOutcome& o = outcome.sequences.emplace_back();
    o.id = s.id;
    if (s.sample) o.sampled.push_back({kPlainToken, {}});
  }
  return outcome;
}

void VirtualCluster::hear(Progress& progress) {
  Told& told = told_[progress.id.value];
  EXPECT_FALSE(told.ended) << "sequence " << progress.id.value << " is told more after its end";
  for (const SampledToken& t : progress.sampled) told.sampled.push_back(t.id);
  if (progress.sampled.empty()) return;
  if (told.first_token) told.gap_max = std::max(told.gap_max, now_ - told.last_token);
  if (!told.first_token) told.first_token = now_;
  told.last_token = now_;
}

void VirtualCluster::end(Told& told) {
  EXPECT_FALSE(told.ended) << "sequence " << told.request.id.value << " ends twice";
  told.ended = now_;
  if (on_end) after(Nanos(0), [this, &told] { on_end(told); });
}

void VirtualCluster::feed(Event event) {
  std::vector<Action> actions = scheduler_.step(Tick{now_});
  std::vector<Action> more = scheduler_.step(std::move(event));
  std::move(more.begin(), more.end(), std::back_inserter(actions));
  for (Action& action : actions) {
    if (auto* send = std::get_if<SendPlan>(&action)) {
      Worker& worker = workers_.at(send->worker);
      worker.plans.push_back(std::move(send->plan));
      begin_step(send->worker, worker);
    } else if (auto* progress = std::get_if<Progress>(&action)) {
      hear(*progress);
    } else if (auto* finished = std::get_if<Finished>(&action)) {
      told_[finished->id.value].finished = finished->reason;
      end(told_[finished->id.value]);
    } else if (auto* failed = std::get_if<Failed>(&action)) {
      told_[failed->id.value].failed = *failed;
      end(told_[failed->id.value]);
    }
  }
  if (model_ == Model::kTrue || ++events_fed_ % 64 == 0) {
    EXPECT_EQ(scheduler_.inconsistency(), "");
  }
}

void VirtualCluster::expect_right_answers() {
  EXPECT_EQ(scheduler_.waiting() + scheduler_.running(), 0u);
  EXPECT_EQ(scheduler_.kv().held, 0u) << "KV blocks leaked";
  for (const auto& [id, told] : told_) {
    EXPECT_TRUE(told.ended.has_value()) << "sequence " << id << " never ended";
    if (told.cancelled) continue;
    if (told.failed) {
      EXPECT_TRUE(told.failed->quarantined &&
                  (deadly.contains(id) || deadly_sources.contains(told.request.source)))
          << "sequence " << id << ": " << told.failed->error.message();
    } else {
      const std::vector<TokenId> expected =
          model_ == Model::kTrue ? expected_output(told.request)
                                 : std::vector<TokenId>(static_cast<size_t>(told.request.tokens_max), kPlainToken);
      EXPECT_EQ(told.sampled, expected) << "sequence " << id;
    }
  }
}

}  // namespace moestro::orchestrator
