// What must hold after every event.

#include <algorithm>

#include "tests/store/store_world.h"

namespace moestro::store::testing {
namespace {

std::string of(uint32_t entry) { return ", entry " + std::to_string(entry); }

}  // namespace

void StoreWorld::wrong(const std::string& what) const { throw Wrong(what); }

std::string StoreWorld::what_is_outstanding() const {
  std::string text = std::to_string(reads_.size()) + " reads, " + std::to_string(checks_.size()) + " checks, " +
                     std::to_string(mail_.size()) + " messages, " + std::to_string(warm_.size()) + " to warm, " +
                     std::to_string(machine_->queued()) + " queued, " + std::to_string(machine_->unchecked()) +
                     " unchecked, " + std::to_string(machine_->used_bytes() / kPage) + " of " +
                     std::to_string(arena_bytes_ / kPage) + " pages used, segments of " +
                     std::to_string(segment_bytes_ / kPage) + ", " + std::to_string(machine_->expert_bytes() / kPage) +
                     " for experts";
  for (const SimulatedWorker& worker : workers_)
    if (worker.state == SimulatedWorker::State::kIn && !worker.idle()) text += "; " + worker.text();
  for (uint32_t entry = 0; entry < machine_->entries(); ++entry)
    if (pack_of(entry) != nullptr)
      text += "; entry " + std::to_string(entry) + " of content " + std::to_string(content_of(entry)) +
              (contents_[content_of(entry)].dense ? ", dense, " : ", ") +
              std::to_string(contents_[content_of(entry)].pages) + " pages" +
              (machine_->has_place(entry) ? " at " + std::to_string(machine_->offset(entry) / kPage) : "") +
              ", state " + std::to_string(static_cast<int>(machine_->state(entry))) +
              (machine_->wanted(entry) ? " wanted" : "") + (shared_.pinned(entry) ? " pinned" : "");
  return text;
}

bool StoreWorld::holds(uint64_t offset, uint32_t content, Harm worst) const {
  for (uint32_t i = 0; i < contents_[content].pages; ++i) {
    const size_t at = offset / kPage + i;
    if (at >= arena_.size() || arena_[at].content != content || arena_[at].number != i) return false;
    if (arena_[at].harm > worst) return false;
  }
  return true;
}

void StoreWorld::check() {
  check_leases();
  check_ranges();
  check_entries();
  if (const std::string found = machine_->inconsistency(); !found.empty()) wrong(found);
}

/// Bytes under a lease are those of its blob, and its place is its own. Where they were damaged, they may be read again
/// where they lie, from a file that is damaged too.
void StoreWorld::check_leases() {
  for (const SimulatedWorker& worker : workers_)
    for (const SimulatedWorker::Lease& lease : worker.leases) {
      if (!holds(lease.offset, lease.content, lease.harmed ? Harm::kMisread : Harm::kNone))
        wrong("bytes under a lease have changed" + of(lease.entry));
      if (!machine_->has_place(lease.entry) || machine_->offset(lease.entry) != lease.offset)
        wrong("a place under a lease was given away" + of(lease.entry));
      if (!shared_.pins[static_cast<uint32_t>(&worker - workers_.data())].contains(lease.entry))
        wrong("a lease without a pin" + of(lease.entry));
    }
}

/// No page belongs to two entries; what belongs to none is free.
void StoreWorld::check_ranges() {
  std::vector<bool> taken(arena_.size());
  uint64_t used = window_.bytes();
  for (uint32_t entry = 0; entry < machine_->entries(); ++entry) {
    if (!machine_->has_place(entry)) continue;
    const uint32_t pages = contents_[content_of(entry)].pages;
    if (!contents_[content_of(entry)].streamed) used += pages * kPage;
    else if (machine_->offset(entry) % window_.place_bytes != 0 || machine_->offset(entry) >= window_.bytes())
      wrong("a streamed blob outside of the window" + of(entry));
    for (uint64_t at = machine_->offset(entry) / kPage, end = at + pages; at < end; ++at) {
      if (at >= taken.size() || taken[at]) wrong("a range that is another's, or nobody's" + of(entry));
      taken[at] = true;
    }
  }
  if (used != machine_->used_bytes()) wrong("room that belongs to no entry is not free");
}

void StoreWorld::check_entries() {
  size_t loading = 0;
  for (uint32_t entry = 0; entry < machine_->entries(); ++entry) {
    const Residency state = shared_.state(entry);
    if (state != machine_->state(entry)) wrong("the table says another state than the machine" + of(entry));
    if (pack_of(entry) == nullptr) {
      if (state != Residency::kAbsent || machine_->has_place(entry) || machine_->wanted(entry) ||
          shared_.aliases[entry] != 0 || shared_.contents[entry].known())
        wrong("an entry of no pack has something left" + of(entry));
      continue;
    }
    const uint32_t content = content_of(entry);
    switch (state) {
      case Residency::kEvicting: wrong("evicting, after the step that began it" + of(entry));
      case Residency::kAlias:
        if (content_of(shared_.aliases[entry] - 1) != content) wrong("an alias of other bytes" + of(entry));
        break;
      case Residency::kLoading:
        ++loading;
        if (std::ranges::count_if(reads_, [&](const Read& read) {
              return read.action.entry == entry && read.action.offset == machine_->offset(entry);
            }) != 1)
          wrong("loading, and not read" + of(entry));
        break;
      case Residency::kResident:
        if (!holds(shared_.offsets[entry], content, Harm::kHit)) wrong("resident, with wrong bytes" + of(entry));
        [[fallthrough]];
      case Residency::kAdopted:
        if (!machine_->has_place(entry) || shared_.offsets[entry] != machine_->offset(entry))
          wrong("the table says another place than the machine" + of(entry));
        break;
      default: break;
    }
  }
  if (loading != reads_.size() || loading != machine_->loading()) wrong("reads under way of nothing that is loading");
}

/// Nothing is under way: of a pack that is gone only the first entries of others' bytes are left.
void StoreWorld::check_removed() {
  for (const auto& [first, pack] : packs_) {
    if (!pack.removed) continue;
    bool needed = false;
    for (uint32_t entry = 0; entry < machine_->entries(); ++entry) {
      const ServedPack* other = pack_of(entry);
      const uint32_t kept = machine_->resolve(entry);
      needed = needed || (other != nullptr && other != &pack && kept >= first && kept < first + pack.blobs());
    }
    if (!needed) wrong("a pack that nobody uses does not go, entries from " + std::to_string(first));
  }
}

const ServedPack* StoreWorld::pack_of(uint32_t entry) const {
  const auto after = packs_.upper_bound(entry);
  if (after == packs_.begin()) return nullptr;
  const ServedPack& pack = std::prev(after)->second;
  return entry < pack.first + pack.blobs() ? &pack : nullptr;
}

uint32_t StoreWorld::content_of(uint32_t entry) const {
  const ServedPack* pack = pack_of(entry);
  if (pack == nullptr) wrong("something belongs to an entry of no pack" + of(entry));
  return pack->files->contents[entry - pack->first];
}

void StoreWorld::Tally::add(const Tally& more) {
  events += more.events, leases += more.leases, kills += more.kills, adoptions += more.adoptions;
  adopted += more.adopted, damaged += more.damaged, hits += more.hits, rereads += more.rereads, bad += more.bad;
  elsewhere += more.elsewhere, aliases += more.aliases, dense_aliases += more.dense_aliases, warm += more.warm;
  packs_added += more.packs_added, packs_gone += more.packs_gone, mended += more.mended, stops += more.stops;
  outlooks += more.outlooks, read_ahead += more.read_ahead, given_up += more.given_up;
  streamed += more.streamed;
  bad_dense += more.bad_dense, removed_while_warming += more.removed_while_warming;
}

std::string StoreWorld::Tally::text() const {
  const auto item = [](uint64_t n, const char* what) { return std::to_string(n) + " " + what; };
  return item(events, "events, ") + item(leases, "leases, ") + item(kills, "kills, ") +
         item(adoptions, "arenas adopted with ") + item(adopted, "blobs, of which ") + item(damaged, "damaged; ") +
         item(hits, "blobs hit in memory, ") + item(rereads, "read again by the scrubber, ") + item(bad, "bad, ") +
         item(bad_dense, "of dense weights under a lease, ") + item(elsewhere, "reads from another pack, ") +
         item(aliases, "aliases, ") + item(dense_aliases, "of dense weights, ") + item(warm, "warm reads, ") +
         item(packs_added, "packs added, ") + item(packs_gone, "gone, ") +
         item(removed_while_warming, "removed while warming, ") + item(mended, "mended, ") +
         item(stops, "workers stopped, ") + item(outlooks, "outlooks, ") + item(read_ahead, "read ahead, ") +
         item(given_up, "given up, ") + item(streamed, "streamed");
}

}  // namespace moestro::store::testing
