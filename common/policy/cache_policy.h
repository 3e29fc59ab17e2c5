#pragma once
// The order in which the entries of a cache are evicted.
//
// Time is any monotonic clock, and settings that are durations are in its unit. Both tiers count uses: one unit for
// each (step, expert) of decoding. So a cache forgets at the same rate on a faster machine, and forgets nothing while
// it is not used.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

namespace moestro::policy {

/// What happened to an entry since it was last reported to the policy.
struct Use {
  double time = 0;
  double weight =
      1;  ///< tokens that used it; a prompt's chunk counts as one token, divided over the experts that it used
  bool scan = false;  ///< no whole token used it: only a prompt did
  bool low_precision = false;  ///< a copy of lower precision would have been enough
};

/// What the cache says about an entry that the policy would evict.
struct Verdict {
  enum class Kind : uint8_t {
    kTake,    ///< evict it
    kInUse,   ///< a worker has it pinned: it cannot be evicted now
    kSpared,  ///< it may not be evicted for this request
    kUsed,    ///< it was used since the last report: sort it in again
  } kind = Kind::kTake;
  Use use{};  ///< kUsed
};
using Judge = std::function<Verdict(uint32_t key)>;

/// Where a victim may come from.
struct Wanted {
  std::span<const uint32_t> groups;
  double now = 0;
};

/// Keys and groups are small numbers (indices of a table). A policy remembers how often a key was used while it is not
/// in the cache.
class CachePolicy {
 public:
  virtual ~CachePolicy() = default;
  virtual std::string_view name() const = 0;

  /// `key` is in the cache from now on. `predicted`: a prefetch brought it, and it has not been used. Until its first
  /// use it counts as used at `use.time`.
  virtual void inserted(uint32_t key, uint32_t group, const Use& use, bool predicted = false) = 0;
  /// Reports a use of a key in the cache; no effect on others.
  virtual void used(uint32_t key, const Use& use) = 0;
  virtual void removed(uint32_t key) = 0;
  /// A prefetch brought `key` for a use that did not happen: the prediction no longer counts.
  virtual void ruled_out(uint32_t key) { (void)key; }
  /// `key` means another entry from now on: its uses are forgotten.
  virtual void forget(uint32_t key) { removed(key); }

  /// Proposes keys in the order of eviction until `judge` takes one; nullopt if it takes none. The key stays in the
  /// cache until removed(). Users of shared memory record uses without a message, so `judge` may answer kUsed; the
  /// order is corrected as it is read.
  virtual std::optional<uint32_t> victim(const Wanted& wanted, const Judge& judge) = 0;

  /// Later calls happen at this layer of the model. For policies that know which layer a key belongs to.
  virtual void at_layer(int32_t layer) { (void)layer; }
  /// A new sequence has joined; `sequences` run now, including it. For policies that count by request.
  virtual void sequence_began(int32_t sequences) { (void)sequences; }

  /// How much a key of the cache is worth at `now`: comparable between keys, and sums of it between sets of keys.
  virtual double heat(uint32_t key, double now) const = 0;
};

}  // namespace moestro::policy
