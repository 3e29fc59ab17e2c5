#pragma once
// Which experts follow which: counted over the layers that a token passes, the last layer of one token followed by the
// first of the next. This is Klotski's expert correlation table with paths of `path` layers: a token's choices on that
// many consecutive layers select the row.

#include "common/prediction/popularity.h"
#include "common/prediction/row_predictor.h"
#include "common/prediction/sequence_states.h"

namespace moestro::prediction {

struct CorrelationOptions {
  int32_t path = 1;   ///< layers whose choices are looked up together: 1 or 2
  int32_t reach = 1;  ///< one table for each distance up to this
  int32_t back = 0;   ///< uses the choices of this many layers before the last one; 0 or 1
};

class CorrelationPredictor final : public RowPredictor {
 public:
  /// Errors: kInvalidArgument, also for tables beyond 256 MiB.
  static Result<std::unique_ptr<CorrelationPredictor>> create(const PredictorShape& shape,
                                                              const CorrelationOptions& options);
  std::string_view name() const override { return options_.back == 0 ? "correlation" : "correlation-2"; }
  void begin_iteration(std::span<const IterationSequence> sequences) override;
  void routed(int32_t layer, std::span<const SequenceRoutes> routes) override;
  bool row(int32_t layer, int32_t target, std::span<float> out) override;
  void end_sequence(uint64_t sequence) override { states_.end(sequence); }

 private:
  /// A token's choices at each layer, the newest pass of each.
  struct State {
    std::vector<std::vector<uint16_t>> chosen;
    std::vector<uint16_t>& at(int32_t layer) { return chosen[static_cast<size_t>(layer)]; }
  };
  CorrelationPredictor(const PredictorShape& shape, const CorrelationOptions& options);

  int32_t before(int32_t layer, int32_t by) const {
    return ((layer - by) % shape_.layers + shape_.layers) % shape_.layers;
  }
  /// Rows of the table for `target`, which is `distance` layers after `layer`, for what the sequence chose up to
  /// `layer`.
  void paths_to(State& state, int32_t layer, int32_t distance, std::vector<size_t>& rows) const;
  void learn(State& state, int32_t layer, std::span<const uint16_t> chosen);
  void add_odds(std::span<const size_t> rows, int32_t target);
  std::span<float> table_row(size_t row) {
    return std::span(followed_).subspan(row * static_cast<size_t>(shape_.experts), static_cast<size_t>(shape_.experts));
  }

  const CorrelationOptions options_;
  size_t paths_ = 1;               ///< rows for each target and distance
  std::vector<float> followed_;    ///< [distance][target][path][expert]
  std::vector<float> walked_;      ///< [distance][target][path]: tokens
  UsageTable usage_;
  std::vector<size_t> rows_;       ///< scratch
  std::vector<float> per_token_;   ///< scratch: [experts]
  SequenceStates<State> states_;
};

}  // namespace moestro::prediction
