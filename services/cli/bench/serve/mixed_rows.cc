// Mixed lengths: continuous batching as users meet it, over HTTP, against padded static batches of the same engine in
// this process.

#include <algorithm>

#include "services/cli/bench/serve/interrupt.h"
#include "services/cli/bench/serve/table.h"

namespace moestro::cli {
namespace {

constexpr double kRate = 50;  ///< ExpertFlow's least; far above what either side can do, so that both are full
constexpr double kAim = 1.9;
constexpr int64_t kWarmup = 8;

struct Side {
  const char* baseline;
  bool by_whole_length = false;
  std::unique_ptr<PaddedServer> server = nullptr;
  std::vector<double> rates = {}, ratios = {};
};

Result<double> ours(const RowContext& context, LoadOptions& load, const std::vector<Arrival>& arrivals) {
  ++load.seed;  // no prompt is in the KV cache
  MOESTRO_ASSIGN_OR_RETURN(const LoadRun run, row_load(context, load, arrivals, "mixed lengths"));
  MOESTRO_RETURN_IF_ERROR(all_answered(run, "mixed lengths"));
  return summarise(run, {}).requests_per_s;
}

Result<double> padded(const RowContext& context, Side& side, const std::vector<Arrival>& arrivals) {
  const std::string what =
      std::string("padded batches sorted by ") + (side.by_whole_length ? "prompt and output" : "prompt");
  const auto show = [&](const LoadProgress& p) { context.say(what + ": " + progress_text(p)); };
  const Interrupt interrupt;
  MOESTRO_ASSIGN_OR_RETURN(const LoadRun run, side.server->run(arrivals, show, Interrupt::seen));
  if (run.interrupted) return cancelled("interrupted during " + what);
  return summarise(run, {}).requests_per_s;
}

BenchRow row_of(const RowContext& context, const Side& side, const std::vector<double>& own) {
  const ServeBenchOptions& o = context.options;
  BenchRow r{.what = "mixed lengths, requests/s",
             .unit = "1/s",
             .value = median(own),
             .baseline_name = side.baseline,
             .baseline = median(side.rates),
             .ratio = median(side.ratios)};
  if (!side.by_whole_length) r.aim_kind = BenchRow::Aim::kAtLeast, r.aim = kAim;
  r.how = std::to_string(o.count) + " requests, Poisson " + std::to_string(static_cast<int>(kRate)) + "/s, prompts " +
          std::to_string(o.prompt.min) + "-" + std::to_string(o.prompt.max) + ", outputs " +
          std::to_string(o.output.min) + "-" + std::to_string(o.output.max) + "; over HTTP against batches of " +
          std::to_string(o.batch) + " in the benchmark's process, same store and kernels; " +
          std::to_string(context.rounds) + " rounds in turns";
  return r;
}

}  // namespace

Status add_mixed_rows(const RowContext& context, std::vector<BenchRow>& rows) {
  ServeBenchOptions o = context.options;
  o.queue_max = std::max<int64_t>(o.count, 64);
  MOESTRO_ASSIGN_OR_RETURN(const auto box, start_box(box_of(o)));
  MOESTRO_ASSIGN_OR_RETURN(const Served served, ask_served(url_of(*box), ""));
  std::vector<Arrival> arrivals =
      poisson_arrivals({.rate = kRate, .count = o.count, .prompt = o.prompt, .output = o.output, .seed = o.seed});
  cut_to(served.limits, arrivals);
  Side sides[] = {{.baseline = "padded static batches"},
                  {.baseline = "the same, sorted by known lengths", .by_whole_length = true}};
  for (Side& side : sides) {
    PaddedOptions padded = padded_of(o);
    padded.pack = box->model(), padded.store = box->endpoint(), padded.by_whole_length = side.by_whole_length;
    MOESTRO_ASSIGN_OR_RETURN(side.server, PaddedServer::create(padded, arrivals));
  }
  LoadOptions load = load_options(o, served);
  load.concurrency = 0, load.idle_connections = 0;
  MOESTRO_RETURN_IF_ERROR(warm_up(load, kWarmup, served.limits));
  const std::vector<Arrival> few(arrivals.begin(),
                                 arrivals.begin() + std::min<std::ptrdiff_t>(kWarmup, std::ssize(arrivals)));
  for (Side& side : sides) MOESTRO_RETURN_IF_ERROR(padded(context, side, few).status());
  std::vector<double> own;
  for (int64_t round = 0; round < context.rounds; ++round) {
    MOESTRO_ASSIGN_OR_RETURN(const double rate, ours(context, load, arrivals));
    own.push_back(rate);
    for (Side& side : sides) {
      MOESTRO_ASSIGN_OR_RETURN(const double theirs, padded(context, side, arrivals));
      side.rates.push_back(theirs);
      side.ratios.push_back(rate / theirs);
    }
  }
  for (const Side& side : sides) rows.push_back(row_of(context, side, own));
  return Status::ok();
}

}  // namespace moestro::cli
