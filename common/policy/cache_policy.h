#pragma once
// The order in which the entries of a cache are given up.
//
// Time is any clock that grows; knobs that are durations count in it. Both tiers run it in uses: one unit for each
// (step, expert) of decoding, so that a cache in a faster machine, or one that is not used for an hour, forgets neither
// sooner nor later.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

namespace moestro::policy {

/// What happened to an entry since the policy last heard of it.
struct Use {
  double time = 0;
  double weight =
      1;  ///< tokens that used it; a prompt's chunk counts as one token, shared out over the experts it went to
  bool scan = false;  ///< none of them was a whole token's: a prompt passed by
  bool low_precision = false;  ///< a smaller copy would have served
};

/// What the cache says about an entry that the policy would evict.
struct Verdict {
  enum class Kind : uint8_t {
    kTake,    ///< evict it
    kInUse,   ///< somebody has it pinned: not for now, whoever asks
    kSpared,  ///< not for this request
    kUsed,    ///< it was used since the policy last heard of it: sort it in again
  } kind = Kind::kTake;
  Use use{};  ///< kUsed
};
using Judge = std::function<Verdict(uint32_t key)>;

/// Whose room is wanted, and for what.
struct Wanted {
  std::span<const uint32_t> groups;  ///< where a victim may come from
  double now = 0;
  /// The guard of a prefetch: nothing goes that is hotter than this key would be. Nothing: a demand, which must have
  /// its room.
  std::optional<uint32_t> prefetch{};
};

/// Keys are small numbers (indices of a table); groups too. A policy remembers how often a key was used while it is not
/// in the cache.
class CachePolicy {
 public:
  virtual ~CachePolicy() = default;
  virtual std::string_view name() const = 0;

  /// `key` is in the cache from now on. `predicted`: nobody has used it yet, a prefetch brought it; until its first use
  /// it counts as if it had been used at `use.time`.
  virtual void inserted(uint32_t key, uint32_t group, const Use& use, bool predicted = false) = 0;
  /// Of a key in the cache; no effect on others.
  virtual void used(uint32_t key, const Use& use) = 0;
  virtual void removed(uint32_t key) = 0;
  /// A prefetch brought `key` for a use that did not come: what it promised counts no more.
  virtual void ruled_out(uint32_t key) { (void)key; }
  /// `key` stands for something else from now on: what is known of its uses is forgotten.
  virtual void forget(uint32_t key) { removed(key); }

  /// Proposes keys, first to go first, until `judge` takes one; none if it takes none. The key stays in until
  /// removed(). Users of shared memory note uses without telling anyone, so `judge` may answer kUsed: the order is put
  /// right as it is read.
  virtual std::optional<uint32_t> victim(const Wanted& wanted, const Judge& judge) = 0;

  /// What follows happens at this layer of the model; for policies that know which layer a key belongs to.
  virtual void at_layer(int32_t layer) { (void)layer; }
  /// A new sequence has joined; `sequences` run now, it included. For policies that count by request.
  virtual void sequence_began(int32_t sequences) { (void)sequences; }

  /// What was found in use may be free by now: it is proposed again in its place. Call it now and then.
  virtual void look_again() {}

  /// How much a key of the cache is worth at `now`: comparable between keys, and sums of it between sets of keys.
  virtual double heat(uint32_t key, double now) const = 0;
};

}  // namespace moestro::policy
