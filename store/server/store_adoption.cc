// How a store takes over what one that was killed has left, or says why not.

#include <algorithm>
#include <chrono>

#include "common/fault_point.h"
#include "common/log.h"
#include "common/units.h"
#include "store/server/store_server.h"

namespace moestro::store {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kLetGoPatience{10};  ///< a worker ends its step before it lets go of an arena


}  // namespace

ArenaDirectory StoreServer::directory() const {
  return directory_of(files_->table().arena_bytes, machine_->segment_bytes());
}

ArenaDirectory StoreServer::directory_of(uint64_t arena_bytes, uint64_t segment_bytes) const {
  ArenaDirectory directory{kSharedVersion, arena_bytes, entries_max_, segment_bytes, window_.places,
                           window_.place_bytes, {}};
  for (const auto& [index, pack] : catalogue_.packs())
    directory.packs.push_back(
        {pack.manifest.identity, pack.first_entry, pack.blobs(), pack.dir.string(), pack.streamed});
  std::ranges::sort(directory.packs, {}, &ArenaDirectory::Pack::first_entry);
  return directory;
}

/// After a change of packs. A directory that says what was before it is of no harm: this arena is then not adopted.
void StoreServer::note_packs() {
  if (const Status noted = write_directory(files_->dir(), directory()); !noted)
    log::warn("{}: if this store is killed, the next one begins with an empty arena", noted.message());
}

Result<bool> StoreServer::adopt_or_discard(const std::atomic<bool>& stop) {
  const auto began = std::chrono::steady_clock::now();
  const auto left = read_directory(files_->dir());
  const Status adopted = left ? adopt_former(*left) : left.status();
  if (adopted) {
    adoption_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    const StoreMachine::Counters& c = machine_->counters();
    log::info(
        "adopted the arena that a killed store left in {}: {} blobs, {}, {} workers, in {:.2f} s; their bytes are "
        "checked before anyone "
        "uses them",
        files_->dir().string(), c.adopted, mib(c.adopted_bytes),
        std::ranges::count_if(workers_, [](const auto& w) { return w.has_value(); }), adoption_.seconds);
    return true;
  }
  machine_.reset();
  adopted_actions_.clear();
  for (auto& worker : workers_) worker.reset();
  const bool something =
      std::filesystem::exists(files_->dir() / "arena") || std::filesystem::exists(files_->dir() / "table");
  if (something)
    log::warn("the arena that a killed store left in {} is not adopted: {}; beginning with an empty one",
              files_->dir().string(),
              left || left.status().code() != Code::kNotFound
                  ? adopted.message()
                  : "it was not finished, or is from before stores could adopt");
  bool said = false;
  MOESTRO_ASSIGN_OR_RETURN(const auto holding, files_->discard(kLetGoPatience, [&] {
    if (!std::exchange(said, true)) log::info("waiting for the workers that still map it");
    return !stop.load(std::memory_order_relaxed);
  }));
  for (const uint32_t slot : holding)
    log::warn(
        "the worker of slot {} does not let go of the former arena (stopped?): its memory is in use until that worker "
        "ends",
        slot);
  return false;
}

/// Why the arena that is there cannot be this store's, before anything of it is touched.
Status StoreServer::fits(const ArenaDirectory& left) const {
  const ArenaDirectory own = directory_of(left.arena_bytes, left.segment_bytes);
  if (left.shared_version != kSharedVersion)
    return unsupported("its memory layout is version " + std::to_string(left.shared_version) + ", this store's is " +
                       std::to_string(kSharedVersion));
  const auto same = [](const ArenaDirectory::Pack& a, const ArenaDirectory::Pack& b) {
    return a.identity == b.identity && a.first_entry == b.first_entry && a.blobs == b.blobs && a.streamed == b.streamed;
  };
  if (left.entries != own.entries || !std::ranges::equal(left.packs, own.packs, same)) {
    std::string paths;
    for (const ArenaDirectory::Pack& pack : left.packs) paths += (paths.empty() ? "" : ", ") + pack.path;
    return unavailable("it is of other packs, or other versions of them: " + paths);
  }
  if (left.window_places > 0 && left.window_places < std::max(options_.workers, 1U))
    return unavailable("its window for dense weights has " + std::to_string(left.window_places) + " places, and " +
                       std::to_string(options_.workers) + " workers need one each");
  // Its size is held against what is asked for, not against what is free: it has taken that room itself.
  const auto wanted = asked_arena_bytes(arena_wish(), kSharedPage);
  if (wanted && *wanted != left.arena_bytes && !arena_of_before_)
    return unavailable("it has " + std::to_string(left.arena_bytes) + " bytes, and " + std::to_string(*wanted) +
                       " are needed now");
  return Status::ok();
}

