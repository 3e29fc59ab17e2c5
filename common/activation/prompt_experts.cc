#include "common/activation/prompt_experts.h"

#include <algorithm>
#include <cmath>

#include "common/activation/eamc.h"

namespace moestro::activation {

PromptTokens prompt_tokens(std::span<const TokenId> prompt) {
  const std::span last = prompt.last(std::min(prompt.size(), PromptExperts::kTokensMax));
  PromptTokens tokens(last.begin(), last.end());
  std::ranges::sort(tokens);
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  return tokens;
}

void PromptExperts::begin(const EamcShape& shape) {
  shape_ = shape;
  entries_.clear();
  having_.clear();
  added_ = 0;
}

void PromptExperts::add(const PromptTokens& prompt, const ActivationMatrix& answer) {
  if (capacity_ == 0 || prompt.empty() || answer.total() == 0 || answer.layers() != shape_.layers ||
      answer.experts() != shape_.experts)
    return;
  if (entries_.size() == capacity_) drop_oldest();
  const uint64_t number = added_++;
  for (const TokenId token : prompt) having_[token].push_back(number);
  entries_.push_back({number, prompt, normalised(answer, shape_.top_k)});
}

void PromptExperts::drop_oldest() {
  for (const TokenId token : entries_.front().tokens) {
    const auto found = having_.find(token);
    found->second.pop_front();
    if (found->second.empty()) having_.erase(found);
  }
  entries_.pop_front();
}

std::shared_ptr<const ExpertShares> PromptExperts::likely(const PromptTokens& prompt) const {
  if (entries_.size() < kLeastKnown) return nullptr;
  const uint64_t oldest = entries_.front().number;
  const auto past = static_cast<double>(entries_.size());
  std::vector<double> scores(entries_.size());
  for (const TokenId token : prompt) {
    const auto found = having_.find(token);
    if (found == having_.end()) continue;
    const double weight = std::log((past + 1) / (static_cast<double>(found->second.size()) + 1));
    for (const uint64_t number : found->second) scores[number - oldest] += weight;
  }
  std::vector<size_t> nearest;
  for (size_t i = 0; i < scores.size(); ++i) {
    scores[i] /= std::sqrt(static_cast<double>(entries_[i].tokens.size()));
    if (scores[i] > 0) nearest.push_back(i);
  }
  if (nearest.empty()) return nullptr;
  const auto count = static_cast<std::ptrdiff_t>(std::min(kNearest, nearest.size()));
  std::ranges::partial_sort(nearest, nearest.begin() + count,
                            [&](size_t a, size_t b) { return std::pair(-scores[a], b) < std::pair(-scores[b], a); });
  nearest.resize(static_cast<size_t>(count));
  double sum = 0;
  for (const size_t i : nearest) sum += scores[i];
  auto shares = std::make_shared<ExpertShares>(shape_.cells());
  for (const size_t i : nearest) {
    const auto weight = static_cast<float>(scores[i] / sum / 255);
    for (size_t cell = 0; cell < shares->size(); ++cell)
      (*shares)[cell] += weight * static_cast<float>(entries_[i].cells[cell]);
  }
  return shares;
}

}  // namespace moestro::activation
