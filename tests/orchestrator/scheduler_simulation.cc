#include "tests/orchestrator/scheduler_simulation.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace moestro::orchestrator {
namespace {

SchedulerOptions options_of(uint64_t seed, int64_t step_tokens, bool prefix_cache, size_t steps_in_flight) {
  SchedulerOptions options;
  options.steps_in_flight = steps_in_flight;
  options.step_tokens = step_tokens;
  options.eos_ids = {kEos};
  options.deaths_max = 3;  // tests let workers die twice, of nothing that was asked of them
  options.prefix_cache = prefix_cache;
  std::mt19937_64 random(seed);
  for (std::byte& b : options.prefix_secret) b = static_cast<std::byte>(random());
  return options;
}

}  // namespace

Simulation::Simulation(uint64_t seed, int64_t step_tokens, bool prefix_cache, size_t steps_in_flight)
    : random_(seed),
      steps_in_flight_(steps_in_flight),
      scheduler_(options_of(seed, step_tokens, prefix_cache, steps_in_flight)) {}

std::vector<TokenId> Simulation::text(SequenceId id, size_t length) {
  std::vector<TokenId>& text = texts_[id.value];
  if (text.empty()) text = heard_[id.value].request.prompt;
  const Source& source = heard_[id.value].request.source;
  while (text.size() < length) text.push_back(next_token(text, source));
  return {text.begin(), text.begin() + static_cast<std::ptrdiff_t>(length)};
}

void Simulation::submit(SequenceRequest request) {
  heard_[request.id.value].request = request;
  feed(Submitted{std::move(request)});
}

SequenceRequest Simulation::random_request(uint64_t id) {
  SequenceRequest r;
  r.id = SequenceId{id};
  for (uint64_t n = 1 + roll(60); n > 0; --n) r.prompt.push_back(static_cast<TokenId>(1 + roll(96)));
  r.tokens_max = static_cast<int64_t>(roll(40));
  r.score_top = r.tokens_max == 0 || roll(3) == 0 ? 0 : -1;
  r.ignore_eos = roll(2) == 0;
  if (id % 3 == 0) r.sampling.presence_penalty = 1;  // the worker is to know all its tokens
  if (id % 7 < 2) {
    r.tokens_max = 0;
    r.score_top = -1;
    r.pooling = id % 7 == 0 ? Pooling::kMean : Pooling::kLast;
  }
  return r;
}

SequenceRequest Simulation::related_request(uint64_t id) {
  SequenceRequest r = random_request(id);
  std::vector<TokenId> begin;
  if (heard_.empty() || roll(2) == 0) {  // one of three texts
    const auto text = static_cast<TokenId>(roll(3));
    for (TokenId t = 0; t < 40; ++t) begin.push_back(1 + (t * 7 + text * 13) % 96);
  } else {  // a conversation goes on
    const Heard& before = std::next(heard_.begin(), static_cast<int64_t>(roll(heard_.size())))->second;
    begin = before.request.prompt;
    begin.insert(begin.end(), before.sampled.begin(), before.sampled.end());
  }
  begin.resize(std::min<size_t>({begin.size(), 55, 1 + roll(60)}));
  r.prompt.resize(1 + roll(10));
  if (roll(4) == 0) begin[roll(begin.size())] = 1;  // the same blocks behind another prefix
  if (roll(4) == 0) r.prompt.clear();
  r.prompt.insert(r.prompt.begin(), begin.begin(), begin.end());
  if (roll(4) > 0 && r.tokens_max > 0) r.score_top = -1;
  return r;
}

SequenceRequest Simulation::request_with_source(uint64_t id) {
  SequenceRequest r = random_request(id);
  r.prompt.resize(1 + roll(3), 2);
  r.score_top = -1;
  r.pooling = Pooling::kNone;
  r.tokens_max = static_cast<int64_t>(1 + roll(40));
  const auto before = heard_.find(id - 1);
  if (before != heard_.end() && before->second.request.source && roll(3) == 0) {
    r.source = before->second.request.source;
    return r;
  }
  std::vector<TokenId> source(1 + roll(24));
  for (TokenId& t : source) t = static_cast<TokenId>(1 + roll(96));
  r.source = std::make_shared<const std::vector<TokenId>>(std::move(source));
  return r;
}

