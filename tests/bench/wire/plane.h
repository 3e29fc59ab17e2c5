#pragma once
// A control plane in this process and a worker in another, measured by sequences that decode together.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "orchestrator/control/control_plane.h"
#include "tests/store/child_process.h"

namespace moestro::bench {

struct Load {
  int64_t batch = 16, depth = 32, tokens = 64;  ///< sequences, tokens of each prompt, tokens that each samples
  int64_t vocab = 0;
  uint64_t seed = 0;
};

/// While all sequences decode: from the moment when the last one has its first token until the first one ends.
struct Decoded {
  double seconds = 0, tokens = 0;
  double engine_seconds = 0;           ///< that the worker spent in steps, of the same steps
  std::vector<double>
      added_us;  ///< of each step: from result to result, less the worker's step; where one step is in flight
  double rate() const { return seconds > 0 ? tokens / seconds : 0; }
};

class Plane {
 public:
  /// `worker`: the program and its arguments; it finds this plane at `endpoint`.
  static std::unique_ptr<Plane> start(const std::string& endpoint, size_t steps_in_flight,
                                      std::vector<std::string> worker, const std::string& log);

  bool wait_for_worker(std::chrono::seconds limit) const;
  /// Empty if a sequence failed; then `error` says why.
  Decoded run(const Load& load, std::string& error);
  std::string log() const { return worker_->output(); }

 private:
  std::unique_ptr<orchestrator::ControlPlane> control_;
  std::unique_ptr<testing::ChildProcess> worker_;
};

}  // namespace moestro::bench