Status StoreServer::adopt_former(const ArenaDirectory& left) {
  // Its table was made for the packs at that store's start, and may have come to hold others.
  std::error_code error;
  const bool its_own = std::filesystem::file_size(files_->dir() / "table", error) == table_bytes(left.entries);
  const bool roomy = !error && its_own && left.entries >= catalogue_.entries();
  adopt_window(left);
  MOESTRO_RETURN_IF_ERROR(
      make_machine(left.arena_bytes, left.segment_bytes, roomy ? left.entries : entries_for(catalogue_.entries())));
  machine_->hold_shares();
  MOESTRO_RETURN_IF_ERROR(fits(left));
  MOESTRO_RETURN_IF_ERROR(files_->adopt(left));
  std::vector<StoreMachine::Former> former(left.entries);
  for (uint32_t i = 0; i < left.entries; ++i) {
    const TableEntry& entry = files_->entry(i);
    if (catalogue_.has_entry(i) && entry.length.load() != catalogue_.blob(i).length)
      return corrupt("table entry " + std::to_string(i) + " has " + std::to_string(entry.length.load()) +
                     " bytes, its pack says " + std::to_string(catalogue_.blob(i).length));
    const uint64_t word = entry.word.load(std::memory_order_seq_cst);
    former[i] = {static_cast<uint8_t>(word & 0xff),
                 ResidencyWord::generation(word),
                 entry.offset.load(),
                 {entry.content_low.load(), entry.content_high.load()},
                 entry.alias.load(std::memory_order_acquire),
                 files_->former_stamp(i)};
  }
  assign_shares();
  MOESTRO_RETURN_IF_ERROR(adopt_workers());
  MOESTRO_ASSIGN_OR_RETURN(adopted_actions_, machine_->adopt(former));
  return Status::ok();
}

/// Those whose slots are held go on as they are: the next message of each says where it is now.
Status StoreServer::adopt_workers() {
  for (uint32_t slot = 0; slot < kWorkerSlotsMax; ++slot) {
    if (!files_->has_slot(slot)) continue;
    const SlotHolder holder = files_->holder(slot);
    const auto& packs = catalogue_.packs();
    const auto pack = std::ranges::find_if(
        packs, [&holder](const auto& known) {  // by version: its name may have come to mean another one
          return known.second.manifest.identity == holder.pack_identity &&
                 known.second.first_entry == holder.pack_first_entry;
        });
    if (pack == packs.end())
      return unavailable("worker '" + holder.client + "' uses it for a version of model '" + holder.model +
                         "' that this store does not serve");
    workers_[slot] = Worker{
        "", holder.client, holder.incarnation, holder.model, pack->first, true, std::chrono::steady_clock::now()};
    MOESTRO_ASSIGN_OR_RETURN(const uint32_t number, catalogue_.number(holder.model, attached_models()));
    machine_->attached(slot, pack->second.largest_expert, number);
  }
  return Status::ok();
}

void StoreServer::check_residents() {
  if (!check_.idle()) MOESTRO_FAULT_POINT("checking");
  const auto outcome = check_.step();
  if (!outcome) return;
  const uint64_t damaged = machine_->counters().damaged;
  perform(machine_->checked(outcome->entry, outcome->check, outcome->right));
  if (machine_->counters().damaged > damaged) {
    memory_changed_ = steady_clock::now();
    log::error("{} was adopted and its bytes have changed since it was read: reading it again",
               catalogue_.describe(outcome->entry));
  }
  if (check_.idle())
    log::info("all adopted blobs are checked: {} of {} were damaged", machine_->counters().damaged,
              machine_->counters().adopted);
}

}  // namespace moestro::store
