#include "common/activation/eamc_matcher.h"

#include <algorithm>
#include <cmath>

#include "common/activation/eamc_kernels.h"

namespace moestro::activation {
namespace {
// Of many tokens at once a cell is the share that used the expert, in these units; and they weigh as so many tokens at most.
constexpr float kShareUnits = 255;
constexpr int32_t kTokensMax = 16;
}  // namespace

EamcMatcher::EamcMatcher(const Eamc& eamc, float request_tokens)
    : eamc_(eamc), request_tokens_max_(request_tokens), request_(eamc.shape().cells()), iteration_(eamc.shape().cells()) {
  columns_.reserve(static_cast<size_t>(eamc.shape().experts));
  best_.reserve(kMatchesMax);
  catch_up();
}

void EamcMatcher::catch_up() {
  if (sums_.size() != eamc_.stride()) {
    sums_.assign(eamc_.stride(), 0);
    base_.assign(eamc_.stride(), 0);
    version_ = 0;
  }
  for (int32_t entry = 0; version_ != eamc_.version() && entry < eamc_.size(); ++entry) {
    if (eamc_.changed_at(entry) <= version_) continue;
    const std::span<const uint8_t> cells = eamc_.cells(entry);
    float dot = 0;
    for (size_t i = 0; i < cells.size(); ++i) dot += request_[i] * static_cast<float>(cells[i]);
    base_[static_cast<size_t>(entry)] = dot;
  }
  version_ = eamc_.version();
}

void EamcMatcher::begin_iteration() {
  catch_up();
  std::fill(sums_.begin(), sums_.end(), 0U);
  std::fill(iteration_.begin(), iteration_.end(), uint8_t{0});
  layer_ = -1, tokens_ = 0;
  ranked_ = 0;
}

float EamcMatcher::iteration_weight() const {
  return tokens_ <= 1 ? 1.0F : static_cast<float>(std::min(tokens_, kTokensMax)) / kShareUnits;
}

void EamcMatcher::add_row(int32_t layer, std::span<const ActivationCount> counts, int32_t tokens) {
  const auto experts = static_cast<size_t>(eamc_.shape().experts);
  if (layer < 0 || layer >= eamc_.shape().layers || tokens < 1) return;
  layer_ = layer, tokens_ = tokens;
  ranked_ = 0;
  columns_.clear();
  for (const ActivationCount& c : counts) {
    if (c.expert.value >= experts) continue;
    const auto expert = static_cast<int32_t>(c.expert.value);
    const float share = static_cast<float>(c.tokens) / static_cast<float>(tokens);
    const uint32_t weight = tokens == 1 ? 1 : static_cast<uint32_t>(std::min(kShareUnits, std::round(kShareUnits * share)));
    iteration_[static_cast<size_t>(layer) * experts + c.expert.value] = static_cast<uint8_t>(weight);
    if (tokens == 1) columns_.push_back(eamc_.column(layer, expert));
    else add_weighted_column(eamc_.column(layer, expert), weight, eamc_.stride_used(), sums_.data());
  }
  add_columns(columns_.data(), columns_.size(), eamc_.stride_used(), sums_.data());
}

void EamcMatcher::end_iteration() {
  if (tokens_ == 0) return;
  const float weight = iteration_weight();
  add_scaled(sums_.data(), weight, eamc_.stride_used(), base_.data());
  for (size_t i = 0; i < request_.size(); ++i) request_[i] += weight * static_cast<float>(iteration_[i]);
  request_tokens_ += static_cast<float>(std::min(tokens_, kTokensMax));
  std::fill(sums_.begin(), sums_.end(), 0U);
  layer_ = -1, tokens_ = 0;
  ranked_ = 0;
}

void EamcMatcher::keep(EamcMatch match, size_t count) {
  if (best_.size() == count) best_.pop_back();
  const auto at = std::find_if(best_.begin(), best_.end(), [&](const EamcMatch& m) { return m.score < match.score; });
  best_.insert(at, match);
}

std::span<const EamcMatch> EamcMatcher::best(int32_t count) {
  const auto wanted = static_cast<size_t>(std::clamp(count, 0, kMatchesMax));
  if (wanted > 0 && ranked_ >= wanted) return std::span(best_).first(std::min(wanted, best_.size()));
  best_.clear();
  if (wanted == 0 || (request_tokens_ == 0 && layer_ < 0)) return best_;
  const float base_weight = request_tokens_ == 0 ? 0 : std::min(1.0F, request_tokens_max_ / request_tokens_);
  const float* norms = eamc_.inverse_norms(request_tokens_ == 0 ? layer_ : eamc_.shape().layers - 1);
  float scores[Eamc::kBlock];
  for (size_t first = 0; first < eamc_.stride_used(); first += Eamc::kBlock) {
    const float most = score_block(base_.data() + first, base_weight, sums_.data() + first, iteration_weight(), norms + first, scores);
    const float floor = best_.size() == wanted ? best_.back().score : 0;
    if (most <= floor) continue;
    for (size_t i = 0; i < Eamc::kBlock; ++i)
      if (scores[i] > (best_.size() == wanted ? best_.back().score : 0)) keep({static_cast<int32_t>(first + i), scores[i]}, wanted);
  }
  ranked_ = wanted;
  return best_;
}

}  // namespace moestro::activation
