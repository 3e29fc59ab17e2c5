#pragma once
// The files of an arena directory. A killed store leaves them to its successor, which adopts them or makes new ones:
//
//   DIR/ store.lock  alive  arena  table  directory  pins/SLOT  bell/SLOT  workers/SLOT
//
// `arena` may be in another place (payload.h). store.lock is never removed. A store takes its lock before it touches
// anything else, and registers its descriptor with every ring. Reads of a killed store may still write for seconds, and
// the lock becomes free only when the kernel has finished them. `alive` is locked by a plain descriptor: that lock is
// free as soon as the store is gone, so workers watch it. workers/SLOT is locked by the worker of that slot, for the
// same reason. Slot files are new inodes for each holder, so a mapping of an earlier holder reaches nothing.
// `directory` (arena_directory.h) is written last: when it exists, the arena is complete.

#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/machine/numa.h"
#include "common/shm/file_lock.h"
#include "common/shm/mapped_file.h"
#include "common/shm/shrink_guard.h"
#include "common/status.h"
#include "store/arena/arena_directory.h"
#include "store/arena/payload.h"
#include "store/layout/pins_layout.h"
#include "store/layout/table_layout.h"

namespace moestro::store {

struct ArenaOptions {
  std::string payload;     ///< --payload-dir (payload.h)
  machine::NodeChoice numa = {};  ///< --numa
  shm::FileAccess access;  ///< who may reach the files
};

struct SlotHolder {
  uint64_t incarnation = 0;
  std::string model, client;
  uint64_t pack_identity = 0;  ///< the version of the pack that it attached with, and the first of its entries
  uint32_t pack_first_entry = 0;
};

class ArenaFiles {
 public:
  /// Makes the directory if needed and waits up to `patience` for its lock. Changes nothing that an earlier store left:
  /// call adopt() or discard() next. `waiting` is called repeatedly while another process holds the lock; if it returns
  /// false, the result is kCancelled.
  static Result<std::unique_ptr<ArenaFiles>> lock(const std::filesystem::path& dir, std::chrono::milliseconds patience,
                                                  const std::function<bool()>& waiting,
                                                  const ArenaOptions& options = {});
  ~ArenaFiles();

  /// Maps what a killed store has left: arena, table, and every slot whose worker is alive (its pins stay; those of
  /// dead workers are dropped, but the newest stamp of each entry by any of them is kept). The table is unchanged. The
  /// caller checks its entries and then calls publish() or discard(). An error says why the arena cannot be used
  /// (kNotFound: nothing was left).
  Status adopt(const ArenaDirectory& left);
  /// After adopt(): publishes this store and its epoch to the workers, and rings every bell.
  Status publish(uint64_t epoch);
  /// Tells the workers of an arena that is not adopted that it has ended, and removes its files. Waits up to `patience`
  /// until the last worker has released its slot, and so the memory. Returns the slots of workers that have not.
  /// `waiting` as above.
  Result<std::vector<uint32_t>> discard(std::chrono::milliseconds patience, const std::function<bool()>& waiting);

  /// Bytes of the other files (all but the weights) with this many entries and attached workers.
  static uint64_t small_bytes(uint32_t entries, uint32_t workers);
  /// Makes arena and table, and backs them. `progress` gets the bytes backed so far; if it returns false, the result is
  /// kCancelled.
  Status create(uint64_t arena_bytes, uint32_t entries, uint64_t epoch, const std::function<bool(uint64_t)>& progress);
  /// Makes the files of one worker slot; forget_slot() drops them.
  Status create_slot(uint32_t slot, const SlotHolder& holder);
  /// The holder of a slot, from its bell file.
  SlotHolder holder(uint32_t slot) const;
  void forget_slot(uint32_t slot);
  /// Removes everything but the lock, and marks the table as closed for processes that still map it.
  void close();

  std::byte* arena() const { return arena_.data(); }
  const PayloadPlace& payload() const { return payload_; }
  /// Before create(): puts the weights in the arena's directory, because --payload-dir has no room for them.
  void use_own_directory() { payload_ = {dir_ / "arena", {}}; }
  PageReport pages() const { return report_pages(payload_, nodes_, arena_); }
  /// Why the arena is not on the nodes that were chosen for it.
  const Status& spread() const { return nodes_.spread; }
  TableHeader& table() const { return *reinterpret_cast<TableHeader*>(table_.data()); }
  TableEntry& entry(uint32_t index) const { return reinterpret_cast<TableEntry*>(table_.data() + kSharedPage)[index]; }
  bool has_slot(uint32_t slot) const { return static_cast<bool>(slots_[slot].pins); }
  std::atomic<uint64_t>& pin_word(uint32_t slot, uint32_t entry) const {
    return reinterpret_cast<std::atomic<uint64_t>*>(slots_[slot].pins.data() + kSharedPage)[entry];
  }
  const PinsHeader& pins_header(uint32_t slot) const {
    return *reinterpret_cast<const PinsHeader*>(slots_[slot].pins.data());
  }
  /// True if the slot's worker has shortened the file of its pins, which no worker of Moestro does. All its pins now
  /// read as free.
  bool pins_cut(uint32_t slot) const { return slots_[slot].guard.shrunk(); }
  /// Writes a completion to the slot's ring and rings its bell.
  void ring(uint32_t slot, uint32_t entry, uint32_t outcome);
  /// Whether a worker holds the slot's lock.
  Result<bool> worker_alive(uint32_t slot);
  /// After adopt(): the newest stamp of an entry in the words of any worker, dead or alive.
  uint64_t former_stamp(uint32_t entry) const { return entry < former_stamps_.size() ? former_stamps_[entry] : 0; }

  int lock_fd() const { return store_lock_.fd(); }
  const std::filesystem::path& dir() const { return dir_; }

 private:
  struct Slot {
    shm::MappedFile pins, bell;
    shm::FileLock lock;
    shm::ShrinkGuard guard = {};  ///< of pins, which its worker may write
  };
  void remove_files();
  Status map_former(const ArenaDirectory& left);
  Result<bool> map_former_slot(uint32_t slot);

  std::filesystem::path dir_;
  PayloadPlace wanted_, payload_;  ///< by --payload-dir; where it lies
  PayloadNodes nodes_;
  shm::FileAccess access_;
  shm::FileLock store_lock_, alive_;
  shm::MappedFile arena_, table_;
  std::unique_ptr<shm::DescriptorServer> handing_out_;  ///< of a nameless payload
  std::array<Slot, kWorkerSlotsMax> slots_;
  std::vector<uint64_t> former_stamps_;
  uint64_t epoch_ = 0;
  uint32_t entries_ = 0;
  bool made_ = false;
};

}  // namespace moestro::store