void Simulation::join(WorkerLimits limits, uint64_t version) {
  const WorkerId id{next_worker_++};
  versions_[id] = version;
  limits_[id] = limits;
  workers_.emplace(
      id, std::make_unique<SimulatedWorker>(
              limits, [this](SequenceId s, size_t length) { return text(s, length); },
              [this](SequenceId s) { return heard_[s.value].request.source; }));
  feed(WorkerJoined{id, limits, version});
}

void Simulation::kill_one() { kill(std::next(workers_.begin(), static_cast<int64_t>(roll(workers_.size())))->first); }

void Simulation::kill(WorkerId id) {
  workers_.erase(id);
  std::erase_if(plans_, [&](const SendPlan& p) { return p.worker == id; });
  results_.erase(id);
  feed(WorkerLost{id});
}

void Simulation::serve(uint64_t version) {
  served_ = version;
  feed(VersionServed{version});
}

bool Simulation::bring_back_one() {
  if (renewed_.empty()) return false;
  const WorkerLimits limits = renewed_.back();
  renewed_.pop_back();
  join(limits, served_);
  return true;
}

void Simulation::cancel(uint64_t id) {
  heard_[id].cancelled = true;
  feed(Cancelled{SequenceId{id}});
}

SendPlan Simulation::take_plan() {
  const WorkerId worker = plans_[roll(plans_.size())].worker;
  const auto first = std::find_if(plans_.begin(), plans_.end(), [&](const SendPlan& p) { return p.worker == worker; });
  SendPlan p = std::move(*first);
  plans_.erase(first);
  return p;
}

void Simulation::answer(WorkerId worker, PlanOutcome outcome) {
  std::deque<PlanOutcome>& results = results_[worker];
  results.push_back(std::move(outcome));
  const bool more = std::any_of(plans_.begin(), plans_.end(), [&](const SendPlan& p) { return p.worker == worker; });
  if (late_ && more && roll(3) == 0) return;  // it computes the next before this is heard
  while (!results.empty()) {
    PlanOutcome next = std::move(results.front());
    results.pop_front();
    answered_by_ = versions_.at(worker);
    feed(PlanDone{worker, std::move(next)});
  }
}

void Simulation::compute_one() {
  const SendPlan p = take_plan();
  for (const PlannedSequence& s : p.plan.sequences) computed_tokens_ += s.tokens.size();
  answer(p.worker, workers_.at(p.worker)->compute(p.plan));
}

void Simulation::break_one() {
  const SendPlan p = take_plan();
  SimulatedWorker& worker = *workers_.at(p.worker);
  answer(p.worker,
         roll(2) == 0 ? worker.break_down(p.plan) : worker.compute_all_but(roll(p.plan.sequences.size()), p.plan));
}

void Simulation::check_plan(const SendPlan& send) {
  PlanId parent;
  size_t under_way = results_[send.worker].size();
  for (const PlanOutcome& r : results_[send.worker]) parent = r.plan;
  for (const SendPlan& p : plans_) {
    if (p.worker != send.worker) continue;
    parent = p.plan.id;
    ++under_way;
  }
  EXPECT_LT(under_way, steps_in_flight_) << "too many plans in flight";
  EXPECT_EQ(send.plan.parent, parent) << "its parent is the plan before it, if that is under way";
  for (const PlannedSequence& s : send.plan.sequences) {
    if (s.source) continue;
    const auto end = static_cast<size_t>(s.first_position) + s.tokens.size();
    const SequenceRequest& r = heard_[s.id.value].request;
    EXPECT_FALSE(s.sample && static_cast<int64_t>(end - r.prompt.size()) >= r.tokens_max)
        << "samples beyond the end that was known";
  }
}

