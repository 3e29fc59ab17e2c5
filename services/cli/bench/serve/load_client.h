#pragma once
// The generator of a load: open loop, many streams on one thread. Boost is included by load_client.cc alone.

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/status.h"
#include "services/cli/bench/serve/arrivals.h"
#include "services/cli/bench/serve/request_record.h"
#include "services/cli/common/url.h"

namespace moestro::cli {

struct LoadOptions;
/// The body of a request, which is number `index` of the load.
using RequestBody = std::function<std::string(const LoadOptions& options, const Arrival& arrival, size_t index)>;

struct LoadOptions {
  Url url = {};
  std::string api_key = {};
  RequestBody body = nullptr;      ///< must be set
  std::string model = {};          ///< this and the next three are for `body`
  int64_t vocab = 0;
  uint64_t seed = 1;
  double temperature = 1;          ///< because random models repeat themselves with their most probable tokens
  int64_t concurrency = 0;         ///< most requests in flight; 0: no bound
  int64_t idle_connections = 0;    ///< further connections; each asks for /health from time to time
  std::chrono::milliseconds connect_limit{10'000};
  std::chrono::milliseconds silence_limit{600'000};  ///< longest wait for the next bytes of an answer
  bool stop_on_signals = true;     ///< Ctrl-C and SIGTERM end the run with the results so far
};

struct LoadProgress {
  int64_t due = 0, ended = 0, under_way = 0, refused = 0, failed = 0;
  uint64_t tokens = 0;
  double seconds = 0;
};

/// Sends every arrival when it is due (and a place is free), and reads all streams to their ends. An error only if the
/// host has no address; failures of requests and idle connections are in the run. Connections are reused.
Result<LoadRun> run_load(const LoadOptions& options, const std::vector<Arrival>& arrivals,
                         const std::function<void(const LoadProgress&)>& progress);

}  // namespace moestro::cli
