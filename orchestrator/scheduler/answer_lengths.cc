#include "orchestrator/scheduler/answer_lengths.h"

#include <algorithm>
#include <cmath>

namespace moestro::orchestrator {

namespace {
constexpr double kLatest = 0.05;  ///< weight of the latest answer
/// Tokens of an answer before any has ended: an ordinary one. A limit may be the rest of the context, and the first
/// line would then have the worker to itself.
constexpr int64_t kOrdinary = 512;
}

void AnswerLengths::ended(int64_t tokens) {
  const auto length = static_cast<double>(tokens);
  if (!any_) mean_ = length, any_ = true;
  deviation_ += kLatest * (std::abs(length - mean_) - deviation_);
  mean_ += kLatest * (length - mean_);
}

int64_t AnswerLengths::expected(int64_t sampled, int64_t most) const {
  if (!any_) return std::min(most, std::max(sampled + 1, kOrdinary));
  const auto usual = static_cast<int64_t>(mean_ + deviation_);
  // One that is longer than usual may well be longer by as much as answers differ.
  const int64_t longer = sampled + static_cast<int64_t>(deviation_) + 1;
  return std::min(most, std::max(usual, longer));
}

}  // namespace moestro::orchestrator
