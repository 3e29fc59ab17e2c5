#pragma once
// How much DRAM each model is guaranteed and may have. This is arithmetic only: the machine reports what is placed and
// freed, and asks before it evicts. A blob of n models counts 1/n for each.
//
// An eviction for one model never takes another model below its guarantee, and a model at its maximum evicts its own
// blobs. The one exception, when blobs of several models may be evicted, because nothing else is left, is blobs of
// several models. Each owner counts only a part of them, so guarantees over parts could exceed the arena, and a worker
// within its share would wait forever.

#include <bit>
#include <cstdint>
#include <vector>

#include "common/status.h"

namespace moestro::store {

inline constexpr uint32_t kModelsMax = 64;
using ModelMask = uint64_t;  ///< bit i: model i

struct ModelShare {
  uint64_t guaranteed = 0;
  uint64_t maximal = UINT64_MAX;
  friend bool operator==(const ModelShare&, const ModelShare&) = default;
};

class Shares {
 public:
  void set_bounds(uint32_t model, ModelShare bounds) { models_[model].bounds = bounds; }
  const ModelShare& bounds(uint32_t model) const { return models_[model].bounds; }
  bool any_guarantee() const;
  uint64_t used(uint32_t model) const { return models_[model].used; }

  void add(ModelMask owners, uint64_t bytes);
  void remove(ModelMask owners, uint64_t bytes);

  /// The owners that would exceed their maximum with a further blob of `bytes`.
  ModelMask over_maximum(ModelMask owners, uint64_t bytes) const;

  struct Eviction {
    ModelMask wanting = 0;  ///< models that the room is for
    ModelMask over = 0;     ///< of them, those at their maximum: only their own blobs may be evicted
    bool shared_too = false;  ///< nothing else is left
  };
  bool may_evict(ModelMask owners, uint64_t bytes, const Eviction& why) const;

 private:
  static uint64_t part(ModelMask owners, uint64_t bytes) {
    return owners == 0 ? 0 : bytes / static_cast<uint64_t>(std::popcount(owners));
  }
  struct Model {
    ModelShare bounds;
    uint64_t used = 0;
  };
  std::vector<Model> models_ = std::vector<Model>(kModelsMax);
};

/// What the workers of one model need and may have, of the bytes for experts.
struct PinGroup {
  uint64_t guaranteed = 0;  ///< kept from others, dense weights not counted
  uint64_t maximal = UINT64_MAX;
  uint64_t largest = 0;     ///< expert
  std::vector<uint64_t> reserves;  ///< of its workers: one expert each
};

/// The bytes that the workers of each model may pin at once (by group; all workers of a group get the same above their
/// reserve). All shares and what is guaranteed to other models fit in `expert_bytes` together, so for a worker below
/// its share there is always something to evict. kExhausted, with the numbers, if even the reserves do not fit.
Result<std::vector<std::vector<uint64_t>>> pin_shares(uint64_t expert_bytes, const std::vector<PinGroup>& groups);

}  // namespace moestro::store
