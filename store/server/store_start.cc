// How a store comes up: packs, lock, arena, reader, socket.

#include <algorithm>
#include <random>
#include <utility>

#include "common/fault_point.h"
#include "common/log.h"
#include "common/policy/make_policy.h"
#include "store/arena/arena_size.h"
#include "store/arena/backing_progress.h"
#include "store/server/change_key.h"
#include "store/server/store_server.h"

namespace moestro::store {
namespace {

constexpr std::chrono::seconds kLockPatience{30};  ///< a killed store's reads can go on for seconds
constexpr uint32_t kWorkersMin = 4;                ///< whose files room is kept for, where fewer are to come


}  // namespace

Result<std::unique_ptr<StoreServer>> StoreServer::start(StoreOptions options, const std::atomic<bool>& stop) {
  std::unique_ptr<StoreServer> server(new StoreServer());
  MOESTRO_RETURN_IF_ERROR(server->open(std::move(options), stop));
  return server;
}

Status StoreServer::open(StoreOptions options, const std::atomic<bool>& stop) {
  options_ = std::move(options);
  scrubber_.set_rate(options_.scrub_bytes_per_s);
  MOESTRO_ASSIGN_OR_RETURN(const std::vector<ModelSource> models, models_to_open());
  MOESTRO_ASSIGN_OR_RETURN(catalogue_, Catalogue::open(models));
  MOESTRO_RETURN_IF_ERROR(
      shm::make_private_dir(options_.run_dir, options_.access, "run directory").with_context("--run-dir"));
  if (shm::open_to_strangers(options_.run_dir, options_.access))
    log::warn("others may enter the run directory {}: chmod go-rx it", options_.run_dir.string());
  bool said = false;
  MOESTRO_ASSIGN_OR_RETURN(files_, ArenaFiles::lock(options_.arena_dir, kLockPatience, [&] {
    if (!std::exchange(said, true))
      log::info("waiting for {}: another store, or the last reads of a killed one, hold it",
                (options_.arena_dir / "store.lock").string());
    return !stop.load(std::memory_order_relaxed);
  }, {options_.payload, options_.numa, options_.access}));
  state_.emplace(*files_);
  std::random_device random;
  epoch_ = (uint64_t{random()} << 32 | random()) | 1;
  MOESTRO_ASSIGN_OR_RETURN(const bool adopted, adopt_or_discard(stop));
  if (!adopted) MOESTRO_RETURN_IF_ERROR(begin_anew(stop));
  const PageReport pages = files_->pages();
  if (!files_->spread()) log::warn("--numa: {}", files_->spread().message());
  log::info("arena of {}{}{}", pages.found, pages.mend.empty() ? "" : "; mend: ", pages.mend);
  MOESTRO_RETURN_IF_ERROR(start_reader(options_));
  new_arena_ = false;
  say_window();

  take_change_key();
  endpoint_ = "ipc://" + (options_.run_dir / "store.sock").string();
  MOESTRO_ASSIGN_OR_RETURN(auto socket, net::RouterSocket::bind(endpoint_));
  socket_.emplace(std::move(socket));
  MOESTRO_RETURN_IF_ERROR(options_.access.apply(options_.run_dir / "store.sock", options_.access.shared()));
  perform(std::exchange(adopted_actions_, {}));
  if (adopted) MOESTRO_FAULT_POINT("adopted");
  plan_warm_start();
  return adopted ? files_->publish(epoch_) : write_directory(files_->dir(), directory());
}

void StoreServer::take_change_key() {
  auto key = change_key_in(options_.run_dir);
  if (key) change_key_ = std::move(*key);
  else log::warn("{}: no models can be added, replaced or removed while this store runs", key.status().message());
}

/// Nobody has anything of a retired pack here, so it is not opened. What had room only because it shared bytes with
/// others may have none before these are read.
Status StoreServer::begin_anew(const std::atomic<bool>& stop) {
  std::vector<ModelSource> models = catalogue_.sources();
  if (std::erase_if(models, &ModelSource::retired) > 0) {
    MOESTRO_ASSIGN_OR_RETURN(catalogue_, Catalogue::open(models));
  }
  auto bytes = make_machine_anew();
  const auto added = [this](const ModelSource& model) {
    return std::ranges::find(options_.models, model.name, &ModelSource::name) == options_.models.end();
  };
  if (!bytes && std::ranges::any_of(models, added) && !std::ranges::all_of(models, added)) {
    for (const ModelSource& model : models)
      if (added(model))
        log::error("model '{}', which was added to the store before this one, is left out, as all of them do not fit "
                   "into a new arena: {}", model.name, bytes.status().message());
    std::erase_if(models, added);
    MOESTRO_ASSIGN_OR_RETURN(catalogue_, Catalogue::open(models));
    bytes = make_machine_anew();
  }
  if (!bytes) return bytes.status();
  MOESTRO_RETURN_IF_ERROR(back_arena(*bytes, stop));
  new_arena_ = true;
  const std::vector<MachineBlob> blobs = catalogue_.machine_blobs();
  for (uint32_t i = 0; i < blobs.size(); ++i) files_->entry(i).length.store(blobs[i].length, std::memory_order_relaxed);
  assign_shares();
  return Status::ok();
}

/// Of a new arena; its size. The machine says whether that can work before minutes go into backing it; it touches
/// shared memory only when stepped. A size that was asked for stays too small; one that was taken from what is free may
/// be larger at the next start.
Result<uint64_t> StoreServer::make_machine_anew() {
  MOESTRO_ASSIGN_OR_RETURN(const uint64_t bytes, choose_arena_bytes());
  Status made = plan_window(bytes);
  if (made) made = make_machine(bytes, 0, entries_for(catalogue_.entries()));
  if (!made) return options_.dram_bytes ? invalid_argument(made.message()) : made;
  return bytes;
}

Status StoreServer::make_machine(uint64_t arena_bytes, uint64_t segment_bytes, uint32_t entries) {
  MOESTRO_RETURN_IF_ERROR(check_shares(arena_bytes));
  StoreMachine::Options machine_options;
  machine_options.arena_bytes = arena_bytes, machine_options.segment_bytes = segment_bytes;
  const std::vector<MachineBlob> blobs = catalogue_.machine_blobs();
  machine_options.entries_max = entries_max_ = entries;
  machine_options.window = window_;
  machine_options.poison_freed = options_.poison_freed;
  for (const auto& [index, pack] : catalogue_.packs())  // two at once, so that the drive goes on from one to the next
    machine_options.loading_bytes_max = std::max(machine_options.loading_bytes_max, 2 * pack.largest_expert);
  const auto experts = std::ranges::count_if(blobs, [](const MachineBlob& blob) { return !blob.dense; });
  MOESTRO_ASSIGN_OR_RETURN(auto policy, policy::make_policy(options_.policy, static_cast<size_t>(experts)));
  log::info("experts give way by policy {}", policy->name());
  MOESTRO_ASSIGN_OR_RETURN(machine_, StoreMachine::create(machine_options, blobs, std::move(policy), *state_));
  return Status::ok();
}

ArenaWish StoreServer::arena_wish() const {
  std::vector<MachineBlob> blobs = catalogue_.machine_blobs();
  for (MachineBlob& blob : blobs) blob.streamed = false;  // the size does not depend on how it is divided
  std::vector<MachineBlob> dense;
  std::ranges::copy_if(blobs, std::back_inserter(dense), &MachineBlob::dense);
  ArenaWish wish;
  wish.asked = options_.dram_bytes, wish.needed = StoreMachine::arena_bytes_max(blobs),
  wish.minimum = tier::dense_bytes_min(dense_needs());
  wish.layers_take_turns = wish.minimum < StoreMachine::arena_bytes_min(blobs);
  wish.dense = StoreMachine::arena_bytes_max(dense), wish.others = options_.others_bytes;
  return wish;
}

Result<uint64_t> StoreServer::choose_arena_bytes() {
  const ArenaWish wish = arena_wish();
  const uint32_t entries = entries_for(catalogue_.machine_blobs().size());
  const SmallFiles small{files_->dir(), ArenaFiles::small_bytes(entries, std::max(kWorkersMin, options_.workers))};
  MOESTRO_ASSIGN_OR_RETURN(ArenaRoom room, look_at_room(files_->payload(), wish.others, small));
  auto bytes = store::choose_arena_bytes(wish, room, kSharedPage);
  if (!bytes && room.set_aside) {
    log::warn("{}; until then it lies in {}, on the pages that are to be had there", bytes.status().message(),
              files_->dir().string());
    files_->use_own_directory();
    MOESTRO_ASSIGN_OR_RETURN(room, look_at_room(files_->payload(), wish.others, small));
    bytes = store::choose_arena_bytes(wish, room, kSharedPage);
  }
  if (!bytes) return bytes.status();
  if (!room.in_memory)
    log::warn("--arena-dir {} is not on a tmpfs: the arena will be written back to the disk; mount a tmpfs there",
              files_->dir().string());
  log::info("memory: arena {} MiB, workers {} MiB, {} MiB in all of {} MiB ({}; {} MiB left now)", *bytes >> 20,
            wish.others >> 20, (*bytes + wish.others) >> 20, room.limit.limit_bytes >> 20, room.limit.whose,
            room.left.bytes >> 20);
  if (const std::string why = kept_small_by_place(wish, room, *bytes); !why.empty()) log::warn("{}", why);
  return bytes;
}

Status StoreServer::back_arena(uint64_t bytes, const std::atomic<bool>& stop) {
  BackingProgress progress(bytes, std::chrono::steady_clock::now());
  const Status made = files_->create(bytes, entries_max_, epoch_, [&](uint64_t done) {
    if (const auto line = progress.line(done, std::chrono::steady_clock::now()))
      log::info("backing the arena: {}", *line);
    return !stop.load(std::memory_order_relaxed);
  });
  return made;
}

}  // namespace moestro::store
