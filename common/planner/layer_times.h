#pragma once
// How long the parts of a layer compute, at given rates. All forecasts count alike.

#include <algorithm>

#include "common/planner/model_sizes.h"
#include "common/planner/rates.h"

namespace moestro::planner {

/// Rows that are computed together.
struct Step {
  double rows = 1;
  double logit_rows = 1;
  double context = 1;  ///< positions that a row sees, on average
  bool prompt = false;
  double memory = 0;   ///< positions of an encoder's memory that a row of a target sees
};

/// Adds computing, and how much of it is reading.
struct Computing {
  double seconds = 0, reading = 0;
  void add(double time, double reads) { seconds += time, reading += std::min(time, reads); }
  void add(const Computing& other) { seconds += other.seconds, reading += other.reading; }
  void product(const ProductCurve& curve, double rows, double parameters) {
    if (parameters > 0 && rows > 0) add(curve.seconds(rows, parameters), curve.reading(parameters));
  }
  void at_least(double floor) { seconds = std::max(seconds, floor); }
};

/// Norms, projections, and attention over the cache.
Computing attention_time(const LayerSizes& layer, const Rates& rates, const Step& step);
/// What a step's rows of sources leave for this layer of the decoder.
Computing memory_time(const LayerSizes& layer, const Rates& rates, double rows);
/// Of attention_time, scores, softmax and sums of values; and what is around the products.
Computing attending_time(const LayerSizes& layer, const Rates& rates, const Step& step);
double around_attention(const LayerSizes& layer, const Rates& rates, double rows);
Computing router_time(const LayerSizes& layer, const Rates& rates, double rows);
/// `used` experts, among which the rows are spread evenly, and around_experts().
Computing experts_time(const ModelSizes& sizes, const Rates& rates, double rows, double used);
/// What is around the products of a layer's experts.
double around_experts(const Rates& rates);
/// Of one expert with so many rows.
double expert_seconds(const ModelSizes& sizes, const Rates& rates, double rows);
/// The MLP of a dense layer, or the shared expert.
Computing mlp_time(const LayerSizes& layer, const Rates& rates, double rows);
Computing head_time(const ModelSizes& sizes, const Rates& rates, const Step& step);

}  // namespace moestro::planner
