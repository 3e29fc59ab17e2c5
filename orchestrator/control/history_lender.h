#pragma once
// Gives the history to the workers that want it: shares its memory with those of this host, and sends it to those that
// cannot map it. Control thread.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/shm/descriptor_socket.h"
#include "orchestrator/control/control_plane.h"
#include "orchestrator/control/worker_wire.h"

namespace moestro::orchestrator {

class HistoryLender {
 public:
  using Send = std::function<Status(WorkerId, const std::vector<std::byte>&)>;
  /// `endpoint`: that of the workers. The memory is given out at a socket next to it.
  HistoryLender(const std::string& endpoint, const shm::FileAccess& access, Send send);

  /// HistoryOptions::make: an empty history in memory that is given out from now on. Workers with the previous one get
  /// no more changes. If such memory cannot be made, the log says why, and the history is in this process's own memory.
  std::unique_ptr<activation::ActivationHistory> make(uint64_t pack_identity, const activation::EamcShape& shape,
                                                      int32_t capacity);

  /// A worker wants the history, which is the one that was made last.
  void joined(WorkerId worker, const activation::ActivationHistory& history);
  /// The answer of worker `name` about the memory that was announced to it.
  void answered(WorkerId worker, const std::string& name, const HistoryReader& answer,
                const activation::ActivationHistory* history);
  void changed(const activation::ActivationHistory& history, std::span<const HistoryEntry> changes);
  void left(WorkerId worker) { readers_.erase(worker); }

  HistoryReaders figures() const;

 private:
  enum class Reads : uint8_t { kAsked, kMemory, kMessages };
  void send_all(WorkerId worker, const activation::ActivationHistory& history);
  Status lend(const activation::ActivationHistory& history);

  const std::string endpoint_;
  const shm::FileAccess access_;
  const Send send_;
  std::unique_ptr<shm::DescriptorServer> server_;
  uint64_t segment_ = 0;  ///< 0: none is shared
  uint64_t bytes_ = 0;
  std::map<WorkerId, Reads> readers_;
};

}  // namespace moestro::orchestrator
