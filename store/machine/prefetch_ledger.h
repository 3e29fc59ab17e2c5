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

  /// At `stamp` a blob landed that nobody had demanded.
  void landed(uint32_t entry, uint64_t length, uint64_t stamp) { open_[entry] = {length, stamp}; }
  void evicted(uint32_t entry, uint64_t last_use);
  /// Settles those that have been used by now. A worker's hit tells nobody: its stamp says so afterwards.
  void settle(const std::function<uint64_t(uint32_t entry)>& last_use);
  const Counters& counters() const { return counters_; }

 private:
  struct Landed {
    uint64_t length = 0, stamp = 0;
  };
  std::unordered_map<uint32_t, Landed> open_;
  Counters counters_;
};

}  // namespace moestro::store
