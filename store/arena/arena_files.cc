#include "store/arena/arena_files.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "common/machine/numa_pages.h"
#include "common/shm/futex.h"

namespace moestro::store {
namespace {

/// Makes a file, sized, mapped and backed, for who may reach it.
Result<shm::MappedFile> make_file(const std::filesystem::path& path, uint64_t bytes, const shm::FileAccess& access,
                                  mode_t mode) {
  MOESTRO_ASSIGN_OR_RETURN(auto file, shm::MappedFile::create(path, bytes, mode));
  MOESTRO_RETURN_IF_ERROR(access.apply(file.fd(), mode, path));
  MOESTRO_RETURN_IF_ERROR(file.back(0, file.size()));
  return file;
}

Result<shm::FileLock> make_lock(const std::filesystem::path& path, const shm::FileAccess& access) {
  MOESTRO_ASSIGN_OR_RETURN(auto lock, shm::FileLock::open(path, true, access.shared()));
  MOESTRO_RETURN_IF_ERROR(access.apply(lock.fd(), access.shared(), path));
  return lock;
}

}  // namespace

Result<std::unique_ptr<ArenaFiles>> ArenaFiles::lock(const std::filesystem::path& dir,
                                                     std::chrono::milliseconds patience,
                                                     const std::function<bool()>& waiting,
                                                     const ArenaOptions& options) {
  auto files = std::make_unique<ArenaFiles>();
  files->access_ = options.access;
  MOESTRO_RETURN_IF_ERROR(shm::make_private_dir(dir, options.access, "arena directory"));
  for (const char* part : {"pins", "bell", "workers"})
    MOESTRO_RETURN_IF_ERROR(shm::make_private_dir(dir / part, options.access, "arena directory"));
  std::error_code error;
  files->dir_ = std::filesystem::absolute(dir, error);
  MOESTRO_ASSIGN_OR_RETURN(files->wanted_, payload_place(options.payload, files->dir_));
  files->payload_ = files->wanted_;
  files->nodes_.there = machine::memory_nodes();
  auto over = machine::chosen_nodes(options.numa, files->nodes_.there, machine::has_memory_policy());
  if (!over) return over.status().with_context("--numa");
  files->nodes_.over = std::move(*over);
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
  for (const PayloadPlace* place : {&wanted_, &payload_})
    if (!place->nameless()) std::filesystem::remove(place->file, ignored);
  for (const char* part : {"pins", "bell", "workers"})
    for (uint32_t slot = 0; slot < kWorkerSlotsMax; ++slot)
      std::filesystem::remove(dir_ / part / std::to_string(slot), ignored);
}

uint64_t ArenaFiles::small_bytes(uint32_t entries, uint32_t workers) {
  constexpr uint64_t kText = 64 << 10;  // `directory`, one line a pack, and the next one before it replaces it
  return table_bytes(entries) + workers * (pins_bytes(entries) + bell_bytes()) + kText;
}

Status ArenaFiles::create(uint64_t arena_bytes, uint32_t entries, uint64_t epoch,
                          const std::function<bool(uint64_t)>& progress) {
  made_ = true;
  epoch_ = epoch, entries_ = entries;
  MOESTRO_ASSIGN_OR_RETURN(alive_, make_lock(dir_ / "alive", access_));
  MOESTRO_ASSIGN_OR_RETURN(const bool alive, alive_.try_lock());
  if (!alive) return internal_error((dir_ / "alive").string() + " was just made and is locked already");
  MOESTRO_ASSIGN_OR_RETURN(table_, make_file(dir_ / "table", table_bytes(entries), access_, access_.read_only()));
  MOESTRO_ASSIGN_OR_RETURN(arena_, make_payload(payload_, arena_bytes, access_, nodes_, progress));
  if (payload_.nameless()) {
    MOESTRO_ASSIGN_OR_RETURN(handing_out_, shm::DescriptorServer::listen(payload_.socket, arena_.fd(), access_));
  }
  TableHeader& header = table();
  header.version = kSharedVersion, header.entries = entries, header.epoch.store(epoch),
  header.arena_bytes = arena_bytes;
  header.incarnations.store(epoch);  // so that no holder of a slot is taken for one of another arena
  header.magic = kTableMagic;
  return Status::ok();
}

Status ArenaFiles::create_slot(uint32_t slot, const SlotHolder& holder) {
  if (holder.model.size() >= kSlotNameMax || holder.client.size() >= kSlotNameMax)
    return invalid_argument("the name of a model or a worker is longer than " + std::to_string(kSlotNameMax - 1) +
                            " bytes");
  const std::string name = std::to_string(slot);
  forget_slot(slot);
  Slot made;
  MOESTRO_ASSIGN_OR_RETURN(made.pins, make_file(dir_ / "pins" / name, pins_bytes(entries_), access_, access_.shared()));
  MOESTRO_ASSIGN_OR_RETURN(made.bell, make_file(dir_ / "bell" / name, bell_bytes(), access_, access_.read_only()));
  MOESTRO_ASSIGN_OR_RETURN(made.lock, make_lock(dir_ / "workers" / name, access_));
  auto* pins = reinterpret_cast<PinsHeader*>(made.pins.data());
  pins->magic = kPinsMagic, pins->version = kSharedVersion, pins->entries = entries_, pins->epoch = epoch_;
  auto* bell = reinterpret_cast<BellHeader*>(made.bell.data());
  bell->magic = kBellMagic, bell->version = kSharedVersion, bell->ring_entries = kBellRing, bell->epoch = epoch_;
  bell->incarnation = holder.incarnation;
  bell->pack_identity = holder.pack_identity, bell->pack_first_entry = holder.pack_first_entry;
  holder.model.copy(bell->model, kSlotNameMax - 1);  // the file is zeros, so that both end with one
  holder.client.copy(bell->client, kSlotNameMax - 1);
  made.guard = shm::ShrinkGuard(made.pins);
  slots_[slot] = std::move(made);
  return Status::ok();
}

void ArenaFiles::forget_slot(uint32_t slot) {
  std::error_code ignored;
  for (const char* part : {"pins", "bell", "workers"})
    std::filesystem::remove(dir_ / part / std::to_string(slot), ignored);
  slots_[slot] = Slot{};
}

void ArenaFiles::close() {
  if (!made_) return;
  made_ = false;
  if (table_) table().closed.store(static_cast<uint32_t>(Closed::kShutDown), std::memory_order_release);
  for (uint32_t slot = 0; slot < kWorkerSlotsMax; ++slot)
    if (has_slot(slot))
      ring(slot, 0, static_cast<uint32_t>(Code::kUnavailable));  // wakes the worker, which sees `closed`
  handing_out_.reset();
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
  return {bell.incarnation, text(bell.model), text(bell.client), bell.pack_identity,
          static_cast<uint32_t>(bell.pack_first_entry)};
}

Result<bool> ArenaFiles::worker_alive(uint32_t slot) { return slots_[slot].lock.held_elsewhere(); }

}  // namespace moestro::store
