#pragma once
// The worker protocol (common/wire/worker_messages.fbs) from the worker's side. Reading takes any bytes.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "common/activation/history.h"
#include "common/tier/tier_figures.h"
#include "services/worker/engine/step_plan.h"

namespace moestro::worker {

inline constexpr uint32_t kWorkerProtocol = 5;

struct Registered {
  uint32_t worker = 0;
};
struct Refused {
  Status why;
};
struct Drain {
  bool attach_anew = false;  ///< another version of the pack is served
};
struct Release {
  std::vector<engine::ReleasedSequence> released;
};
/// Something the worker need not answer.
struct Ignored {};
/// Whose a sequence is, for logs; said once.
struct RequestName {
  SequenceId sequence;
  std::string request;
};
/// `plan` is an error if the plan asks for what this worker lacks: then that is the answer to plan `id`.
struct PlanMessage {
  PlanId id;
  Result<engine::StepPlan> plan;
  std::vector<RequestName> names = {};
};
/// What past requests have used: where it can be mapped, or all of it, or what of it has changed.
struct HistoryUpdate {
  struct Entry {
    bool answer = false;
    int32_t entry = 0;
    std::vector<uint8_t> cells;
  };
  bool reset = false;
  int32_t capacity = 0;  ///< of a reset
  std::vector<Entry> entries = {};
  uint64_t segment = 0;  ///< not 0: of memory to be mapped; the rest is empty
  /// Takes it into a copy. kInvalidArgument, and the rest left out, at the first entry that does not fit the model.
  Status apply(activation::ActivationHistory& history) const;
};
using OrchestratorSays = std::variant<Registered, Refused, Drain, Release, Ignored, PlanMessage, HistoryUpdate>;

/// kInvalidArgument for anything but a verified message that an orchestrator may send.
Result<OrchestratorSays> read_orchestrator_message(std::span<const std::byte> body);

struct Registration {
  std::string name, model, device;
  uint64_t pack_identity = 0, kv_epoch = 0;
  uint32_t kv_blocks = 0, context_max = 0, step_tokens_max = 0, step_sequences_max = 0;
  uint32_t moe_layers = 0, experts = 0, top_k = 0;
  uint32_t kv_sinks = 0, kv_window = 0;
  bool wants_history = false;
  uint32_t device_slots = 0;  ///< 0: no memory of its own
  uint64_t device_slot_bytes = 0;
  uint32_t kv_host_blocks = 0;
};
std::vector<std::byte> write_registration(const Registration& registration);
std::vector<std::byte> write_heartbeat(uint32_t worker, uint64_t plans_done);
/// `device`: what a device of its own has done since the result before; null: there is none.
std::vector<std::byte> write_result(const engine::StepOutcome& outcome, const tier::TierFigures* device = nullptr);
/// How it went with the history's memory that was announced: OK, it is mapped.
std::vector<std::byte> write_history_reader(uint64_t segment, const Status& mapped);
/// The plan failed as a whole.
std::vector<std::byte> write_failure(PlanId plan, const Status& why);

}  // namespace moestro::worker
