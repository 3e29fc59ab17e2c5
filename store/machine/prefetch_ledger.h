#pragma once
// What became of blobs that were read ahead: used, or evicted unused.

#include <cstdint>
#include <functional>
#include <unordered_map>

namespace moestro::store {

class PrefetchLedger {
 public:
  struct Counters {
    uint64_t used = 0;  ///< used at least once after they arrived
    uint64_t wasted = 0;        ///< evicted before any use
    uint64_t wasted_bytes = 0;  ///< of them, and of reads that were cancelled
    uint64_t unused = 0;  ///< resident, and not used yet
  };

  /// A blob arrived that no worker had demanded. `uses`: the uses in its pin words (UseNote) at that time.
  void landed(uint32_t entry, uint64_t length, uint32_t uses) { open_[entry] = {length, uses}; }
  /// Returns the bytes that were wasted: 0, or those of the entry.
  uint64_t evicted(uint32_t entry, uint32_t uses);
  /// A read ahead was cancelled after so many bytes.
  void broke_off(uint64_t bytes) { counters_.wasted_bytes += bytes; }
  /// Counts those that have been used by now. A worker's hit sends no message, so its count shows it afterwards.
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
