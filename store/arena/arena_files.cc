#include "store/arena/arena_files.h"

#include <linux/magic.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <thread>

#include "common/shm/futex.h"

namespace moestro::store {
namespace {

constexpr uint64_t kBackStep = 64ULL << 20;
constexpr mode_t kStoreOnly = 0440;   ///< the store writes through the descriptor it made the file with
constexpr mode_t kWorkerToo = 0660;

std::string mib(uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

uint64_t memory_available() {
  std::ifstream meminfo("/proc/meminfo");
  for (std::string line; std::getline(meminfo, line);) {
    unsigned long kib = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %lu", &kib) == 1) return uint64_t{kib} * 1024;
  }
  return UINT64_MAX;
}

Result<long> file_system_of(const std::filesystem::path& dir) {
  struct statfs fs {};
  if (statfs(dir.c_str(), &fs) != 0) return io_error("cannot stat the file system of " + dir.string(), errno);
  return static_cast<long>(fs.f_type);
}

}  // namespace

Result<std::unique_ptr<ArenaFiles>> ArenaFiles::lock(const std::filesystem::path& dir, std::chrono::milliseconds patience,
                                                     const std::function<bool()>& waiting) {
  auto files = std::make_unique<ArenaFiles>();
  std::error_code error;
  for (const char* part : {"pins", "bell", "workers"}) {
    std::filesystem::create_directories(dir / part, error);
    if (error) return io_error("cannot make the arena directory " + (dir / part).string() + ": " + error.message());
  }
  files->dir_ = std::filesystem::absolute(dir, error);
  MOESTRO_ASSIGN_OR_RETURN(files->store_lock_, shm::FileLock::open(dir / "store.lock", true, 0600));
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (true) {
    MOESTRO_ASSIGN_OR_RETURN(const bool locked, files->store_lock_.try_lock());
    if (locked) break;
    if (std::chrono::steady_clock::now() >= deadline)
      return unavailable("another store, or the last reads of a killed one, hold " + (dir / "store.lock").string() +
                         ": stop it, or choose another --arena-dir");
    if (!waiting()) return cancelled("stopped while waiting for " + (dir / "store.lock").string());
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return files;
}

ArenaFiles::~ArenaFiles() { close(); }

void ArenaFiles::remove_files() {
  std::error_code ignored;
  // The directory goes first: what lacks it is not whole.
  for (const char* name : {"directory", "alive", "arena", "table"}) std::filesystem::remove(dir_ / name, ignored);
  for (const char* part : {"pins", "bell", "workers"})
    for (uint32_t slot = 0; slot < kWorkerSlotsMax; ++slot)
      std::filesystem::remove(dir_ / part / std::to_string(slot), ignored);
}

Result<uint64_t> ArenaFiles::free_bytes() const {
  struct statvfs fs {};
  if (statvfs(dir_.c_str(), &fs) != 0) return io_error("cannot stat the file system of " + dir_.string(), errno);
  const uint64_t free = uint64_t{fs.f_bavail} * fs.f_frsize;
  return in_memory() ? std::min(free, memory_available()) : free;
}

bool ArenaFiles::in_memory() const {
  const auto type = file_system_of(dir_);
  return type && (*type == TMPFS_MAGIC || *type == HUGETLBFS_MAGIC || *type == RAMFS_MAGIC);
}

Status ArenaFiles::create(uint64_t arena_bytes, uint32_t entries, uint64_t epoch,
                          const std::function<bool(uint64_t)>& progress) {
  MOESTRO_ASSIGN_OR_RETURN(const uint64_t free, free_bytes());
  if (arena_bytes > free)
    return exhausted("an arena of " + mib(arena_bytes) + " does not fit in " + dir_.string() + ", which has " + mib(free) +
                     " free: lower --dram, or give --arena-dir a larger tmpfs");
  made_ = true;
  epoch_ = epoch, entries_ = entries;
  MOESTRO_ASSIGN_OR_RETURN(alive_, shm::FileLock::open(dir_ / "alive", true, kWorkerToo));
  MOESTRO_ASSIGN_OR_RETURN(const bool alive, alive_.try_lock());
  if (!alive) return internal_error((dir_ / "alive").string() + " was just made and is locked already");
  MOESTRO_ASSIGN_OR_RETURN(table_, shm::MappedFile::create(dir_ / "table", table_bytes(entries), kStoreOnly));
  MOESTRO_RETURN_IF_ERROR(table_.back(0, table_.size()));
  MOESTRO_ASSIGN_OR_RETURN(arena_, shm::MappedFile::create(dir_ / "arena", arena_bytes, kStoreOnly));
  arena_.prefer_huge_pages();
  for (uint64_t at = 0; at < arena_.size(); at += kBackStep) {
    if (!progress(at)) return cancelled("stopped while backing the arena");
    if (const Status backed = arena_.back(at, std::min(kBackStep, arena_.size() - at)); !backed)
      return exhausted("the file system of " + dir_.string() + " ran full after " + mib(at) + " of an arena of " + mib(arena_bytes) +
                       ": lower --dram, or give --arena-dir a larger tmpfs");
  }
  progress(arena_.size());
  TableHeader& header = table();
  header.version = kSharedVersion, header.entries = entries, header.epoch.store(epoch), header.arena_bytes = arena_bytes;
  header.incarnations.store(epoch);  // so that no holder of a slot is taken for one of another arena
  header.magic = kTableMagic;
  return Status::ok();
}

Status ArenaFiles::create_slot(uint32_t slot, const SlotHolder& holder) {
  if (holder.model.size() >= kSlotNameMax || holder.client.size() >= kSlotNameMax)
    return invalid_argument("the name of a model or a worker is longer than " + std::to_string(kSlotNameMax - 1) + " bytes");
  const std::string name = std::to_string(slot);
  forget_slot(slot);
  Slot made;
  MOESTRO_ASSIGN_OR_RETURN(made.pins, shm::MappedFile::create(dir_ / "pins" / name, pins_bytes(entries_), kWorkerToo));
  MOESTRO_ASSIGN_OR_RETURN(made.bell, shm::MappedFile::create(dir_ / "bell" / name, bell_bytes(), kStoreOnly));
  MOESTRO_RETURN_IF_ERROR(made.pins.back(0, made.pins.size()));
  MOESTRO_RETURN_IF_ERROR(made.bell.back(0, made.bell.size()));
  MOESTRO_ASSIGN_OR_RETURN(made.lock, shm::FileLock::open(dir_ / "workers" / name, true, kWorkerToo));
  auto* pins = reinterpret_cast<PinsHeader*>(made.pins.data());
  pins->magic = kPinsMagic, pins->version = kSharedVersion, pins->entries = entries_, pins->epoch = epoch_;
  auto* bell = reinterpret_cast<BellHeader*>(made.bell.data());
  bell->magic = kBellMagic, bell->version = kSharedVersion, bell->ring_entries = kBellRing, bell->epoch = epoch_;
  bell->incarnation = holder.incarnation;
  holder.model.copy(bell->model, kSlotNameMax - 1);  // the file is zeros, so that both end with one
  holder.client.copy(bell->client, kSlotNameMax - 1);
  slots_[slot] = std::move(made);
  return Status::ok();
}

void ArenaFiles::forget_slot(uint32_t slot) {
  std::error_code ignored;
  for (const char* part : {"pins", "bell", "workers"}) std::filesystem::remove(dir_ / part / std::to_string(slot), ignored);
  slots_[slot] = Slot{};
}

void ArenaFiles::close() {
  if (!made_) return;
  made_ = false;
  if (table_) table().closed.store(static_cast<uint32_t>(Closed::kShutDown), std::memory_order_release);
  for (uint32_t slot = 0; slot < kWorkerSlotsMax; ++slot)
    if (has_slot(slot)) ring(slot, 0, static_cast<uint32_t>(Code::kUnavailable));  // wakes the worker, which sees `closed`
  remove_files();
}

void ArenaFiles::ring(uint32_t slot, uint32_t entry, uint32_t outcome) {
  std::byte* base = slots_[slot].bell.data();
  auto* header = reinterpret_cast<BellHeader*>(base);
  auto* words = reinterpret_cast<std::atomic<uint64_t>*>(base + kSharedPage);
  const uint64_t head = header->head.load(std::memory_order_relaxed);
  words[head % kBellRing].store(Completion::pack(entry, outcome), std::memory_order_relaxed);
  header->head.store(head + 1, std::memory_order_release);
  header->doorbell.fetch_add(1, std::memory_order_seq_cst);
  shm::futex_wake_all(header->doorbell);
}

SlotHolder ArenaFiles::holder(uint32_t slot) const {
  const auto& bell = *reinterpret_cast<const BellHeader*>(slots_[slot].bell.data());
  const auto text = [](const char* name) { return std::string(name, strnlen(name, kSlotNameMax - 1)); };
  return {bell.incarnation, text(bell.model), text(bell.client)};
}

Result<bool> ArenaFiles::worker_alive(uint32_t slot) { return slots_[slot].lock.held_elsewhere(); }

}  // namespace moestro::store
