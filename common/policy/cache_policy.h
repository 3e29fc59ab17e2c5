#pragma once
// The order in which the entries of a cache are given up.

#include <cstdint>
#include <functional>
#include <optional>

namespace moestro::policy {

/// What the cache says about an entry that the policy would evict.
struct Verdict {
  enum class Kind : uint8_t {
    kTake,    ///< evict it
    kSkip,    ///< in use now: propose another
    kNewer,   ///< it was used at `stamp` since the policy last heard of it: sort it in again
  } kind = Kind::kTake;
  uint64_t stamp = 0;
};

class CachePolicy {
 public:
  virtual ~CachePolicy() = default;
  /// `key` is in the cache from now on. Stamps are any clock that grows.
  virtual void inserted(uint32_t key, uint64_t stamp) = 0;
  /// No effect on a key that is not in the cache, or with an older stamp than known.
  virtual void used(uint32_t key, uint64_t stamp) = 0;
  virtual void removed(uint32_t key) = 0;

  /// Proposes keys, first to go first, until `judge` takes one; none if it takes none. The key stays in until removed().
  /// Users of shared memory note uses without telling anyone, so `judge` may answer kNewer: the order is put right as it is read.
  virtual std::optional<uint32_t> victim(const std::function<Verdict(uint32_t key, uint64_t known_stamp)>& judge) = 0;
};

}  // namespace moestro::policy
