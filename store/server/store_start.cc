// How a store comes up: packs, lock, arena, reader, socket.

#include <algorithm>
#include <random>
#include <utility>

#include "common/log.h"
#include "common/policy/lru_policy.h"
#include "store/server/store_server.h"

namespace moestro::store {
namespace {

constexpr std::chrono::seconds kLockPatience{30};  ///< a killed store's reads can go on for seconds
constexpr uint32_t kEntriesMin = 4096;             ///< of the table: room for packs that are added later
constexpr uint64_t kLeaveFree = 256ULL << 20;      ///< of what is free, when the size is ours to choose

uint64_t total_bytes(const std::vector<MachineBlob>& blobs) {
  uint64_t total = 0;
  for (const MachineBlob& blob : blobs) total += (blob.length + kSharedPage - 1) / kSharedPage * kSharedPage;
  return total;
}

}  // namespace

Result<std::unique_ptr<StoreServer>> StoreServer::start(StoreOptions options, const std::atomic<bool>& stop) {
  std::unique_ptr<StoreServer> server(new StoreServer());
  MOESTRO_RETURN_IF_ERROR(server->open(std::move(options), stop));
  return server;
}

Status StoreServer::open(StoreOptions options, const std::atomic<bool>& stop) {
  options_ = std::move(options);
  MOESTRO_ASSIGN_OR_RETURN(catalogue_, Catalogue::open(options_.models));
  const std::vector<MachineBlob> blobs = catalogue_.machine_blobs();
  bool said = false;
  MOESTRO_ASSIGN_OR_RETURN(files_, ArenaFiles::lock(options_.arena_dir, kLockPatience, [&] {
    if (!std::exchange(said, true))
      log::info("waiting for {}: another store, or the last reads of a killed one, hold it", (options_.arena_dir / "store.lock").string());
    return !stop.load(std::memory_order_relaxed);
  }));
  state_.emplace(*files_);
  std::random_device random;
  epoch_ = (uint64_t{random()} << 32 | random()) | 1;
  MOESTRO_ASSIGN_OR_RETURN(const bool adopted, adopt_or_discard(stop));
  if (!adopted) MOESTRO_RETURN_IF_ERROR(begin_anew(blobs, stop));
  MOESTRO_RETURN_IF_ERROR(start_reader(options_));

  std::error_code error;
  std::filesystem::create_directories(options_.run_dir, error);
  if (error) return io_error("cannot make the run directory " + options_.run_dir.string() + ": " + error.message());
  endpoint_ = "ipc://" + (options_.run_dir / "store.sock").string();
  MOESTRO_ASSIGN_OR_RETURN(auto socket, net::RouterSocket::bind(endpoint_));
  socket_.emplace(std::move(socket));
  perform(std::exchange(adopted_actions_, {}));
  return adopted ? files_->publish(epoch_) : write_directory(files_->dir(), directory());
}

Status StoreServer::begin_anew(const std::vector<MachineBlob>& blobs, const std::atomic<bool>& stop) {
  MOESTRO_ASSIGN_OR_RETURN(const uint64_t bytes, choose_arena_bytes(options_, blobs));
  // The machine says whether the size can work before minutes go into backing it; it touches shared memory only when stepped.
  // A size that was asked for stays too small; one that was taken from what is free may be larger at the next start.
  if (const Status made = make_machine(bytes); !made) return options_.dram_bytes ? invalid_argument(made.message()) : made;
  MOESTRO_RETURN_IF_ERROR(back_arena(bytes, stop));
  for (uint32_t i = 0; i < blobs.size(); ++i) files_->entry(i).length.store(blobs[i].length, std::memory_order_relaxed);
  return Status::ok();
}

Status StoreServer::make_machine(uint64_t arena_bytes) {
  StoreMachine::Options machine_options;
  machine_options.arena_bytes = arena_bytes;
  const std::vector<MachineBlob> blobs = catalogue_.machine_blobs();
  machine_options.entries_max = entries_max_ = std::max(kEntriesMin, 2 * static_cast<uint32_t>(blobs.size()));
  machine_options.poison_freed = options_.poison_freed;
  for (const auto& [index, pack] : catalogue_.packs())  // two at once, so that the drive goes on from one to the next
    machine_options.loading_bytes_max = std::max(machine_options.loading_bytes_max, 2 * pack.largest_expert);
  MOESTRO_ASSIGN_OR_RETURN(machine_, StoreMachine::create(machine_options, blobs, std::make_unique<policy::LruPolicy>(), *state_));
  return Status::ok();
}

Result<uint64_t> StoreServer::choose_arena_bytes(const StoreOptions& options, const std::vector<MachineBlob>& blobs) const {
  const uint64_t needed = std::max(total_bytes(blobs), StoreMachine::arena_bytes_min(blobs));
  if (options.dram_bytes) return std::min(*options.dram_bytes, needed) / kSharedPage * kSharedPage;
  MOESTRO_ASSIGN_OR_RETURN(const uint64_t free, files_->free_bytes());
  const uint64_t chosen = std::min(needed, free > kLeaveFree ? free - kLeaveFree : free) / kSharedPage * kSharedPage;
  return chosen;
}

Status StoreServer::back_arena(uint64_t bytes, const std::atomic<bool>& stop) {
  if (!files_->in_memory())
    log::warn("--arena-dir {} is not on a tmpfs: the arena will be written back to the disk; mount a tmpfs there", files_->dir().string());
  auto said = std::chrono::steady_clock::now();
  const Status made = files_->create(bytes, entries_max_, epoch_, [&](uint64_t done) {
    const auto now = std::chrono::steady_clock::now();
    if (now - said > std::chrono::seconds(2)) {
      log::info("backing the arena: {} of {} MiB", done >> 20, bytes >> 20);
      said = now;
    }
    return !stop.load(std::memory_order_relaxed);
  });
  if (!made) return made;
  const uint64_t huge = files_->huge_bytes();
  if (huge * 10 >= bytes * 9) log::info("arena of {} MiB on huge pages", bytes >> 20);
  else
    log::info("arena of {} MiB, {} MiB of it on huge pages: reads into small pages run at about half the speed; a tmpfs mounted with "
              "huge=within_size, or hugetlbfs, as --arena-dir mends it", bytes >> 20, huge >> 20);
  return Status::ok();
}

Status StoreServer::start_reader(const StoreOptions& options) {
  for (const std::string& path : catalogue_.files().buffered())
    log::warn("{} does not allow O_DIRECT: it is read through the page cache", path);
  std::vector<ReadLane> lanes;
  for (size_t drive = 0; drive < std::max<size_t>(catalogue_.files().drive_count(), 1); ++drive) {
    MOESTRO_ASSIGN_OR_RETURN(auto reader, make_reader(options));
    if (const Status registered = reader->registered(); !registered && drive == 0)
      log::warn("{}; reads go on without, which costs some CPU", registered.message());
    LaneOptions lane;
    lane.depth = options.read_depth;
    lanes.emplace_back(std::move(reader), catalogue_.files().names(), lane);
  }
  MOESTRO_ASSIGN_OR_RETURN(loader_, BlobLoader::start(std::move(lanes), catalogue_.files().drives()));
  return Status::ok();
}

Result<std::unique_ptr<Reader>> StoreServer::make_reader(const StoreOptions& options) const {
  const ReaderFiles files{catalogue_.files().fds(), files_->lock_fd(), {files_->arena(), files_->table().arena_bytes}};
  if (options.io != IoKind::kPread) {
    auto reader = make_uring_reader(files, options.read_depth);
    if (reader || options.io == IoKind::kUring) return reader;
    log::warn("{}; reading with a pool of pread threads instead", reader.status().message());
  }
  return make_pread_reader(files, options.read_depth);
}

}  // namespace moestro::store
