// What a store that was killed has left: taken over, or ended for whoever still maps it.

#include <sys/stat.h>

#include <algorithm>
#include <thread>

#include "common/shm/futex.h"
#include "store/arena/arena_files.h"

namespace moestro::store {
namespace {

using shm::MappedFile;
constexpr std::chrono::milliseconds kLook{20};

/// A file that a store made for itself to write (mode 0440), mapped for writing again.
Result<MappedFile> map_own(const std::filesystem::path& path, uint64_t bytes_min) {
  struct stat info {};
  const bool there = ::lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
  if (there) ::chmod(path.c_str(), info.st_mode | S_IWUSR);
  auto file = MappedFile::open(path, MappedFile::Access::kReadWrite, bytes_min);
  if (there) ::chmod(path.c_str(), info.st_mode & 07777);
  return file;
}

void ring_bell(std::byte* bell) {
  auto* header = reinterpret_cast<BellHeader*>(bell);
  header->doorbell.fetch_add(1, std::memory_order_seq_cst);
  shm::futex_wake_all(header->doorbell);
}

}  // namespace

Status ArenaFiles::adopt(const ArenaDirectory& left) {
  const Status mapped = map_former(left);
  if (!mapped) {  // the files stay as they are; discard() sees to them
    arena_ = {}, table_ = {}, alive_ = {};
    for (Slot& slot : slots_) slot = Slot{};
  }
  made_ = mapped.is_ok();
  return mapped;
}

Status ArenaFiles::map_former(const ArenaDirectory& left) {
  if (left.shared_version != kSharedVersion)
    return unsupported("its memory layout is version " + std::to_string(left.shared_version) + ", this store's is " +
                       std::to_string(kSharedVersion));
  MOESTRO_ASSIGN_OR_RETURN(table_, map_own(dir_ / "table", table_bytes(left.entries)));
  const TableHeader& header = table();
  if (header.magic != kTableMagic || header.version != kSharedVersion || header.entries != left.entries ||
      header.arena_bytes != left.arena_bytes)
    return corrupt("the head of its table does not say what its directory says");
  if (header.closed.load() != 0) return unavailable("it has been given up already");
  MOESTRO_ASSIGN_OR_RETURN(alive_, shm::FileLock::open(dir_ / "alive", false));
  std::error_code ignored;
  if (!wanted_.nameless() && !std::filesystem::exists(wanted_.file, ignored) &&
      std::filesystem::exists(dir_ / "arena", ignored))
    use_own_directory();
  if (payload_.nameless())
    return unavailable("its memory had no name (--payload-dir memfd) and went with the store that made it");
  MOESTRO_ASSIGN_OR_RETURN(arena_, map_own(payload_.file, left.arena_bytes));
  MOESTRO_RETURN_IF_ERROR(access_.apply(arena_.fd(), access_.arena(), payload_.file));
  arena_.prefer_huge_pages();
  MOESTRO_RETURN_IF_ERROR(table_.back(0, table_.size()));
  MOESTRO_RETURN_IF_ERROR(arena_.back(0, arena_.size()));
  entries_ = left.entries;
  former_stamps_.assign(entries_, 0);
  for (uint32_t slot = 0; slot < kWorkerSlotsMax; ++slot) {
    MOESTRO_ASSIGN_OR_RETURN(const bool lives, map_former_slot(slot));
    if (!lives) forget_slot(slot);
  }
  return Status::ok();
}

/// False: there is no such slot, or its worker is gone.
Result<bool> ArenaFiles::map_former_slot(uint32_t slot) {
  const std::string name = std::to_string(slot);
  auto lock = shm::FileLock::open(dir_ / "workers" / name, false);
  if (!lock) return lock.status().code() == Code::kNotFound ? Result<bool>(false) : lock.status();
  MOESTRO_ASSIGN_OR_RETURN(const bool lives, lock->held_elsewhere());
  auto pins = map_own(dir_ / "pins" / name, pins_bytes(entries_));
  auto bell = map_own(dir_ / "bell" / name, bell_bytes());
  shm::ShrinkGuard guard;
  if (pins) {  // also a dead worker's uses say what is hot
    guard = shm::ShrinkGuard(*pins);
    const auto* words = reinterpret_cast<const std::atomic<uint64_t>*>(pins->data() + kSharedPage);
    for (uint32_t entry = 0; entry < entries_; ++entry)
      former_stamps_[entry] =
          std::max(former_stamps_[entry], PinWord::stamp(words[entry].load(std::memory_order_relaxed)));
  }
  if (!lives) return false;
  if (!pins || !bell) return (pins ? bell : pins).status();
  const auto& head = *reinterpret_cast<const PinsHeader*>(pins->data());
  const auto& rings = *reinterpret_cast<const BellHeader*>(bell->data());
  if (head.magic != kPinsMagic || head.version != kSharedVersion || head.entries != entries_ ||
      rings.magic != kBellMagic || rings.version != kSharedVersion || rings.ring_entries != kBellRing)
    return corrupt("the files of worker slot " + name + " are damaged");
  slots_[slot] = Slot{std::move(*pins), std::move(*bell), std::move(*lock), std::move(guard)};
  return true;
}

Status ArenaFiles::publish(uint64_t epoch) {
  epoch_ = epoch;
  table().epoch.store(epoch, std::memory_order_seq_cst);
  MOESTRO_ASSIGN_OR_RETURN(const bool alive, alive_.try_lock());
  if (!alive) return internal_error((dir_ / "alive").string() + " is locked, and no store is there");
  for (uint32_t slot = 0; slot < kWorkerSlotsMax; ++slot)
    if (has_slot(slot)) ring_bell(slots_[slot].bell.data());
  return Status::ok();
}

Result<std::vector<uint32_t>> ArenaFiles::discard(std::chrono::milliseconds patience,
                                                  const std::function<bool()>& waiting) {
  std::error_code ignored;
  std::filesystem::remove(dir_ / "directory", ignored);  // from here on nobody adopts it
  // The word is where the worker reads it whatever else is damaged.
  if (auto table_file = map_own(dir_ / "table", kSharedPage))
    reinterpret_cast<TableHeader*>(table_file->data())
        ->closed.store(static_cast<uint32_t>(Closed::kReplaced), std::memory_order_seq_cst);
  std::vector<std::pair<uint32_t, shm::FileLock>> holders;
  for (uint32_t slot = 0; slot < kWorkerSlotsMax; ++slot) {
    if (auto bell = map_own(dir_ / "bell" / std::to_string(slot), kSharedPage)) ring_bell(bell->data());
    if (auto lock = shm::FileLock::open(dir_ / "workers" / std::to_string(slot), false))
      holders.emplace_back(slot, std::move(*lock));
  }
  const auto deadline = std::chrono::steady_clock::now() + patience;
  const auto let_go = [](auto& holder) {
    const auto held = holder.second.held_elsewhere();
    return !held || !*held;
  };
  while (std::erase_if(holders, let_go), !holders.empty() && std::chrono::steady_clock::now() < deadline) {
    if (!waiting()) return cancelled("stopped while workers still map the arena in " + dir_.string());
    std::this_thread::sleep_for(kLook);
  }
  remove_files();
  payload_ = wanted_;
  made_ = false;
  arena_ = {}, table_ = {}, alive_ = {};
  for (Slot& slot : slots_) slot = Slot{};
  former_stamps_.clear();
  std::vector<uint32_t> slots;
  for (const auto& holder : holders) slots.push_back(holder.first);
  return slots;
}

}  // namespace moestro::store
