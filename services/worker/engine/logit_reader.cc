#include "services/worker/engine/logit_reader.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace moestro::engine {

Status LogitReader::not_finite(const std::string& which, int32_t position) {
  return internal_error("output head: " + which + " logits are not finite at position " + std::to_string(position) +
                        "; its weights are damaged or out of range: `moestro inspect PACK --verify` looks at them");
}

bool LogitReader::read(const StepPlan& plan, const StepBatch& batch, const LogitRow& row, std::span<const float> logits,
                       std::vector<Status>& failed, std::vector<SequenceOutcome>& outcomes) {
  if (!failed[row.sequence].is_ok()) return true;
  const int32_t position = batch.positions[static_cast<size_t>(row.row)];
  if (!Sampler::all_finite(logits)) {
    const auto bad = std::count_if(logits.begin(), logits.end(), [](float l) { return !std::isfinite(l); });
    failed[row.sequence] = not_finite(std::to_string(bad) + " of " + std::to_string(logits.size()), position);
    return false;
  }
  const PlanSequence& sequence = plan.sequences[row.sequence];
  SequenceOutcome& out = outcomes[row.sequence];
  if (row.score) {
    out.scores.resize(sequence.score_targets.size());
    const auto target = static_cast<size_t>(row.row) - batch.rows_of[row.sequence].first;
    sampler_.score(logits, row.target, sequence.score_top, out.scores[target]);
  }
  if (row.sample) sample(sequence, *batch.history_of[row.sequence], position, logits, out);
  return true;
}

void LogitReader::sample(const PlanSequence& sequence, const TokenHistory& history, int64_t position,
                         std::span<const float> logits, SequenceOutcome& out) {
  SampledToken& token = out.sampled.emplace_back();
  std::span<const float> drawn_from = logits;
  if (sequence.adjusts()) {
    adjusted_.assign(logits.begin(), logits.end());
    adjust_logits(adjusted_, sequence, history);
    drawn_from = adjusted_;
  }
  token.id = sampler_.sample(drawn_from, sequence.sampling, position);
  token.scored = sequence.sampling.logprobs >= 0;
  if (token.scored) sampler_.score(logits, token.id, sequence.sampling.logprobs, token.score);
}

}  // namespace moestro::engine
