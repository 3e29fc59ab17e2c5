#pragma once
// The four-part weighted policy of HOBBIT (2024, eq. 3): the value of an entry is the weighted sum of how recently it
// was used, how often, how often at high precision, and how near its layer is:
//
//   w_lru R / T + w_lfu F / T + w_lhu H / T + w_fld (1 - d / L)
//
// R is the token of its last use, F and H are its uses, and T is the number of tokens so far, all within the running
// sequence. d is the number of layers until its layer is next, 1 to L (a layer that is being computed has chosen, so
// its next pass is L away). The weights are calibrated on a recorded trace.
//
// Whenever T reaches `tokens_max`, T, F and H are halved, and R counts as if the sequence had begun that much later. So
// in a long sequence old uses fade, and recent ones can still be told apart.

#include <functional>
#include <vector>

#include "common/policy/cache_policy.h"

namespace moestro::policy {

struct WeightedOptions {
  int32_t layers = 1;
  int32_t experts = 1;  ///< per layer: key = layer * experts + expert
  double recency = 0.25, frequency = 0.5, high_frequency = 0, nearness = 0.25;  ///< sum 1
  double tokens_max = 128;
};

class WeightedPolicy final : public CachePolicy {
 public:
  explicit WeightedPolicy(WeightedOptions options);
  std::string_view name() const override { return "weighted"; }
  void inserted(uint32_t key, uint32_t group, const Use& use, bool predicted) override;
  void used(uint32_t key, const Use& use) override;
  void removed(uint32_t key) override;
  void ruled_out(uint32_t key) override;
  void forget(uint32_t key) override;
  std::optional<uint32_t> victim(const Wanted& wanted, const Judge& judge) override;
  void at_layer(int32_t layer) override;
  void sequence_began(int32_t sequences) override;
  double heat(uint32_t key, double now) const override;

 private:
  struct State {
    bool in = false;
    uint32_t group = 0, place = 0;                    ///< in members_
    double last = 0, promised = 0, uses = 0, high = 0;  ///< of the running sequence
  };
  State& grow_to(uint32_t key);
  void count(State& state, const Use& use) const;
  double worth(uint32_t key) const;

  WeightedOptions options_;
  std::vector<State> states_;
  std::vector<uint32_t> members_;
  std::vector<std::pair<double, uint32_t>> order_;  ///< of one search
  int32_t layer_ = -1;
  double token_ = 1;
  double span_ = 1;  ///< T
};

/// The weights with the least penalty, searched in steps of 1 / `steps`. `penalty` is a replay of recorded requests:
/// its misses, where one of low precision counts by its share of the bytes. Of equal weights, the first.
WeightedOptions calibrate_weights(WeightedOptions shape, int steps,
                                  const std::function<double(const WeightedOptions&)>& penalty);

}  // namespace moestro::policy
