// What lies in an arena directory, seen from outside: residency, pins, and whether the bytes are those of the pack. For
// the fault suite.
//   moestro_arena_look ARENA_DIR PACK      one line of JSON
// The store may be running, stopped or dead; an entry whose word changes while it is being looked at is left out.

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/shm/mapped_file.h"
#include "store/layout/pins_layout.h"
#include "store/layout/table_layout.h"
#include "store/pack/manifest.h"
#include "store/reader/slice_hash.h"

namespace moestro::store {
namespace {

using nlohmann::json;
using shm::MappedFile;
constexpr std::array kStates{"absent", "loading", "resident", "evicting", "bad", "alias", "adopted"};

struct Arena {
  MappedFile table, bytes;
  Manifest manifest;
  const TableHeader& header() const { return *reinterpret_cast<const TableHeader*>(table.data()); }
  const TableEntry& entry(uint32_t index) const {
    return reinterpret_cast<const TableEntry*>(table.data() + kSharedPage)[index];
  }
};

Result<Arena> open_arena(const std::filesystem::path& dir, const std::filesystem::path& pack) {
  Arena a;
  MOESTRO_ASSIGN_OR_RETURN(a.manifest, open_pack(pack));
  MOESTRO_ASSIGN_OR_RETURN(
      a.table, MappedFile::open(dir / "table", MappedFile::Access::kReadOnly, table_bytes(a.manifest.blobs.size())));
  MOESTRO_ASSIGN_OR_RETURN(a.bytes,
                           MappedFile::open(dir / "arena", MappedFile::Access::kReadOnly, a.header().arena_bytes));
  return a;
}

bool right(const Arena& a, uint32_t index, uint64_t offset) {
  const std::byte* at = a.bytes.data() + offset;
  return std::ranges::all_of(a.manifest.blobs[index].slices, [&at](const Slice& slice) {
    const bool same = checksum_of(at, hash_of(at, slice.length)) == slice.xxh3_64;
    at += slice.length;
    return same;
  });
}

void look_at_entries(const Arena& a, json& report) {
  for (const char* state : kStates) report[state] = json::array();
  report["wrong"] = report["overlapping"] = json::array();
  std::vector<std::pair<uint64_t, uint32_t>> places;
  uint64_t bytes = 0;
  for (uint32_t index = 0; index < a.manifest.blobs.size(); ++index) {
    const uint64_t word = a.entry(index).word.load(), length = a.manifest.blobs[index].length,
                   offset = a.entry(index).offset.load();
    const auto state = static_cast<size_t>(ResidencyWord::state(word));
    if (state >= kStates.size()) {
      report["wrong"].push_back(index);
      continue;
    }
    report[kStates[state]].push_back(index);
    if (ResidencyWord::state(word) != Residency::kResident) continue;
    const bool good = offset + length <= a.header().arena_bytes && right(a, index, offset);
    if (a.entry(index).word.load() != word) continue;
    if (!good) report["wrong"].push_back(index);
    places.emplace_back(offset, index), bytes += length;
  }
  std::ranges::sort(places);
  for (size_t i = 1; i < places.size(); ++i)
    if (places[i - 1].first + a.manifest.blobs[places[i - 1].second].length > places[i].first)
      report["overlapping"].push_back(places[i].second);
  report["resident_bytes"] = bytes;
}

/// Of each worker slot that has files: how many experts, and how many dense blobs, its words say are pinned.
Status look_at_pins(const Arena& a, const std::filesystem::path& dir, json& report) {
  report["slots"] = json::array();
  for (uint32_t slot = 0; slot < kWorkerSlotsMax; ++slot) {
    const auto path = dir / "pins" / std::to_string(slot);
    if (!std::filesystem::exists(path)) continue;
    auto pins = MappedFile::open(path, MappedFile::Access::kReadOnly, pins_bytes(a.header().entries));
    if (!pins) return pins.status();
    const auto* words = reinterpret_cast<const std::atomic<uint64_t>*>(pins->data() + kSharedPage);
    json experts = json::array();
    size_t dense = 0;
    for (uint32_t index = 0; index < a.header().entries; ++index) {
      if (!PinWord::pinned(words[index].load())) continue;
      if (index < a.manifest.blobs.size() && a.manifest.blobs[index].kind == BlobKind::kDense) ++dense;
      else experts.push_back(index);
    }
    auto bell = MappedFile::open(dir / "bell" / std::to_string(slot), MappedFile::Access::kReadOnly, bell_bytes());
    if (!bell) return bell.status();
    const auto& holder = *reinterpret_cast<const BellHeader*>(bell->data());
    const auto* rung = reinterpret_cast<const std::atomic<uint64_t>*>(bell->data() + kSharedPage);
    const uint64_t head = holder.head.load();
    report["slots"].push_back(
        {{"slot", slot},
         {"client", std::string(holder.client, ::strnlen(holder.client, kSlotNameMax))},
         {"experts", experts},
         {"dense", dense},
         {"rung", head == 0 ? json() : json(Completion::entry(rung[(head - 1) % kBellRing].load()))},
         {"share_bytes", a.header().share_bytes[slot].load()}});
  }
  return Status::ok();
}

Status look(const std::filesystem::path& dir, const std::filesystem::path& pack) {
  MOESTRO_ASSIGN_OR_RETURN(const Arena arena, open_arena(dir, pack));
  json report{{"epoch", arena.header().epoch.load()},
              {"closed", arena.header().closed.load()},
              {"arena_bytes", arena.header().arena_bytes}};
  look_at_entries(arena, report);
  MOESTRO_RETURN_IF_ERROR(look_at_pins(arena, dir, report));
  std::printf("%s\n", report.dump().c_str());
  return Status::ok();
}

}  // namespace
}  // namespace moestro::store

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: moestro_arena_look ARENA_DIR PACK\n"), 2;
  const moestro::Status looked = moestro::store::look(argv[1], argv[2]);
  if (!looked.is_ok()) std::fprintf(stderr, "moestro_arena_look: %s\n", looked.message().c_str());
  return looked.is_ok() ? 0 : 1;
}
