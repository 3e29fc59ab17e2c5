#pragma once
// The baseline of continuous batching: static padded batches on the same engine in this process.
//
// Requests that have arrived are sorted by length and cut into batches. A batch computes every prompt padded to its
// longest, then one token of every row at each step until its longest output is finished; rows of shorter prompts and
// of finished outputs are computed as real rows. Choices that the method leaves open are made in its favour: it waits
// up to a second for a batch to fill, computes no rows beyond those that arrived, has no cost of a server or wire, and
// a request counts as ended with its own last token.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/status.h"
#include "services/cli/bench/serve/arrivals.h"
#include "services/cli/bench/serve/load_client.h"
#include "services/cli/bench/serve/request_record.h"

namespace moestro::cli {

struct PaddedOptions {
  std::string pack = {};   ///< the pack; with `store` the name it serves
  std::string store = {};  ///< ipc://RUN_DIR/store.sock: weights of a running store
  std::string experts = {}, kv_dtype = "f32";
  int threads = 0;
  int64_t batch = 32, step_tokens = 512;
  bool by_whole_length = false;  ///< sorted by prompt and output, as if outputs were known; otherwise by prompt
};

/// Forms batches of arrivals: each is a list of their numbers.
std::vector<std::vector<size_t>> padded_batches(const std::vector<Arrival>& arrivals,
                                                const std::vector<size_t>& waiting, int64_t batch,
                                                bool by_whole_length);

class PaddedServer {
 public:
  /// Makes room for the longest of `arrivals` in every row.
  static Result<std::unique_ptr<PaddedServer>> create(const PaddedOptions& options,
                                                      const std::vector<Arrival>& arrivals);
  ~PaddedServer();
  /// Waits for arrivals by the clock. Ends early, with the results so far, if `stop` returns true.
  Result<LoadRun> run(const std::vector<Arrival>& arrivals, const std::function<void(const LoadProgress&)>& progress,
                      const std::function<bool()>& stop);
  int threads() const;

 private:
  struct Impl;
  explicit PaddedServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moestro::cli
