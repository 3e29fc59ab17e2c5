#include "services/worker/engine/output_head.h"

#include <algorithm>
#include <cmath>

namespace moestro::engine {
namespace {
// Rows of logits at a time: scoring a long prompt must not need prompt x vocabulary floats.
constexpr int64_t kTileRows = 32;
}  // namespace

OutputHead::OutputHead(const model::ModelSpec& spec, const DenseWeights& weights, kernels::Ops& ops)
    : spec_(spec), weights_(weights), ops_(ops), sampler_(ops) {
  rows_.resize(static_cast<size_t>(kTileRows * spec.hidden));
  logits_.resize(static_cast<size_t>(kTileRows * spec.vocab));
}

uint32_t OutputHead::run(const StepPlan& plan, const StepBatch& batch, const float* hidden, std::vector<Status>& failed,
                         std::vector<SequenceOutcome>& outcomes) {
  uint32_t not_finite = 0;
  const auto total = static_cast<int64_t>(batch.logit_rows.size());
  for (int64_t first = 0; first < total; first += kTileRows) {
    const int64_t n = std::min(kTileRows, total - first);
    for (int64_t i = 0; i < n; ++i) {
      const float* source = hidden + batch.logit_rows[static_cast<size_t>(first + i)].row * spec_.hidden;
      std::copy(source, source + spec_.hidden, rows_.begin() + i * spec_.hidden);
    }
    ops_.rms_norm(rows_.data(), n, spec_.hidden, weights_.norm(), static_cast<float>(spec_.norm_eps), rows_.data());
    ops_.matmul(rows_.data(), n, weights_.head(), nullptr, logits_.data());
    for (int64_t i = 0; i < n; ++i) {
      const LogitRow& row = batch.logit_rows[static_cast<size_t>(first + i)];
      Status& status = failed[row.sequence];
      if (!status.is_ok()) continue;
      const int32_t position = batch.positions[static_cast<size_t>(row.row)];
      const std::span<const float> logits(logits_.data() + i * spec_.vocab, static_cast<size_t>(spec_.vocab));
      if (!Sampler::all_finite(logits)) {
        ++not_finite;
        const auto bad = std::count_if(logits.begin(), logits.end(), [](float l) { return !std::isfinite(l); });
        status = internal_error("output head: " + std::to_string(bad) + " of " + std::to_string(logits.size()) + " logits are not finite at position " +
                                std::to_string(position) + "; its weights are damaged or out of range: `moestro inspect PACK --verify` looks at them");
        continue;
      }
      finish_row(plan.sequences[row.sequence], *batch.history_of[row.sequence], row, batch.rows_of[row.sequence].first, position, logits, outcomes[row.sequence]);
    }
  }
  return not_finite;
}

void OutputHead::finish_row(const PlanSequence& sequence, const TokenHistory& history, const LogitRow& row, int64_t first_row,
                            int64_t position, std::span<const float> logits, SequenceOutcome& out) {
  if (row.score) {
    out.scores.resize(sequence.score_targets.size());
    sampler_.score(logits, row.target, sequence.score_top, out.scores[static_cast<size_t>(row.row - first_row)]);
  }
  if (!row.sample) return;
  SampledToken& token = out.sampled.emplace_back();
  std::span<const float> drawn_from = logits;
  if (sequence.sampling.adjusts()) {
    adjusted_.assign(logits.begin(), logits.end());
    adjust_logits(adjusted_, sequence.sampling, history);
    drawn_from = adjusted_;
  }
  token.id = sampler_.sample(drawn_from, sequence.sampling, position);
  token.scored = sequence.sampling.logprobs >= 0;
  if (token.scored) sampler_.score(logits, token.id, sequence.sampling.logprobs, token.score);
}

}  // namespace moestro::engine
