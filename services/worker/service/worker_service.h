#pragma once
// Registers an engine with the orchestrator and runs its plans.

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "common/status.h"
#include "common/tier/tier_figures.h"
#include "services/worker/engine/engine.h"
#include "services/worker/service/request_names.h"
#include "services/worker/service/worker_history.h"

namespace moestro::worker {

struct ServiceOptions {
  std::string name, device;
  std::string orchestrator;  ///< endpoint
  uint64_t pack_identity = 0;
  uint64_t tokenizer = 0;  ///< XXH3-64 of the pack's tokenizer.json; 0: not known
  /// The activation history, which gets the orchestrator's updates between steps, on the thread of run(). Null: not
  /// used.
  WorkerHistory* history = nullptr;
  uint32_t device_slots = 0;  ///< experts that fit in the device's own memory; 0: it has none
  uint64_t device_slot_bytes = 0;
  /// The figures of that device since the last call, which are sent with every result. Called between steps, on the
  /// thread of run(). Empty: no such device.
  std::function<void(tier::TierFigures&)> take_device_figures;
  /// Called now and then while there is no plan, on the thread of run(). May be empty.
  std::function<void()> idle;
  std::chrono::milliseconds heartbeat{200};
  std::chrono::milliseconds register_retry{1000};
  /// Told to stop, it does so after so long without a word from the orchestrator.
  std::chrono::milliseconds leave_silence{1000};
  size_t queued_plans_max = 16;
};

class WorkerService final : private lanes::Breaks {
 public:
  /// `check_store` says whether the store's weights can still be used; called between plans, and when a plan fails.
  /// `engine` outlives the service.
  static Result<std::unique_ptr<WorkerService>> create(const ServiceOptions& options, engine::Engine& engine,
                                                       std::function<Status()> check_store);
  ~WorkerService() override;
  WorkerService(const WorkerService&) = delete;
  WorkerService& operator=(const WorkerService&) = delete;

  /// Runs plans on the calling thread until drained (OK), or until the store is gone or the orchestrator refuses this
  /// worker (an error). Drains when `stop` is set, which is looked at 20 times a second: after the current plan, or, if
  /// no other worker can go on with them, after the requests that have begun.
  Status run(const std::atomic<bool>& stop);
  /// Whether run() has drained because this worker should attach again, to get the version of the pack that the store
  /// serves.
  bool attach_anew() const;

 private:
  class Link;
  bool wanted() override;
  void take() override;
  Status answer(uint64_t epoch, const engine::StepPlan& plan, const Status& ran, const engine::StepOutcome& outcome);
  WorkerService(const ServiceOptions& options, engine::Engine& engine, std::function<Status()> check_store,
                std::unique_ptr<Link> link);
  const tier::TierFigures* device_figures();

  engine::Engine& engine_;
  WorkerHistory* const history_;
  const std::function<void(tier::TierFigures&)> take_device_figures_;
  const std::function<void()> idle_;
  engine::StepOutcome outcome_, overtaking_outcome_;
  Status lost_amid_step_;  ///< not OK: the store was gone when a plan overtook the step at hand
  tier::TierFigures figures_;
  RequestNames requests_;
  std::function<Status()> check_store_;
  std::unique_ptr<Link> link_;
};

}  // namespace moestro::worker
