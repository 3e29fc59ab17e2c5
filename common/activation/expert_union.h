#pragma once
// The experts that a batch needs at a step, as far as they are foreseen, and which waiting request adds the fewest.

#include <cstddef>
#include <span>
#include <vector>

namespace moestro::activation {

/// [layer][expert]: the chance that a token of the request uses the expert.
using ExpertShares = std::vector<float>;

class ExpertUnion {
 public:
  /// Another request of the batch. All have the same shape.
  void add(const ExpertShares& shares);
  bool empty() const { return absent_.empty(); }
  /// The experts of a step that are expected to be used by this request and by none of the batch.
  double added_by(const ExpertShares& shares) const;

 private:
  ExpertShares absent_;  ///< [layer][expert]: the chance that no request of the batch uses it
};

/// A request that waits.
struct OverlapCandidate {
  const ExpertShares* likely = nullptr;  ///< null: nothing is known
  size_t passes_left = 0;                ///< later requests that may still go before it
};

/// The candidate that joins next; candidates in the order in which they came, at least one. Nobody goes before one that
/// has no passes left. Of the others, the first one that saves about half of what can be saved: it adds fewer experts
/// to `running` than the first candidate does. Later ones that save a little more are left to wait, as they came later.
/// It is the first if nothing is known of it or of the batch, or if next to nothing can be saved.
size_t next_by_overlap(const ExpertUnion& running, std::span<const OverlapCandidate> candidates);

}  // namespace moestro::activation
