#pragma once
// How a worker attaches: handshake, mappings, the lock of its slot.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/net/zmq_socket.h"
#include "common/shm/file_lock.h"
#include "common/shm/mapped_file.h"
#include "common/status.h"
#include "store/layout/pins_layout.h"
#include "store/layout/table_layout.h"
#include "store/pack/manifest.h"

namespace moestro::store {

struct AttachOptions {
  std::string endpoint;  ///< ipc://RUN_DIR/store.sock
  std::string model;
  std::string client = "worker";  ///< names this process in the store's log
  std::chrono::milliseconds timeout{10000};  ///< for the store to start and to answer
  /// The arena is to be registered with a device, and drivers want a mapping that can be written. The store's own user
  /// gets one; StoreClient::forbid_writes() then ends that.
  bool registers_arena = false;
  std::chrono::milliseconds store_wait{60000};  ///< how long a miss waits for the successor of a store that was killed
};

/// A slot of a store that this process holds.
struct Attachment {
  std::string endpoint;
  net::DealerSocket socket;
  uint32_t slot = 0;
  uint64_t incarnation = 0;
  Manifest manifest;
  std::vector<uint32_t> entries;   ///< table entry of each blob
  std::vector<uint32_t> streamed;  ///< blobs of dense weights that take turns in the arena, ascending
  shm::MappedFile arena, table, pins, bell;
  shm::FileLock slot_lock;    ///< ours until the process ends
  shm::FileLock store_alive;  ///< the store's

  const TableHeader& header() const { return *reinterpret_cast<const TableHeader*>(table.data()); }
  const TableEntry& entry(uint32_t index) const {
    return reinterpret_cast<const TableEntry*>(table.data() + kSharedPage)[index];
  }
  std::atomic<uint64_t>& pin(uint32_t index) const {
    return reinterpret_cast<std::atomic<uint64_t>*>(pins.data() + kSharedPage)[index];
  }
  PinsHeader& pins_header() const { return *reinterpret_cast<PinsHeader*>(pins.data()); }
  const BellHeader& bell_header() const { return *reinterpret_cast<const BellHeader*>(bell.data()); }
  uint64_t completion(uint64_t number) const {
    return reinterpret_cast<const std::atomic<uint64_t>*>(bell.data() + kSharedPage)[number % kBellRing].load(
        std::memory_order_relaxed);
  }
  /// No store holds the arena's lock: it was killed.
  bool store_gone();
  /// True if no store will use this arena any more.
  bool closed() const { return header().closed.load(std::memory_order_acquire) != 0; }
};

/// kUnavailable if no store answers in time. Other errors are the store's own refusal, or name a file that cannot be
/// used.
Result<std::unique_ptr<Attachment>> attach_to_store(const AttachOptions& options);

}  // namespace moestro::store
