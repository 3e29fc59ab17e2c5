#include "services/cli/bench/serve/padded_batches.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "services/cli/bench/engine_setup.h"
#include "services/cli/bench/workload.h"

namespace moestro::cli {
namespace {

using Steady = std::chrono::steady_clock;
using Ending = RequestRecord::Ending;

constexpr double kWaitForFullBatch_s = 1;
constexpr std::chrono::milliseconds kPoll{1};

/// What a batch is padded to.
struct Shape {
  int64_t rows = 0, prompt = 0, output = 0;
};

Shape shape_of(const std::vector<Arrival>& arrivals, const std::vector<size_t>& batch) {
  Shape shape{.rows = static_cast<int64_t>(batch.size())};
  for (const size_t i : batch) {
    shape.prompt = std::max<int64_t>(shape.prompt, arrivals[i].prompt_tokens);
    shape.output = std::max<int64_t>(shape.output, arrivals[i].output_tokens);
  }
  return shape;
}

}  // namespace

std::vector<std::vector<size_t>> padded_batches(const std::vector<Arrival>& arrivals,
                                                const std::vector<size_t>& waiting, int64_t batch,
                                                bool by_whole_length) {
  const auto length = [&](size_t i) {
    return arrivals[i].prompt_tokens + (by_whole_length ? arrivals[i].output_tokens : 0);
  };
  std::vector<size_t> sorted = waiting;
  std::stable_sort(sorted.begin(), sorted.end(), [&](size_t a, size_t b) { return length(a) < length(b); });
  std::vector<std::vector<size_t>> batches;
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (i % static_cast<size_t>(batch) == 0) batches.emplace_back();
    batches.back().push_back(sorted[i]);
  }
  return batches;
}

struct PaddedServer::Impl {
  Status run_batch(const std::vector<size_t>& batch);
  std::vector<size_t> wait_for_arrivals();
  double now() const { return std::chrono::duration<double>(Steady::now() - begin).count(); }
  void report() {
    figures.seconds = now();
    if (progress) progress(figures);
  }

  PaddedOptions options;
  SteadyClock clock;
  BenchedEngine benched;
  const std::vector<Arrival>* arrivals = nullptr;
  std::function<void(const LoadProgress&)> progress;
  std::function<bool()> stop;
  Steady::time_point begin;
  size_t next = 0;  ///< of the arrivals: not yet taken
  LoadProgress figures;
  LoadRun result;
};

PaddedServer::PaddedServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PaddedServer::~PaddedServer() = default;
int PaddedServer::threads() const { return impl_->benched.ops->options().threads; }

Result<std::unique_ptr<PaddedServer>> PaddedServer::create(const PaddedOptions& o,
                                                           const std::vector<Arrival>& arrivals) {
  auto impl = std::make_unique<Impl>();
  impl->options = o;
  EngineCase widest{.tokens = 1, .batch = o.batch, .depth = 1};
  for (const Arrival& a : arrivals) {
    widest.depth = std::max<int64_t>(widest.depth, a.prompt_tokens);
    widest.tokens = std::max<int64_t>(widest.tokens, a.output_tokens);
  }
  EngineBenchOptions engine;
  engine.store = o.store, engine.pack = o.pack, engine.experts = o.experts, engine.kv_dtype = o.kv_dtype;
  engine.threads = o.threads, engine.step_tokens = o.step_tokens;
  MOESTRO_ASSIGN_OR_RETURN(impl->benched, open_engine(engine, {widest}, impl->clock));
  return std::unique_ptr<PaddedServer>(new PaddedServer(std::move(impl)));
}

/// Empty when every arrival has been taken, or the user wants an end.
std::vector<size_t> PaddedServer::Impl::wait_for_arrivals() {
  const std::vector<Arrival>& all = *arrivals;
  while (next < all.size() && !stop()) {
    size_t end = next;
    while (end < all.size() && all[end].due_s <= now()) ++end;
    figures.due = static_cast<int64_t>(end);
    const bool full = end - next >= static_cast<size_t>(options.batch) || end == all.size();
    if (end > next && (full || now() - all[next].due_s >= kWaitForFullBatch_s)) {
      std::vector<size_t> waiting;
      for (; next < end; ++next) waiting.push_back(next);
      return waiting;
    }
    report();
    std::this_thread::sleep_for(kPoll);
  }
  return {};
}

Status PaddedServer::Impl::run_batch(const std::vector<size_t>& batch) {
  const Shape shape = shape_of(*arrivals, batch);
  figures.under_way = shape.rows;
  result.in_flight_max = std::max(result.in_flight_max, shape.rows);
  for (const size_t i : batch)
    result.requests[i].sent_s = (*arrivals)[i].due_s, result.requests[i].ending = Ending::kUnderWay;
  const bool encodes = benched.engine->limits().encoder_decoder;
  Workload workload(*benched.engine, clock, shape.rows, encodes ? shape.output : shape.prompt + shape.output,
                    encodes ? shape.prompt : 0);
  for (int64_t token = 0; token < shape.output && !stop(); ++token) {
    if (token == 0) MOESTRO_RETURN_IF_ERROR(workload.prompts(shape.prompt).status());
    if (token > 0 || encodes) MOESTRO_RETURN_IF_ERROR(workload.decode().status());  // sources have no first token
    const double at = now();
    for (const size_t i : batch) {
      RequestRecord& r = result.requests[i];
      if (r.ending == Ending::kDone) continue;  // its row is computed all the same
      if (token == 0) r.first_s = at;
      else r.gaps_s.push_back(static_cast<float>(at - r.last_s));
      r.last_s = at;
      ++figures.tokens;
      if (++r.got_tokens == r.output_tokens) r.ending = Ending::kDone, ++figures.ended;
    }
    report();
  }
  return Status::ok();
}

Result<LoadRun> PaddedServer::run(const std::vector<Arrival>& arrivals,
                                  const std::function<void(const LoadProgress&)>& progress,
                                  const std::function<bool()>& stop) {
  Impl& self = *impl_;
  self.arrivals = &arrivals, self.progress = progress, self.stop = stop;
  self.next = 0, self.figures = {}, self.result = {};
  self.result.requests.resize(arrivals.size());
  for (size_t i = 0; i < arrivals.size(); ++i) {
    RequestRecord& r = self.result.requests[i];
    r.due_s = arrivals[i].due_s, r.prompt_tokens = arrivals[i].prompt_tokens,
    r.output_tokens = arrivals[i].output_tokens;
  }
  self.begin = Steady::now();
  for (auto waiting = self.wait_for_arrivals(); !waiting.empty(); waiting = self.wait_for_arrivals())
    for (const auto& batch : padded_batches(arrivals, waiting, self.options.batch, self.options.by_whole_length)) {
      if (stop()) break;
      MOESTRO_RETURN_IF_ERROR(self.run_batch(batch));
    }
  self.result.seconds = self.now();
  self.result.interrupted = stop();
  return std::move(self.result);
}

}  // namespace moestro::cli
