#pragma once
// What became of blobs that were read ahead: used, or evicted before anyone did.

#include <cstdint>
#include <functional>
#include <unordered_map>

namespace moestro::store {

class PrefetchLedger {
 public:
  struct Counters {
    uint64_t used = 0;  ///< hit at least once after they landed
    uint64_t wasted = 0, wasted_bytes = 0;  ///< evicted before
    uint64_t unused = 0;  ///< there, and not used yet
  };

  /// A blob landed that nobody had demanded, when the uses in its pin words (UseNote) were so many.
  void landed(uint32_t entry, uint64_t length, uint32_t uses) { open_[entry] = {length, uses}; }
  void evicted(uint32_t entry, uint32_t uses);
  /// Settles those that have been used by now. A worker's hit tells nobody: its count says so afterwards.
  void settle(const std::function<uint32_t(uint32_t entry)>& uses);
  const Counters& counters() const { return counters_; }

 private:
  struct Landed {
    uint64_t length = 0;
    uint32_t uses = 0;
  };
  std::unordered_map<uint32_t, Landed> open_;
  Counters counters_;
};

}  // namespace moestro::store
