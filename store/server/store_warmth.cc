// What was hot when the last store shut down is read again while this one serves, and noted again when it shuts down.

#include <algorithm>
#include <map>
#include <set>

#include "common/log.h"
#include "common/units.h"
#include "store/server/kept_models.h"
#include "store/server/store_server.h"

namespace moestro::store {
namespace {

constexpr uint64_t kUnderWayMax =
    64ULL << 20;  ///< asked for at once: more than the machine begins at once, so that it never waits for us
constexpr std::chrono::seconds kProgressEvery{2};

std::filesystem::path warm_set_path(const StoreOptions& options) { return options.run_dir / "warm-set"; }

}  // namespace

/// The pack of this store that each pack of the set is; null where there is none. Two directories may hold the same
/// version.
std::vector<const Catalogue::Pack*> StoreServer::packs_of(const WarmSet& set) const {
  std::vector<const Catalogue::Pack*> packs;
  std::set<uint32_t> taken;
  for (const uint64_t identity : set.packs) {
    packs.push_back(nullptr);
    for (const auto& [index, pack] : catalogue_.packs()) {
      if (pack.manifest.identity != identity || !taken.insert(index).second) continue;
      packs.back() = &pack;
      break;
    }
  }
  return packs;
}

/// An arena that was adopted has most of it; what is missing was not read yet when that store was killed, or had to
/// give way.
void StoreServer::plan_warm_start() {
  if (!options_.warm_start) return;
  const auto set = read_warm_set(warm_set_path(options_));
  if (!set) {
    if (set.status().code() != Code::kNotFound)
      log::warn("the warm set is ignored, so this store starts cold: {}", set.status().message());
    return;
  }
  const auto packs = packs_of(*set);
  std::vector<WarmLoad::Item> items;
  std::vector<Warmth> known;
  std::set<uint32_t> seen;
  size_t unknown = 0;
  for (const WarmSet::Item& item : set->items) {
    const Catalogue::Pack* pack = packs[item.pack];
    if (pack == nullptr || item.blob >= pack->blobs()) {
      ++unknown;
      continue;
    }
    const uint32_t entry = pack->first_entry + item.blob;
    if (machine_->state(entry) != Residency::kAbsent || !seen.insert(entry).second) continue;
    if (std::ranges::binary_search(pack->streamed, item.blob)) continue;  // it has no place of its own
    items.push_back({entry, pack->first_entry, catalogue_.blob(entry).length});
    known.push_back({entry, item.heat});
  }
  if (unknown > 0)
    log::warn(
        "{} of the {} blobs of the warm set {} are of packs, or versions of them, that are not served now: ignored",
        unknown, set->items.size(), warm_set_path(options_).string());
  machine_->remember(known);
  warm_.plan(std::move(items), std::chrono::steady_clock::now());
  const auto planned = warm_.progress({});
  if (warm_.running())
    log::info(
        "warm start: reading {} blobs, {}, that were in memory when the last store shut down, the hottest first, while "
        "serving",
        planned.blobs, mib(planned.bytes));
}

/// Behind everything that a worker wants, and only as long as there is room: nothing is evicted for it.
void StoreServer::warm_up() {
  if (!warm_.running()) return;
  const auto now = std::chrono::steady_clock::now();
  const auto fate = [this](uint32_t entry) {
    const Residency state = machine_->state(machine_->resolve(entry));
    if (state == Residency::kResident || state == Residency::kAdopted) return WarmLoad::Fate::kThere;
    if (state == Residency::kLoading || machine_->wanted(entry)) return WarmLoad::Fate::kUnderWay;
    return state == Residency::kBad ? WarmLoad::Fate::kFailed : WarmLoad::Fate::kNoRoom;
  };
  if (const auto next = warm_.step(fate, kUnderWayMax, now); !next.empty()) perform(machine_->warm(next));
  const auto p = warm_.progress(now);
  if (p.running && now - warm_said_ < kProgressEvery) return;
  warm_said_ = now;
  if (p.running)
    log::info("warm start: {} of {} blobs are there, {} of {}", p.blobs_there, p.blobs, mib(p.bytes_there),
              mib(p.bytes));
  else
    log::info("warm start: done, {} of {} blobs, {} in {:.1f} s{}", p.blobs_there, p.blobs, mib(p.bytes_there),
              p.seconds,
              p.left_out == 0
                  ? ""
                  : "; " + std::to_string(p.left_out) + " are left out: no room is made for what nobody has asked for");
}

/// What is there, and behind it what an unfinished warm start still had to read.
void StoreServer::note_warm_set() {
  if (!options_.warm_start) return;
  std::vector<Warmth> hot = machine_->by_heat();
  for (const uint32_t entry : warm_.outstanding())
    if (machine_->state(entry) != Residency::kResident) hot.push_back({entry, 0});
  WarmSet set;
  std::map<uint32_t, uint32_t> number_of;  ///< by first entry
  for (const Warmth& known : hot) {
    const Catalogue::Pack& pack = catalogue_.pack_of_entry(known.entry);
    const auto [at, is_new] = number_of.try_emplace(pack.first_entry, static_cast<uint32_t>(set.packs.size()));
    if (is_new) set.packs.push_back(pack.manifest.identity);
    set.items.push_back({at->second, known.entry - pack.first_entry, known.heat});
  }
  if (const Status written = write_warm_set(warm_set_path(options_), set); !written)
    log::warn("the warm set is not written, so that the next store starts cold or from an older one: {}",
              written.message());
  else log::info("warm set: {} blobs noted in {}", set.items.size(), warm_set_path(options_).string());
}

/// The gate first. What is queued is not begun; reads that the drive has begun are waited for by the loader's end.
void StoreServer::close_down() {
  socket_.reset();
  note_warm_set();
  remove_kept_models(options_.run_dir);
  log::info("stopping: {} loads under way", loader_->loads_in_flight());
  for (const auto& [load, read] : under_way_) loader_->cancel(load);
}

}  // namespace moestro::store
