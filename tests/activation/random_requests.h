#pragma once
// Random requests from a few domains; each domain prefers certain experts at every layer.

#include <random>
#include <set>
#include <vector>

#include "common/activation/history.h"

namespace moestro::activation {

class RandomRequests {
 public:
  RandomRequests(const EamcShape& shape, int32_t domains, uint64_t seed) : shape_(shape), random_(seed) {
    std::gamma_distribution<double> share(0.4, 1.0);
    weights_.resize(static_cast<size_t>(domains));
    for (auto& domain : weights_) {
      domain.resize(shape.cells());
      for (double& w : domain) w = share(random_) + 1e-3;
    }
  }

  /// The experts that one token of the domain chooses at `layer`, lowest first.
  std::vector<ActivationCount> token(int32_t domain, int32_t layer) {
    const auto first =
        weights_[static_cast<size_t>(domain)].begin() + static_cast<std::ptrdiff_t>(layer) * shape_.experts;
    std::vector<double> left(first, first + shape_.experts);
    std::set<uint32_t> chosen;
    while (chosen.size() < static_cast<size_t>(shape_.top_k)) {
      std::discrete_distribution<uint32_t> draw(left.begin(), left.end());
      const uint32_t e = draw(random_);
      left[e] = 0;
      chosen.insert(e);
    }
    std::vector<ActivationCount> counts;
    for (const uint32_t e : chosen) counts.push_back({MoeLayerId(static_cast<uint32_t>(layer)), ExpertId(e), 1});
    return counts;
  }

  ActivationMatrix matrix(int32_t domain, int32_t tokens) {
    ActivationMatrix m(shape_.layers, shape_.experts);
    for (int32_t t = 0; t < tokens; ++t)
      for (int32_t layer = 0; layer < shape_.layers; ++layer) m.add(token(domain, layer));
    return m;
  }

 private:
  const EamcShape shape_;
  std::mt19937_64 random_;
  std::vector<std::vector<double>> weights_;
};

}  // namespace moestro::activation
