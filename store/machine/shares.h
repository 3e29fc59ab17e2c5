#pragma once
// How much DRAM each model is guaranteed, and may have at most. Pure arithmetic: the machine says what is placed and
// what is freed, and asks before it evicts. A blob of n models counts 1/n to each of them.
//
// For a model's sake nothing is evicted that would take another below its guarantee, and a model at its maximum makes
// room among its own. Blobs that several models have are the one exception, when nothing else is left: each of their
// owners counts only a part, so guarantees over parts could add up to more than the arena, and a worker within its
// share would wait for ever.

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

  /// The owners that a blob of `bytes` more would take above their maximum.
  ModelMask over_maximum(ModelMask owners, uint64_t bytes) const;

  struct Eviction {
    ModelMask wanting = 0;  ///< for whose sake
    ModelMask over = 0;     ///< of them, those at their maximum: only what is theirs helps
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

/// How many bytes the workers of each model may pin at once (by group: each of its workers the same above its reserve).
/// All of them and what is guaranteed to the other models fit in `expert_bytes` together, so whoever is below its share
/// finds something to evict. kExhausted, with the numbers, if even the reserves do not fit.
Result<std::vector<std::vector<uint64_t>>> pin_shares(uint64_t expert_bytes, const std::vector<PinGroup>& groups);

}  // namespace moestro::store
