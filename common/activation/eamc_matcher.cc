#include "common/activation/eamc_matcher.h"

#include <algorithm>
#include <cmath>

#include "common/activation/eamc_kernels.h"

namespace moestro::activation {
namespace {
// Of many tokens at once a cell is the share that used the expert, in these units; and they weigh as so many tokens at
// most.
constexpr float kShareUnits = 255;
constexpr int32_t kTokensMax = 16;
}  // namespace

EamcMatcher::EamcMatcher(const EamcView& eamc, float request_tokens)
    : eamc_(eamc),
      request_tokens_max_(request_tokens),
      request_(eamc.shape().cells()),
      iteration_(eamc.shape().cells()) {
  columns_.reserve(static_cast<size_t>(eamc.shape().experts));
  best_.reserve(kMatchesMax);
  catch_up();
}

void EamcMatcher::catch_up() {
  const bool other = view_ != eamc_.id();
  if (other) {
    view_ = eamc_.id();
    versions_.assign(eamc_.stride(), EamcView::kNoVersion);
    sums_.assign(eamc_.stride(), 0);
    base_.assign(eamc_.stride(), 0);
  }
  const uint64_t changes = eamc_.changes();
  if (!other && changes == changes_) return;
  changes_ = changes;
  entries_ = eamc_.size();
  for (int32_t entry = 0; entry < entries_; ++entry) {
    const auto at = static_cast<size_t>(entry);
    const uint64_t version = eamc_.version(entry);
    if (version == versions_[at]) continue;
    base_[at] = request_tokens_ == 0 ? 0 : weighted_sum(request_.data(), eamc_.cells(entry), request_.size());
    versions_[at] = version;  // one that is written just now is heard of again; whether the sum is of this version
                              // shows when it is used
  }
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
    const uint32_t weight =
        tokens == 1 ? 1 : static_cast<uint32_t>(std::min(kShareUnits, std::round(kShareUnits * share)));
    iteration_[static_cast<size_t>(layer) * experts + c.expert.value] = static_cast<uint8_t>(weight);
    if (tokens == 1) columns_.push_back(eamc_.column(layer, expert));
    else add_weighted_column(eamc_.column(layer, expert), weight, rounded(), sums_.data());
  }
  add_columns(columns_.data(), columns_.size(), rounded(), sums_.data());
}

void EamcMatcher::end_iteration() {
  if (tokens_ == 0) return;
  const float weight = iteration_weight();
  add_scaled(sums_.data(), weight, rounded(), base_.data());
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
  float scores[kEamcBlock];
  for (size_t first = 0; first < rounded(); first += kEamcBlock) {
    const float most =
        score_block(base_.data() + first, base_weight, sums_.data() + first, iteration_weight(), norms + first, scores);
    const float floor = best_.size() == wanted ? best_.back().score : 0;
    if (most <= floor) continue;
    for (size_t i = 0; i < kEamcBlock; ++i) {
      if (!(scores[i] > (best_.size() == wanted ? best_.back().score : 0)) || std::isinf(scores[i])) continue;
      // All that this score is made of has been read: now it shows whether it was of one entry.
      const auto entry = static_cast<int32_t>(first + i);
      if (eamc_.holds(entry, versions_[first + i])) keep({entry, scores[i]}, wanted);
    }
  }
  ranked_ = wanted;
  return best_;
}

bool EamcMatcher::read_row(const EamcMatch& match, int32_t layer, std::span<uint8_t> out) const {
  const auto first = static_cast<size_t>(layer) * static_cast<size_t>(eamc_.shape().experts);
  return eamc_.copy(match.entry, versions_[static_cast<size_t>(match.entry)], first, out);
}

}  // namespace moestro::activation
