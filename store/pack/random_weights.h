#pragma once
// Random weights for models in a benchmark's shape: N(0, 0.02), the embedding N(0, 1), norms 1. A number depends only
// on the seed, its tensor's name and its position, so any thread can make any piece at any time. No two tensors, and so
// no two experts, are equal.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/model/model_spec.h"

namespace moestro::store {

class RandomWeights {
 public:
  RandomWeights(const model::ModelDescription& model, uint64_t seed);

  /// Numbers [first, first + out.size()) of a tensor, by its name in the checkpoint, as bf16. Any thread.
  void fill(const std::string& tensor, uint64_t first, std::span<uint16_t> out) const;

 private:
  /// A normal distribution from 16 random bits: the middles of 65,536 parts of equal probability, so no value is beyond
  /// 4.3 deviations.
  static constexpr uint32_t kParts = 65536;
  using Quantiles = std::vector<uint16_t>;
  static Quantiles quantiles(double deviation);

  uint64_t seed_;
  Quantiles weight_, embedding_;
  std::map<std::string, bool>
      ones_;  ///< tensors that are not N(0, 0.02): true where every number is 1, false the embedding
};

}  // namespace moestro::store
