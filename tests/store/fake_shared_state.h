#pragma once
// Shared memory in one process: words, pins and stamps that a test sets by hand.

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "store/machine/store_machine.h"

namespace moestro::store {

class FakeSharedState final : public SharedState {
 public:
  void resize(size_t entries) {
    words.assign(entries, 0);
    offsets.assign(entries, 0);
    stamps.assign(entries, 0);
    aliases.assign(entries, 0);
    lengths.assign(entries, 0);
  }
  void set_word(uint32_t entry, Residency state, uint64_t generation) override {
    words[entry] = ResidencyWord::pack(state, generation);
    if (state == Residency::kEvicting && on_evicting) on_evicting(entry);
  }
  void set_place(uint32_t entry, uint64_t offset, const ContentHash&) override { offsets[entry] = offset; }
  void set_alias(uint32_t entry, uint32_t first) override { aliases[entry] = first + 1; }
  void clear_alias(uint32_t entry) override { aliases[entry] = 0; }
  void set_length(uint32_t entry, uint64_t bytes) override { lengths[entry] = bytes; }
  bool pinned(uint32_t entry) const override {
    return std::ranges::any_of(pins, [entry](const auto& slot) { return slot.second.contains(entry); });
  }
  uint64_t last_use(uint32_t entry) const override { return stamps[entry]; }
  uint64_t stamp_now() const override { return ++now; }
  void set_share(uint32_t slot, uint64_t bytes) override { shares[slot] = bytes; }

  Residency state(uint32_t entry) const { return ResidencyWord::state(words[entry]); }
  void use(uint32_t, uint32_t entry) { stamps[entry] = ++now; }

  std::vector<uint64_t> lengths, words, offsets, stamps;
  std::vector<uint32_t> aliases;  ///< 1 + first entry
  std::map<uint32_t, std::set<uint32_t>> pins;  ///< by worker slot
  std::map<uint32_t, uint64_t> shares;
  std::function<void(uint32_t)> on_evicting;
  mutable uint64_t now = 0;
};

}  // namespace moestro::store
