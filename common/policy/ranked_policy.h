#pragma once
// The common part of policies that give every key a rank and evict the lowest. A subclass defines how a use changes the
// rank.

#include <deque>
#include <vector>

#include "common/policy/cache_policy.h"
#include "common/policy/ranking.h"

namespace moestro::policy {

/// Ranks only grow with uses, and known ranks may be older than the true ones. So if the known rank of the first key is
/// its true one, that key is the coldest of all. If many keys were used since the last search, correcting all of them
/// could take long. So victim() corrects at most `kLooksMax` keys and then takes the coldest of those as a sample. The
/// next call has that many fewer to correct.
class RankedPolicy : public CachePolicy {
 public:
  RankedPolicy() = default;
  RankedPolicy(const RankedPolicy&) = delete;
  RankedPolicy& operator=(const RankedPolicy&) = delete;
  static constexpr uint32_t kLooksMax = 64;
  static constexpr double kLookAgain = 1.0 / 16;  ///< uses a key, after which those found in use are proposed again
  static constexpr double kWeightMin = 1.0 / 1024;  ///< a prompt that sent nobody there by the token still used it

  void inserted(uint32_t key, uint32_t group, const Use& use, bool predicted) override;
  void used(uint32_t key, const Use& use) override;
  void removed(uint32_t key) override;
  void forget(uint32_t key) override;
  void ruled_out(uint32_t key) override;
  std::optional<uint32_t> victim(const Wanted& wanted, const Judge& judge) override;

 protected:
  struct State {
    double rank = 0;  ///< by its uses; kept while the key is not in the cache
    double tie = 0;   ///< of equal ranks the smaller goes first
    double shown = 0; ///< the rank that it is sorted by: higher while a prefetch's prediction holds
    uint32_t group = 0, key = 0;
    // Of policies that look at intervals.
    double last = 0;         ///< time of the last use
    double uses = 0;         ///< since then, by prompts: less than a whole one
    double interval = 0;     ///< log2 of the time between two uses
    uint32_t intervals = 0;  ///< that it comes from, as far as it matters how many
    bool known = false;      ///< `rank` is known
    bool in = false, parked = false;
  };
  /// `state` after `use`. `entering`: the use that brought it in.
  virtual void apply(State& state, const Use& use, bool entering) const = 0;

  /// Gives every known key a new rank; ties stay.
  template <typename NewRank>
  void rerank(const NewRank& new_rank) {
    for (State& state : states_) {
      if (!state.known) continue;
      const bool promised = state.shown != state.rank;
      state.rank = new_rank(state);
      if (!promised) state.shown = state.rank;
      if (place_[state.key] != Ranking::kNowhere) sort_in(state.key);
    }
  }
  const State& state(uint32_t key) const { return states_[key]; }
  bool has(uint32_t key) const { return key < states_.size() && states_[key].in; }

 private:
  State& grow_to(uint32_t key);
  Ranking& group(uint32_t index);
  void sort_in(uint32_t key);
  void take_out(uint32_t key);
  void park(uint32_t key);
  bool unpark(std::span<const uint32_t> groups);
  const Ranking::Item* coldest(std::span<const uint32_t> groups) const;
  std::optional<uint32_t> search(std::span<const uint32_t> groups, const Judge& judge);
  std::optional<uint32_t> take_from(std::vector<uint32_t>& sample, const Judge& judge);

  double looked_again_at_ = 0;
  std::vector<State> states_;
  std::vector<uint32_t> place_;
  std::deque<Ranking> groups_;
  std::vector<std::vector<uint32_t>> parked_;  ///< by group: keys found in use, so not proposed again before the others
  std::vector<uint32_t> spared_;               ///< during one search
};

}  // namespace moestro::policy
