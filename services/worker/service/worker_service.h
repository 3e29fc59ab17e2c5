#pragma once
// Registers an engine with the orchestrator and runs its plans.

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "common/activation/history.h"
#include "common/status.h"
#include "services/worker/engine/engine.h"
#include "services/worker/service/request_names.h"

namespace moestro::worker {

struct ServiceOptions {
  std::string name, device;
  std::string orchestrator;  ///< endpoint
  uint64_t pack_identity = 0;
  /// What past requests have used: filled between steps, on the thread of run(), with what the orchestrator says. Null: not wanted.
  activation::ActivationHistory* history = nullptr;
  std::chrono::milliseconds heartbeat{200};
  std::chrono::milliseconds register_retry{1000};
  size_t queued_plans_max = 16;
};

class WorkerService {
 public:
  /// `check_store` says whether weights can still be had; asked between plans, and when one fails. `engine` outlives the service.
  static Result<std::unique_ptr<WorkerService>> create(const ServiceOptions& options, engine::Engine& engine,
                                                       std::function<Status()> check_store);
  ~WorkerService();
  WorkerService(const WorkerService&) = delete;
  WorkerService& operator=(const WorkerService&) = delete;

  /// Runs plans on the calling thread until drained (OK), or until the store is gone or the orchestrator refuses this worker (why).
  Status run();
  /// Ends run() after the plan at hand. Safe in a signal handler and from any thread.
  void drain();

 private:
  class Link;
  WorkerService(engine::Engine& engine, activation::ActivationHistory* history, std::function<Status()> check_store, std::unique_ptr<Link> link);

  engine::Engine& engine_;
  activation::ActivationHistory* const history_;
  engine::StepOutcome outcome_;
  RequestNames requests_;
  std::function<Status()> check_store_;
  std::unique_ptr<Link> link_;
};

}  // namespace moestro::worker
