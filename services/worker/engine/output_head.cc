#include "services/worker/engine/output_head.h"

#include <algorithm>

#include "services/worker/engine/layer_math.h"

namespace moestro::engine {
namespace {
// Rows of logits at a time: scoring a long prompt must not need prompt x vocabulary floats.
constexpr int64_t kTileRows = 32;
}  // namespace

OutputHead::OutputHead(const model::ModelSpec& spec, const DenseWeights& weights, kernels::Ops& ops)
    : spec_(spec), weights_(weights), ops_(ops), reader_(ops), sums_(spec.hidden) {
  rows_.resize(static_cast<size_t>(kTileRows * spec.hidden));
  logits_.resize(static_cast<size_t>(kTileRows * spec.vocab));
}

uint32_t OutputHead::run(const StepPlan& plan, const StepBatch& batch, const float* hidden, std::vector<Status>& failed,
                         std::vector<SequenceOutcome>& outcomes) {
  const auto norm_rows = [&](int64_t first, int64_t n) -> const float* {
    engine::norm_rows(ops_, spec_, hidden + first * spec_.hidden, n, weights_.norm(), weights_.norm_bias(),
                      rows_.data());
    return rows_.data();
  };
  sums_.add(batch, kTileRows, norm_rows);
  const uint32_t without_logits = sums_.finish(batch, failed, outcomes);
  return without_logits + run_logits(plan, batch, hidden, failed, outcomes);
}

uint32_t OutputHead::run_logits(const StepPlan& plan, const StepBatch& batch, const float* hidden,
                                std::vector<Status>& failed, std::vector<SequenceOutcome>& outcomes) {
  uint32_t not_finite = 0;
  const auto total = static_cast<int64_t>(batch.logit_rows.size());
  for (int64_t first = 0; first < total; first += kTileRows) {
    const int64_t n = std::min(kTileRows, total - first);
    for (int64_t i = 0; i < n; ++i) {
      const float* source = hidden + batch.logit_rows[static_cast<size_t>(first + i)].row * spec_.hidden;
      std::copy(source, source + spec_.hidden, rows_.begin() + i * spec_.hidden);
    }
    engine::norm_rows(ops_, spec_, rows_.data(), n, weights_.norm(), weights_.norm_bias(), rows_.data());
    ops_.matmul(rows_.data(), n, weights_.head(), weights_.head_bias(), logits_.data());
    if (spec_.logits_divisor != 1.0)
      ops_.scale(logits_.data(), n * spec_.vocab, static_cast<float>(1.0 / spec_.logits_divisor));
    for (int64_t i = 0; i < n; ++i) {
      const LogitRow& row = batch.logit_rows[static_cast<size_t>(first + i)];
      if (!reader_.read(plan, batch, row, {logits_.data() + i * spec_.vocab, static_cast<size_t>(spec_.vocab)}, failed,
                        outcomes))
        ++not_finite;
    }
  }
  return not_finite;
}

}  // namespace moestro::engine
