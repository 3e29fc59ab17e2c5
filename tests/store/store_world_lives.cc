// Stores that begin, die at any moment, and follow each other.

#include <algorithm>

#include "common/policy/make_policy.h"
#include "tests/store/store_world.h"

namespace moestro::store::testing {
namespace {
constexpr uint32_t kEntries = 32;
constexpr uint32_t kWorkers = 4;
constexpr uint32_t kLayers = 10;  ///< contents that take turns
}  // namespace

StoreWorld::StoreWorld(uint64_t seed)
    : random_(seed),
      claims_(pick(3) != 0),
      policy_(std::vector<std::string>{"lru", "lfru", "lfu", "interval"}[pick(4)]),
      contents_{{}} {
  const bool one_length = chance(2);
  for (uint32_t i = 0; i < 4; ++i) contents_.push_back({true, static_cast<uint32_t>(1 + pick(3))});
  for (uint32_t i = 0; i < 10; ++i) contents_.push_back({false, one_length ? 2 : static_cast<uint32_t>(1 + pick(3))});
  for (int i = 0; i < 5; ++i) {
    auto& blobs = templates_.emplace_back();
    for (uint64_t n = 1 + pick(2); n > 0; --n) blobs.push_back(static_cast<uint32_t>(1 + pick(4)));
    for (uint64_t n = 3 + pick(4); n > 0; --n) blobs.push_back(static_cast<uint32_t>(5 + pick(10)));
  }
  arena_bytes_ = (14 + pick(16)) * kPage;
  if (chance(2)) add_window();
  for (uint32_t slot = 0; slot < kWorkers; ++slot) workers_.emplace_back(*this, slot);
  shared_.on_write = [this] {
    if (kill_after_ > 0 && --kill_after_ == 0) throw Killed{};
  };
  shared_.on_evicting = [this](uint32_t entry) {
    if (SimulatedWorker& worker = workers_[pick(kWorkers)];
        worker.state == SimulatedWorker::State::kIn && !worker.stopped && chance(3))
      worker.pin_too_late(entry);
  };
  start_afresh({});
}

StoreWorld::~StoreWorld() = default;

/// Each pack has dense weights that take turns, one for each worker at least.
void StoreWorld::add_window() {
  const auto first = static_cast<uint32_t>(contents_.size());
  for (uint32_t i = 0; i < kLayers; ++i) contents_.push_back({true, static_cast<uint32_t>(1 + pick(2)), true});
  for (auto& blobs : templates_)
    for (uint64_t n = 4 + pick(3); n > 0; --n)
      blobs.insert(blobs.begin(), first + static_cast<uint32_t>(pick(kLayers)));
  window_ = {static_cast<uint32_t>(kWorkers + pick(3)), 2 * kPage};
  arena_bytes_ += window_.bytes();
}

MachineBlob StoreWorld::blob_of(uint32_t content) const {
  const Content& known = contents_[content];
  MachineBlob blob{.dense = known.dense, .length = known.pages * kPage, .format = known.dense ? 1U : 2U};
  blob.streamed = known.streamed;
  if (claims_) blob.claim = {content, 1};
  return blob;
}

/// Of the packs that are there, which begin at entry 0 and leave no gap. Null if they do not fit.
void StoreWorld::make_machine() {
  std::vector<MachineBlob> blobs;
  for (const auto& [first, pack] : packs_)
    for (const uint32_t content : pack.files->contents) blobs.push_back(blob_of(content));
  kill_after_ = 0;
  if (machine_) {
    const StoreMachine::Counters& c = machine_->counters();
    tally_.bad += c.bad_blobs, tally_.elsewhere += c.reads_elsewhere, tally_.adopted += c.adopted;
    tally_.damaged += c.damaged, tally_.streamed += c.streamed;
  }
  machine_.reset();
  auto made = StoreMachine::create({.arena_bytes = arena_bytes_,
                                    .loading_bytes_max = (2 + pick(6)) * kPage,
                                    .poison_freed = true,
                                    .entries_max = kEntries,
                                    .segment_bytes = segment_bytes_,
                                    .window = window_},
                                   blobs, *policy::make_policy(policy_, kEntries), shared_);
  if (!made) return;
  machine_ = std::move(*made);
  segment_bytes_ = machine_->segment_bytes();
}

/// An empty arena; no worker has anything to do with the one before. `hot` is of the packs of before, by entry.
void StoreWorld::start_afresh(std::vector<Warmth> hot) {
  reads_.clear(), checks_.clear(), mail_.clear(), warm_.clear(), named_.clear();
  for (SimulatedWorker& worker : workers_) worker.leave(), worker.state = SimulatedWorker::State::kOut;
  shared_.pins.clear(), shared_.resize(kEntries);
  arena_.assign(arena_bytes_ / kPage, Page{});
  segment_bytes_ = 0;
  std::map<uint32_t, uint32_t> moved;  ///< entries, from those of before to those of now
  std::map<uint32_t, ServedPack> served;
  uint32_t next = 0, models = 0;
  for (auto& [first, pack] : packs_) {
    if (pack.retired) continue;
    for (uint32_t blob = 0; blob < pack.blobs(); ++blob) moved[first + blob] = next + blob;
    pack.first = next, pack.model = models++;
    next += pack.blobs();
    served.emplace(pack.first, pack);
  }
  packs_ = std::move(served);
  machine_.reset();
  while (!machine_) {
    if (packs_.empty()) {
      const auto& blobs = templates_[pick(templates_.size())];
      packs_[0] = {0, 0, std::make_shared<Files>(Files{blobs, std::vector<Files::Health>(blobs.size())})};
    }
    make_machine();
    if (machine_) break;
    packs_.erase(std::prev(packs_.end()));
    if (packs_.empty()) arena_bytes_ += 4 * kPage, arena_.assign(arena_bytes_ / kPage, Page{});
  }
  for (const auto& [first, pack] : packs_) machine_->set_owners(first, pack.blobs(), ModelMask{1} << pack.model);
  std::vector<Warmth> known;
  for (const Warmth& was : hot) {
    const auto now = moved.find(was.entry);
    if (now == moved.end() || pack_of(now->second) == nullptr) continue;
    known.push_back({now->second, was.heat}), warm_.push_back(now->second);
  }
  machine_->remember(known);
}

bool StoreWorld::contiguous() const {
  uint32_t next = 0;
  for (const auto& [first, pack] : packs_) {
    if (first != next) return false;
    next += pack.blobs();
  }
  return next > 0;
}

void StoreWorld::survive(void (StoreWorld::*what)()) {
  try {
    (this->*what)();
    return;
  } catch (const Killed&) {
  }
  while (true) {
    try {
      return succeed();
    } catch (const Killed&) {
    }
  }
}

void StoreWorld::die() { throw Killed{}; }

/// What the kernel had taken lands before the next store begins. That one serves what the dead one did.
void StoreWorld::succeed() {
  kill_after_ = 0;
  ++tally_.kills;
  for (Read& read : reads_)
    while (!chance(3) && read.pages_done * kPage < read.action.length) write_page(read);
  reads_.clear(), checks_.clear(), named_.clear(), warm_.clear();
  std::erase_if(mail_, [this](const Message&) { return chance(2); });
  for (uint32_t slot = 0; slot < workers_.size(); ++slot) {
    if (workers_[slot].state != SimulatedWorker::State::kDead) continue;
    workers_[slot].state = SimulatedWorker::State::kOut;
    shared_.pins[slot].clear();
  }
  if (!contiguous()) return start_afresh({});
  make_machine();
  if (!machine_) return start_afresh({});  // equal dense weights made room for more packs than a new table has
  if (chance(4)) kill_after_ = 1 + pick(30);
  machine_->hold_shares();
  for (auto& [first, pack] : packs_) {
    pack.retired = pack.removed = false;
    machine_->set_owners(first, pack.blobs(), ModelMask{1} << pack.model);
  }
  for (uint32_t slot = 0; slot < workers_.size(); ++slot) {
    if (workers_[slot].state != SimulatedWorker::State::kIn) continue;
    const ServedPack& pack = packs_.at(workers_[slot].pack);
    uint64_t largest = 0;
    for (const uint32_t content : pack.files->contents)
      if (!contents_[content].dense) largest = std::max(largest, contents_[content].pages * kPage);
    machine_->attached(slot, largest, pack.model);
  }
  std::vector<StoreMachine::Former> former;
  for (uint32_t entry = 0; entry < kEntries; ++entry)
    former.push_back({static_cast<uint8_t>(shared_.state(entry)), ResidencyWord::generation(shared_.words[entry]),
                      shared_.offsets[entry], shared_.contents[entry], shared_.aliases[entry],
                      shared_.stamps[entry]});
  auto adopted = machine_->adopt(former);
  if (!adopted) wrong("the arena is not adopted: " + adopted.status().message());
  ++tally_.adoptions;
  perform(*adopted);
  if (chance(3))
    for (const auto& [first, pack] : packs_)
      for (uint32_t blob = 0; blob < pack.blobs(); ++blob) warm_.push_back(first + blob);
}

}  // namespace moestro::store::testing
