#pragma once
// The worker protocol (common/wire/worker_messages.fbs) from the worker's side. Reading accepts any bytes.

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

inline constexpr uint32_t kWorkerProtocol = 8;

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
  std::vector<ReleasedSequence> released;
};
/// A message that the worker ignores.
struct Ignored {};
/// The request of a sequence, for logs; sent once.
struct RequestName {
  SequenceId sequence;
  std::string request;
};
/// `plan` is an error if the plan asks for something that this worker does not support. The error is then the answer to
/// plan `id`.
struct PlanMessage {
  PlanId id;
  Result<engine::StepPlan> plan;
  std::vector<RequestName> names = {};
};
/// An update of the activation history: memory to map, the whole history, or its changed entries.
struct HistoryUpdate {
  struct Entry {
    bool answer = false;
    int32_t entry = 0;
    std::vector<uint8_t> cells;
  };
  bool reset = false;
  int32_t capacity = 0;  ///< of a reset
  std::vector<Entry> entries = {};
  uint64_t segment = 0;  ///< not 0: memory to map; the other fields are empty
  /// Applies it to a copy. Stops with kInvalidArgument at the first entry that does not fit the model.
  Status apply(activation::ActivationHistory& history) const;
};
using OrchestratorSays = std::variant<Registered, Refused, Drain, Release, Ignored, PlanMessage, HistoryUpdate>;

/// kInvalidArgument for anything but a verified message that an orchestrator may send.
Result<OrchestratorSays> read_orchestrator_message(std::span<const std::byte> body);

struct Registration {
  std::string name, model, device;
  uint64_t pack_identity = 0, kv_epoch = 0;
  uint64_t tokenizer = 0;  ///< XXH3-64 of the pack's tokenizer.json; 0: not known
  uint32_t kv_blocks = 0, context_max = 0, step_tokens_max = 0, step_sequences_max = 0;
  uint32_t overtaking_tokens_max = 0;  ///< of a plan that overtakes another; 0: none does
  uint32_t moe_layers = 0, experts = 0, top_k = 0;
  uint32_t kv_sinks = 0, kv_window = 0;
  bool wants_history = false;
  bool mixed = false;  ///< EngineOptions::mixed
  uint32_t device_slots = 0;  ///< 0: the device has no own memory
  uint64_t device_slot_bytes = 0;
  uint32_t kv_host_blocks = 0;
  uint32_t state_slots = 0, state_interval = 0;
};
std::vector<std::byte> write_registration(const Registration& registration);
/// `asks_to_leave`: it was told to stop.
std::vector<std::byte> write_heartbeat(uint32_t worker, uint64_t plans_done, bool asks_to_leave = false);
/// `device`: figures of the worker's device since the previous result; null: there is none.
std::vector<std::byte> write_result(const engine::StepOutcome& outcome, const tier::TierFigures* device = nullptr);
/// The last message. OK: this worker was asked to stop; otherwise why it cannot go on.
std::vector<std::byte> write_leaving(const Status& why);
/// Whether the announced memory of the history was mapped (OK).
std::vector<std::byte> write_history_reader(uint64_t segment, const Status& mapped);
/// The plan failed completely.
std::vector<std::byte> write_failure(PlanId plan, const Status& why);

}  // namespace moestro::worker
