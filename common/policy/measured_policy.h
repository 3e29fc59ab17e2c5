#pragma once
// Follows the policy with the fewest recent misses: `auto` of a device cache.
//
// The uses that the cache serves are replayed, layer by layer, on a shadow cache for each policy. A shadow has the same
// number of slots but holds only keys, and fetches everything on demand. At the end of each window of uses, the policy
// with the fewest misses takes over if it is better by more than chance. Older windows count less. All policies see
// what happens in the real cache, so the new one knows its contents.
//
// For a large cache, the shadows hold a sample: keys chosen by a hash, and the same share of the slots. Misses of such
// a miniature are close to those of the whole (Waldspurger et al., "Cache modeling and optimization using miniature
// simulations", 2017).

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "common/policy/cache_policy.h"

namespace moestro::policy {

struct MeasuredOptions {
  size_t slots = 1;              ///< of the cache
  size_t shadow_slots_max = 96;  ///< of a shadow
  size_t window_uses = 256;      ///< of the sample
  double better = 0.02;          ///< share of misses that another policy must save to take over
};

class MeasuredPolicy final : public CachePolicy {
 public:
  using Make = std::function<std::unique_ptr<CachePolicy>()>;
  /// At least one candidate; the first is used at the start. A single candidate is not measured.
  MeasuredPolicy(const MeasuredOptions& options, const std::vector<Make>& candidates);

  std::string_view name() const override { return "auto"; }
  void inserted(uint32_t key, uint32_t group, const Use& use, bool predicted) override;
  void used(uint32_t key, const Use& use) override;
  void removed(uint32_t key) override;
  void ruled_out(uint32_t key) override;
  void forget(uint32_t key) override;
  std::optional<uint32_t> victim(const Wanted& wanted, const Judge& judge) override {
    return now().victim(wanted, judge);
  }
  void at_layer(int32_t layer) override;
  void sequence_began(int32_t sequences) override;
  double heat(uint32_t key, double time) const override { return real_[chosen_]->heat(key, time); }

  size_t chosen() const { return chosen_; }  ///< of the candidates
  double misses(size_t candidate) const { return shadows_[candidate].score; }

 private:
  struct Shadow {
    std::unique_ptr<CachePolicy> policy;
    std::vector<uint8_t> in;  ///< by key
    size_t held = 0;
    double misses = 0;  ///< of this window
    double score = 0;   ///< of earlier windows; older ones count less
  };
  CachePolicy& now() { return *real_[chosen_]; }
  bool sampled(uint32_t key) const;
  void measure(uint32_t key, const Use& use);
  void measure_layer();
  void pass(Shadow& shadow, uint32_t key, const Use& use);
  void choose();

  const MeasuredOptions options_;
  const size_t rate_;          ///< one of this many keys is in the sample
  const size_t shadow_slots_;
  std::vector<std::unique_ptr<CachePolicy>> real_;
  std::vector<Shadow> shadows_;      ///< none: there is no choice
  std::vector<std::pair<uint32_t, Use>> layer_uses_;  ///< of the sample, in the layer's pass under way
  std::vector<uint64_t> last_visit_; ///< [key]: the layer's pass that used it last
  uint64_t visit_ = 1;
  size_t window_ = 0;          ///< uses of this one
  size_t chosen_ = 0;
};

}  // namespace moestro::policy