void Simulation::feed(Event event) {
  for (Action& action : scheduler_.step(std::move(event))) {
    if (auto* send = std::get_if<SendPlan>(&action)) {
      check_plan(*send);
      plans_.push_back(std::move(*send));
    } else if (const auto* release = std::get_if<SendRelease>(&action)) {
      workers_.at(release->worker)->release(release->released);
    } else if (const auto* renew = std::get_if<RenewWorker>(&action)) {
      EXPECT_TRUE(std::ranges::none_of(plans_, [&](const SendPlan& p) { return p.worker == renew->worker; }));
      EXPECT_NE(versions_.at(renew->worker), served_);
      EXPECT_EQ(workers_.erase(renew->worker), 1u);
      renewed_.push_back(limits_.at(renew->worker));
    } else if (auto* progress = std::get_if<Progress>(&action)) {
      Heard& h = heard_[progress->id.value];
      EXPECT_FALSE(h.finished || h.failed || h.cancelled);
      for (const SampledToken& t : progress->sampled) h.sampled.push_back(t.id);
      for (const TokenScore& s : progress->prompt_scores) h.scores.push_back(s.logprob);
      h.cached = progress->prompt_tokens_cached;
      if (!progress->sampled.empty() || !progress->prompt_scores.empty()) h.versions.insert(answered_by_);
    } else if (auto* finished = std::get_if<Finished>(&action)) {
      heard_[finished->id.value].finished = finished->reason;
      heard_[finished->id.value].embedding = std::move(finished->embedding);
    } else if (auto* failed = std::get_if<Failed>(&action)) {
      heard_[failed->id.value].failed = failed->error;
    }
  }
  EXPECT_EQ(scheduler_.inconsistency(), "");
}

bool Simulation::all_is_released() const {
  return std::all_of(workers_.begin(), workers_.end(), [](const auto& w) { return w.second->knows_nobody(); });
}

void Simulation::expect_right_answers() {
  for (auto& [id, h] : heard_) {
    EXPECT_LE(h.versions.size(), 1u) << "sequence " << id << " mixes versions";
    if (h.cancelled) continue;
    if (h.failed && h.failed->message() == kBrokeDown) continue;  // alone in a plan that did
    if (h.failed) {
      ADD_FAILURE() << id << ": " << h.failed->message();
      continue;
    }
    ASSERT_TRUE(h.finished.has_value()) << "sequence " << id << " never ended";
    EXPECT_EQ(h.sampled, expected_output(h.request)) << "sequence " << id;
    EXPECT_EQ(h.embedding, expected_embedding(h.request)) << "sequence " << id;
    EXPECT_TRUE(h.request.pooling != Pooling::kMean || h.cached == 0) << "what is found has no hidden states";
    EXPECT_LT(h.cached, static_cast<int64_t>(h.request.prompt.size()));
    std::vector<float> scores;
    if (h.request.score_top >= 0)
      for (size_t p = 0; p + 1 < h.request.prompt.size(); ++p)
        scores.push_back(score_of(h.request.prompt[p + 1], static_cast<int64_t>(p)));
    EXPECT_EQ(h.scores, scores) << "sequence " << id;
    EXPECT_TRUE(h.request.score_top < 0 || h.cached == 0) << "a scored prompt is computed";
  }
}

WorkerLimits small_worker() {
  return {.kv_blocks = 30, .kv_block_tokens = 4, .context_max = 110, .step_tokens_max = 40, .step_sequences_max = 5};
}

SequenceRequest request(uint64_t id, size_t prompt, int64_t tokens) {
  SequenceRequest r;
  r.id = SequenceId{id};
  r.prompt.assign(prompt, 5);
  r.tokens_max = tokens;
  r.ignore_eos = true;
  return r;
}

}  // namespace moestro::orchestrator
