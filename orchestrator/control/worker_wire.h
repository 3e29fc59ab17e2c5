#pragma once
// The worker protocol (common/wire/worker_messages.fbs) from the orchestrator's side. Reading accepts any bytes.

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "orchestrator/control/device_figures.h"
#include "orchestrator/history/history_keeper.h"
#include "orchestrator/scheduler/types.h"

namespace moestro::orchestrator {

inline constexpr uint32_t kWorkerProtocol = 8;

struct Registration {
  uint32_t protocol = 0;
  std::string name, model, device;
  uint64_t pack_identity = 0, kv_epoch = 0;
  uint64_t tokenizer = 0;  ///< XXH3-64 of the pack's tokenizer.json; 0: not known
  uint32_t ranks = 1;  ///< workers of its replica
  WorkerLimits limits;
  activation::EamcShape experts;  ///< of the model; empty if a worker does not say
  bool wants_history = false;
  bool mixed = false;  ///< missing experts may be served by low copies, or left out
  uint32_t device_slots = 0;  ///< experts that fit in the device's own memory; 0: it has none
  uint64_t device_slot_bytes = 0;
};
struct HeartbeatMessage {
  bool asks_to_leave = false;  ///< it was told to stop
};
/// A StepResult: the outcome and figures of the step.
struct StepReport {
  PlanOutcome outcome;
  uint64_t step_us = 0, stall_us = 0, expert_hits = 0, expert_misses = 0, fetched_bytes = 0, nonfinite_sequences = 0,
           dropped_rows = 0;
  uint64_t parked_us = 0;  ///< not in step_us: plans that overtook it ran
  uint64_t parks = 0;      ///< how often it let some run
  uint64_t dense_bytes = 0, dense_stall_us = 0;  ///< of dense weights that take turns
  uint64_t kv_stall_us = 0;  ///< of stall_us: KV that moves, or attention on the host
  /// Of stall_us, never negative, whatever a worker reports.
  uint64_t expert_stall_us() const { return stall_us - std::min(stall_us, dense_stall_us + kv_stall_us); }
  std::optional<DeviceStep> device;  ///< of a device with its own memory
  std::vector<CopyCounts> layer_copies = {};  ///< by MoE layer; of a worker with low copies
};
/// Whether a worker mapped the announced memory of the history.
struct HistoryReader {
  uint64_t segment = 0;
  bool mapped = false;
  std::string why_not;
};
/// The last message of a worker: OK if it was asked to stop, otherwise why it cannot go on.
struct Leaving {
  Status why;
};
using WorkerSays = std::variant<Registration, HeartbeatMessage, StepReport, HistoryReader, Leaving>;

/// Anything but a well-formed message that a worker may send is kInvalidArgument.
Result<WorkerSays> read_worker_message(std::span<const std::byte> body);

std::vector<std::byte> write_registered(WorkerId worker);
std::vector<std::byte> write_refused(const Status& why);
/// `attach_anew`: the worker should attach again to get the version that is served.
std::vector<std::byte> write_drain(bool attach_anew = false);
/// Announces the memory of a history with this segment.
std::vector<std::byte> write_history_segment(uint64_t segment);
/// A whole history, in messages of a few MiB; the first one resets.
std::vector<std::vector<std::byte>> write_history(const activation::ActivationHistory& history);
/// Changed entries of a history.
std::vector<std::byte> write_history(const activation::ActivationHistory& history,
                                     std::span<const HistoryEntry> changes);
std::vector<std::byte> write_release(std::span<const ReleasedSequence> released);
std::vector<std::byte> write_plan(const Plan& plan, const std::string& model);

}  // namespace moestro::orchestrator
