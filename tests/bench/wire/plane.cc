#include "tests/bench/wire/plane.h"

#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <random>
#include <thread>

namespace moestro::bench {
namespace {

using orchestrator::Failed;
using orchestrator::Finished;
using orchestrator::Progress;
using orchestrator::SequenceEvent;
using orchestrator::SequenceRequest;
using SteadyTime = std::chrono::steady_clock::time_point;

/// Tokens as they came. `step_us`: of all steps before the one that brought this token.
struct Token {
  SteadyTime at;
  uint64_t step_us = 0;
};

struct Seen {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::vector<SteadyTime>> tokens;  ///< by sequence
  std::vector<Token> first;                     ///< of sequence 0
  size_t ended = 0;
  std::string error;
};

void note(Seen& seen, const orchestrator::ControlPlane& control, size_t sequence, const SequenceEvent& event) {
  const auto now = std::chrono::steady_clock::now();
  const uint64_t step_us = sequence == 0 ? control.snapshot().step_us : 0;
  const std::lock_guard lock(seen.mutex);
  if (const auto* progress = std::get_if<Progress>(&event)) {
    for (size_t i = 0; i < progress->sampled.size(); ++i) {
      seen.tokens[sequence].push_back(now);
      if (sequence == 0) seen.first.push_back({now, step_us});
    }
    return;
  }
  if (const auto* failed = std::get_if<Failed>(&event)) seen.error = failed->error.message();
  ++seen.ended;
  seen.changed.notify_all();
}

double microseconds(SteadyTime::duration d) { return std::chrono::duration<double, std::micro>(d).count(); }

Decoded evaluate(const Seen& seen) {
  SteadyTime begin = seen.tokens[0].front(), end = seen.tokens[0].back();
  for (const auto& tokens : seen.tokens) {
    begin = std::max(begin, tokens.front());
    end = std::min(end, tokens.back());
  }
  Decoded d;
  d.seconds = std::chrono::duration<double>(end - begin).count();
  for (const auto& tokens : seen.tokens)
    for (const SteadyTime t : tokens) d.tokens += t > begin && t <= end;
  for (size_t i = 1; i + 1 < seen.first.size(); ++i) {
    if (seen.first[i - 1].at < begin || seen.first[i].at > end) continue;
    const auto step = static_cast<double>(seen.first[i + 1].step_us - seen.first[i].step_us);
    d.engine_seconds += step * 1e-6;
    d.added_us.push_back(microseconds(seen.first[i].at - seen.first[i - 1].at) - step);
  }
  return d;
}

SequenceRequest random_request(orchestrator::ControlPlane& control, const Load& load, std::mt19937_64& random) {
  SequenceRequest r;
  r.id = control.next_sequence_id();
  for (int64_t i = 0; i < load.depth; ++i)
    r.prompt.push_back(static_cast<TokenId>(random() % static_cast<uint64_t>(load.vocab)));
  r.tokens_max = load.tokens;
  r.ignore_eos = true;
  r.sampling.temperature = 0;
  return r;
}

}  // namespace

std::unique_ptr<Plane> Plane::start(const std::string& endpoint, size_t steps_in_flight,
                                    std::vector<std::string> worker, const std::string& log) {
  orchestrator::ControlOptions options;
  options.endpoint = endpoint;
  options.model = std::string(1, 'm');  // a literal sets off g++ 12's -Wrestrict
  options.steps_in_flight = steps_in_flight;
  options.prefix_cache = false;  // every prompt is computed
  auto plane = std::make_unique<Plane>();
  plane->worker_ = std::make_unique<testing::ChildProcess>(std::move(worker), log);
  auto control = orchestrator::ControlPlane::start(options);
  if (!control.is_ok()) return std::fprintf(stderr, "%s\n", control.status().message().c_str()), nullptr;
  plane->control_ = std::move(*control);
  return plane;
}

bool Plane::wait_for_worker(std::chrono::seconds limit) const {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!control_->has_worker() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  return control_->has_worker();
}

Decoded Plane::run(const Load& load, std::string& error) {
  const auto seen = std::make_shared<Seen>();
  const auto batch = static_cast<size_t>(load.batch);
  seen->tokens.resize(batch);
  std::mt19937_64 random(load.seed);
  for (size_t i = 0; i < batch; ++i) {
    const Status sent =
        control_->submit(random_request(*control_, load, random),
                         [seen, this, i](const SequenceEvent& event) { note(*seen, *control_, i, event); });
    if (!sent.is_ok()) return error = sent.message(), Decoded{};
  }
  std::unique_lock lock(seen->mutex);
  seen->changed.wait(lock, [&] { return seen->ended == batch; });
  error = seen->error;
  return error.empty() ? evaluate(*seen) : Decoded{};
}

}  // namespace moestro::bench
