// Arrivals above capacity: what is done must not suffer from what is refused.

#include <algorithm>
#include <atomic>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "services/cli/bench/serve/table.h"
#include "services/cli/common/http_client.h"
#include "services/cli/common/json_text.h"

namespace moestro::cli {
namespace {

constexpr int64_t kQueueMax = 128;
constexpr int64_t kFull =
    96;  ///< under way at the peak: below the limit, for an answer's place is free a moment after its end
constexpr double kTimesCapacity = 3;
constexpr std::chrono::milliseconds kLookEvery{50};

/// Looks at the server's queue while a load runs.
class QueueWatch {
 public:
  explicit QueueWatch(const Url& url) : thread_([this, url](const std::stop_token& stop) { watch(url, stop); }) {}
  /// Sequences that were there at once, at most; -1: it never said.
  int64_t end() {
    thread_.request_stop();
    thread_.join();
    return most_;
  }

 private:
  void watch(const Url& url, const std::stop_token& stop) {
    HttpClient client(url);
    for (; !stop.stop_requested(); std::this_thread::sleep_for(kLookEvery)) {
      const auto reply = client.get("/v1/moestro/status");
      if (!reply.is_ok() || reply->status != 200) continue;
      const auto status = parse_json(reply->body);
      if (!status.is_ok() || !status->is_object() || !status->contains("sequences")) continue;
      const nlohmann::json& sequences = (*status)["sequences"];
      most_ = std::max(most_, static_cast<int64_t>(count_or(sequences, "waiting") + count_or(sequences, "running")));
    }
  }
  int64_t most_ = -1;  ///< of the thread's until end()
  std::jthread thread_;
};

struct OverloadFigures {
  std::vector<double> peak, above, ratios;
  int64_t most = 0, sent = 0, refused = 0, without_retry_after = 0, failed = 0;
  std::string failure;
};

Status round(const RowContext& context, const std::vector<Arrival>& closed, LoadOptions& load, OverloadFigures& f) {
  ++load.seed;
  load.concurrency = kFull;
  MOESTRO_ASSIGN_OR_RETURN(const LoadRun full, row_load(context, load, closed, "capacity"));
  MOESTRO_RETURN_IF_ERROR(all_answered(full, "capacity"));
  const LoadSummary at_capacity = summarise(full, {});
  ++load.seed;
  load.concurrency = 0;
  const ServeBenchOptions& o = context.options;
  const auto above =
      poisson_arrivals({.rate = kTimesCapacity * at_capacity.requests_per_s,
                        .count = static_cast<int64_t>(kTimesCapacity * static_cast<double>(closed.size())),
                        .prompt = o.prompt,
                        .output = o.output,
                        .seed = load.seed});
  QueueWatch watch(load.url);
  const auto over = row_load(context, load, above, "arrivals above capacity");
  f.most = std::max(f.most, watch.end());
  MOESTRO_RETURN_IF_ERROR(over.status());
  const LoadSummary s = summarise(*over, {});
  f.peak.push_back(at_capacity.steady_tokens_per_s), f.above.push_back(s.steady_tokens_per_s);
  f.ratios.push_back(s.steady_tokens_per_s / at_capacity.steady_tokens_per_s);
  f.sent += s.sent, f.refused += s.refused, f.without_retry_after += s.refused_without_retry_after,
      f.failed += s.failed;
  for (const auto& [kind, failure] : over->failures)
    if (kind != "HTTP 429") f.failure = ", such as " + kind + ": " + failure.example;
  return Status::ok();
}

void add_rows(const RowContext& context, const OverloadFigures& f, std::vector<BenchRow>& rows) {
  BenchRow r{.what = "arrivals above capacity: tokens/s out",
             .unit = "1/s",
             .value = median(f.above),
             .baseline_name = "its peak",
             .baseline = median(f.peak),
             .ratio = median(f.ratios)};
  r.aim_kind = BenchRow::Aim::kAtLeast, r.aim = 0.95;
  r.how = "Poisson at " + std::to_string(static_cast<int>(kTimesCapacity)) +
          " times the requests/s of the peak, which is " + std::to_string(kFull) +
          " under way; tokens between a fifth of the sending time and its end; " + std::to_string(context.rounds) +
          " rounds in turns";
  if (median(f.peak) == 0) r.missing = "the loads were over within a second; give a larger --count";
  rows.push_back(std::move(r));
  rows.push_back(at_most("arrivals above capacity: sequences in the server, at most", "", static_cast<double>(f.most),
                         static_cast<double>(kQueueMax),
                         "waiting and running, looked at every 50 ms; --queue-max " + std::to_string(kQueueMax)));
  if (f.most < 0) rows.back().missing = "/v1/moestro/status did not answer";
  rows.push_back(at_most("arrivals above capacity: refusals that are no 429 with Retry-After", "",
                         static_cast<double>(f.without_retry_after + f.failed), 0,
                         std::to_string(f.refused) + " of " + std::to_string(f.sent) + " requests refused, " +
                             std::to_string(f.failed) + " failed" + f.failure));
  if (f.refused == 0) rows.back().missing = "nothing was refused; give a larger --count";
}

}  // namespace

Status add_overload_rows(const RowContext& context, std::vector<BenchRow>& rows) {
  ServeBenchOptions o = context.options;
  o.queue_max = kQueueMax;
  MOESTRO_ASSIGN_OR_RETURN(const auto box, start_box(box_of(o)));
  MOESTRO_ASSIGN_OR_RETURN(const Served served, ask_served(url_of(*box), ""));
  std::vector<Arrival> closed =
      poisson_arrivals({.count = o.count, .prompt = o.prompt, .output = o.output, .seed = o.seed});
  LoadOptions load = load_options(o, served);
  load.idle_connections = 0;
  MOESTRO_RETURN_IF_ERROR(warm_up(load, 8, served.limits));
  OverloadFigures figures;
  for (int64_t i = 0; i < context.rounds; ++i) MOESTRO_RETURN_IF_ERROR(round(context, closed, load, figures));
  add_rows(context, figures, rows);
  return Status::ok();
}

}  // namespace moestro::cli
