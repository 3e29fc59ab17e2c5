#pragma once
// Shared memory in one process: words, pins and stamps that a test sets by hand.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "store/layout/pins_layout.h"
#include "store/machine/store_machine.h"

namespace moestro::store {

inline constexpr uint64_t kPage = 4096;
inline constexpr uint64_t kExpertBytes = kPage;  ///< bytes of an expert, where all are equal

/// Of the bytes that a test calls `n`.
inline ContentHash hash_of(uint64_t n) { return {n, 7}; }

class FakeSharedState final : public SharedState {
 public:
  void resize(size_t entries) {
    words.assign(entries, 0);
    offsets.assign(entries, 0);
    contents.assign(entries, {});
    stamps.assign(entries, 0);
    aliases.assign(entries, 0);
    lengths.assign(entries, 0);
    found_wrong.assign(entries, 0);
    sixteenths.assign(entries, 0);
  }
  void set_word(uint32_t entry, Residency state, uint64_t generation) override {
    write();
    words[entry] = ResidencyWord::pack(state, generation);
    if (state == Residency::kEvicting && on_evicting) on_evicting(entry);
  }
  void set_place(uint32_t entry, uint64_t offset, const ContentHash& content) override {
    write();
    offsets[entry] = offset, contents[entry] = content;
  }
  void set_alias(uint32_t entry, uint32_t first) override { write(), aliases[entry] = first + 1; }
  void clear_alias(uint32_t entry) override { write(), aliases[entry] = 0; }
  void set_length(uint32_t entry, uint64_t bytes) override { write(), lengths[entry] = bytes; }
  void note_wrong(uint32_t entry) override {
    EXPECT_NE(state(entry), Residency::kResident) << "whoever leases it now would not be told";
    ++found_wrong[entry];
  }
  bool pinned(uint32_t entry) const override {
    ++looks;
    return std::ranges::any_of(pins, [entry](const auto& slot) { return slot.second.contains(entry); });
  }
  UseNote uses(uint32_t entry) const override { return ++looks, UseNote{stamps[entry], sixteenths[entry]}; }
  uint64_t uses_of_all() const override { return all_uses; }
  uint64_t stamp_now() const override { return ++now; }
  void set_share(uint32_t slot, uint64_t bytes) override {
    shares[slot] = bytes;
    if (on_share) on_share(slot, bytes);
  }
  void set_window_share(uint32_t slot, uint32_t places) override { window_shares[slot] = places; }
  void set_pin_bytes_min(uint64_t bytes) override { pin_bytes_min = bytes; }
  uint64_t pin_cost(uint64_t length) const { return std::max(length, pin_bytes_min); }

  Residency state(uint32_t entry) const { return ResidencyWord::state(words[entry]); }
  /// A whole use by a worker: what it leaves in its pin word.
  void use(uint32_t, uint32_t entry) {
    stamps[entry] = ++now;
    scan(entry, 16);
  }
  /// A prompt's.
  void scan(uint32_t entry, uint32_t parts) {
    sixteenths[entry] = (sixteenths[entry] + parts) & PinWord::kUsesMask;
    all_uses += parts;
  }

  std::vector<uint64_t> lengths, words, offsets, stamps;
  std::vector<ContentHash> contents;
  std::vector<uint32_t> aliases;  ///< 1 + first entry
  std::vector<uint32_t> found_wrong;
  std::vector<uint32_t> sixteenths;
  uint64_t all_uses = 0;
  std::map<uint32_t, std::set<uint32_t>> pins;  ///< by worker slot
  std::map<uint32_t, uint64_t> shares;
  std::map<uint32_t, uint32_t> window_shares;
  uint64_t pin_bytes_min = 0;
  std::function<void()> on_write;  ///< before each change of the table: here a store can die
  std::function<void(uint32_t)> on_evicting;
  std::function<void(uint32_t slot, uint64_t bytes)> on_share;
  mutable uint64_t now = 0;
  mutable uint64_t looks = 0;  ///< at pin words, by the machine

 private:
  void write() const {
    if (on_write) on_write();
  }
};

}  // namespace moestro::store
