#pragma once
// The files of an arena directory. A store that was killed leaves them to its successor, which adopts them or makes
// them anew:
//
//   DIR/ store.lock  alive  arena  table  directory  pins/SLOT  bell/SLOT  workers/SLOT       (arena may lie elsewhere:
//   payload.h)
//
// store.lock is never removed. Its lock is taken before anything else is touched, and its descriptor is registered with
// every ring: a killed store's reads go on landing for seconds, and only when the kernel has finished them is the lock
// free. `alive` is locked too, but by a plain descriptor: it is free the moment the store is gone, which is what
// workers want to know. workers/SLOT is locked by the worker of that slot, for the same reason. Slot files are new
// inodes for each holder, so that a mapping left over from an earlier one reaches nothing. `directory`
// (arena_directory.h) comes last: an arena is whole when it is there.

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
  uint64_t pack_identity = 0;  ///< of the version of the pack that it attached with, and where its entries begin
  uint32_t pack_first_entry = 0;
};

class ArenaFiles {
 public:
  /// Makes the directory if need be and waits up to `patience` for its lock; changes nothing that an earlier store
  /// left: adopt() or discard() is next. `waiting` is called again and again while the lock is held; false stops with
  /// kCancelled.
  static Result<std::unique_ptr<ArenaFiles>> lock(const std::filesystem::path& dir, std::chrono::milliseconds patience,
                                                  const std::function<bool()>& waiting,
                                                  const ArenaOptions& options = {});
  ~ArenaFiles();

  /// What a store that was killed has left, mapped: arena, table, and every slot whose worker lives (its pins stay;
  /// those of the dead are dropped, `stamp` of each entry, the newest use by any of them, is kept). The table is as
  /// that store left it: the caller looks at its entries, then calls publish(), or else discard(). An error (kNotFound:
  /// nothing was left) says why it cannot be used.
  Status adopt(const ArenaDirectory& left);
  /// After adopt(): this store, and its epoch, are there for the workers; rings every bell.
  Status publish(uint64_t epoch);
  /// Tells the workers of an arena that is not adopted that it is over, and removes its files. Waits up to `patience`
  /// until the last worker has let go of its slot (with it goes the memory); returns the slots of those that have not.
  /// `waiting` as above.
  Result<std::vector<uint32_t>> discard(std::chrono::milliseconds patience, const std::function<bool()>& waiting);

  /// What the files beside the weights take, with so many entries and so many workers attached.
  static uint64_t small_bytes(uint32_t entries, uint32_t workers);
  /// Makes arena and table, and backs them. `progress` is told the bytes backed so far; false stops with kCancelled.
  Status create(uint64_t arena_bytes, uint32_t entries, uint64_t epoch, const std::function<bool(uint64_t)>& progress);
  /// Makes the files of one worker slot; forget_slot() drops them.
  Status create_slot(uint32_t slot, const SlotHolder& holder);
  /// Who holds a slot, as its bell file says.
  SlotHolder holder(uint32_t slot) const;
  void forget_slot(uint32_t slot);
  /// Removes everything but the lock, and marks the table closed for whoever still maps it.
  void close();

  std::byte* arena() const { return arena_.data(); }
  const PayloadPlace& payload() const { return payload_; }
  /// Before create(): the weights lie in the arena's directory after all, where --payload-dir has no room for them.
  void use_own_directory() { payload_ = {dir_ / "arena", {}}; }
  PageReport pages() const { return report_pages(payload_, nodes_, arena_); }
  /// Why the arena does not lie on the nodes that were chosen for it.
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
  /// Its worker has cut the file of its pins short, which no worker of ours does: they all read as free now.
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
