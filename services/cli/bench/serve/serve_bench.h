#pragma once
// Loads of requests on a server, sent as by its users.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/status.h"
#include "services/cli/bench/engine_bench.h"
#include "services/cli/bench/serve/arrivals.h"
#include "services/cli/bench/serve/load_client.h"
#include "services/cli/bench/serve/padded_batches.h"
#include "services/cli/bench/serve/served.h"
#include "services/cli/bench/serve/summary.h"
#include "services/cli/bench/serve/tier_use.h"

namespace moestro::cli {

struct ServeBenchOptions {
  std::string url;           ///< empty: the benchmark starts its own box, which serves the pack `model`
  std::string api_key;       ///< for the url's server
  std::string model;         ///< with a url: the served name; empty: its first model
  std::string baseline;      ///< "padded": no server but static batches in this process
  bool by_whole_length = false;
  int64_t batch = 32;        ///< rows of a static batch
  std::vector<double> rates = {kAllAtOnce};  ///< one load for each
  int64_t count = 256;       ///< 0 with a trace: all of it
  bool count_given = false;
  LengthRange prompt = {8, 128}, output = {1, 128};
  std::string trace;         ///< empty: Poisson
  double speed = 1, lengths = 1;
  int64_t concurrency = 0, idle = 0, warmup = 1;
  uint64_t seed = 1;
  int64_t vocab = 0;         ///< 0: from the server
  double temperature = 1;
  std::chrono::milliseconds timeout{600'000};
  GoodputBounds bounds;
  // For the benchmark's own box, and for the baseline.
  int64_t kv_tokens = 16384, queue_max = 4096;
  int threads = 0;
  std::string experts;
};

struct ServeRun {
  double rate = kAllAtOnce;  ///< as requested; a trace has its own
  int64_t cut = 0;           ///< requests that were shortened to the context
  LoadRun load = {};
  LoadSummary summary = {};
  std::optional<TierUse> tiers = {};  ///< of a Moestro server
};

struct ServeBenchReport {
  std::string model, server, arrivals;
  int64_t vocab = 0;
  LengthLimits limits = {};
  std::vector<ServeRun> runs;
};

/// If the run is interrupted, the report has the loads so far.
Result<ServeBenchReport> bench_serve(const ServeBenchOptions& options, const BenchProgress& progress);

/// The arrivals of a load at `rate`.
Result<std::vector<Arrival>> arrivals_of(const ServeBenchOptions& options, double rate);
LoadOptions load_options(const ServeBenchOptions& options, const Served& served);
/// Sends requests that are not counted. An error if one of them fails.
Status warm_up(const LoadOptions& load, int64_t requests, const LengthLimits& limits);
config::BoxConfig box_of(const ServeBenchOptions& options);
PaddedOptions padded_of(const ServeBenchOptions& options);
/// "12.3 requests/s, 345 tokens/s, 6 under way, 1 refused".
std::string progress_text(const LoadProgress& p);

}  // namespace moestro::cli
