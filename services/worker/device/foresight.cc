#include "services/worker/device/foresight.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "common/check.h"

namespace moestro::device {
namespace {

bool mostly_prompts(std::span<const engine::WatchedSequence> sequences) {
  int64_t prompts = 0, decoded = 0;
  for (const auto& s : sequences)
    (s.rows == 1 ? decoded : prompts) += s.rows;  // a prompt's only token is as good as decoded
  return prompts > decoded;
}

}  // namespace

Foresight::Foresight(ExpertTier& tier, std::unique_ptr<prediction::Predictor> predictor, int64_t top_k,
                     ExpertTier* below)
    : layers_(tier.layers()), experts_(tier.experts()), predictor_(std::move(predictor)), top_k_(top_k),
      forecast_(layers_, experts_), row_counts_(static_cast<size_t>(experts_), 0) {
  stages_.emplace_back(tier);
  if (below != nullptr) stages_.emplace_back(*below);
}

void Foresight::set_timeline(lanes::Timeline* timeline, std::vector<int32_t> model_layers) {
  timeline_ = timeline;
  model_layers_ = std::move(model_layers);
  if (timeline != nullptr) timeline->set_arrivals(this);
}

/// A part of the sequence's prompt that is over already: it says what the sequence is like. Of the model it says
/// nothing new, as all others have counted it when it was computed.
void Foresight::found(SequenceId sequence, int64_t tokens, std::span<const activation::ActivationCount> counts) {
  if (!predictor_) return;
  const prediction::IterationSequence prompt{sequence.value, false, static_cast<int32_t>(tokens)};
  predictor_->set_learning(false);
  predictor_->begin_iteration({&prompt, 1});
  for (auto rest = counts; !rest.empty();) {
    const MoeLayerId layer = rest.front().layer;
    const auto end = std::ranges::find_if(rest, [&](const auto& c) { return c.layer != layer; });
    const prediction::SequenceRoutes routes{sequence.value, {rest.begin(), end}};
    predictor_->routed(static_cast<int32_t>(layer.value), {&routes, 1});
    rest = {end, rest.end()};
  }
  predictor_->end_iteration();
  predictor_->set_learning(true);
}

void Foresight::begin_step(PlanId plan, std::span<const engine::WatchedSequence> sequences) {
  for (const auto& s : sequences)
    if (running_.insert(s.id).second)
      for (const Stage& stage : stages_) stage.tier->sequence_began(static_cast<int32_t>(running_.size()));
  const bool scan = mostly_prompts(sequences);
  plan_ = plan, scan_ = scan, told_ = false;
  for (Stage& stage : stages_) {
    const uint64_t brought = stage.tier->begin_step(plan, scan);
    if (!predictor_) continue;
    const tier::Need need = stage.need.begin_step(brought);
    told_ = told_ || need != tier::Need::kNothing;
    if (need != tier::Need::kForecasts) stage.tier->unforeseen();
  }
  if (!told_) return;
  sequences_.assign(sequences.begin(), sequences.end());
  begin_iteration();
  if (wants_forecasts()) forecast(-1);
}

void Foresight::begin_iteration() {
  iteration_.clear();
  for (const auto& s : sequences_) iteration_.push_back({s.id.value, s.decode, s.rows});
  predictor_->begin_iteration(iteration_);
}

/// To the predictor, a step that parks is two: its layers so far, and the rest.
void Foresight::park() {
  if (told_) predictor_->end_iteration();
  parked_ = {plan_, scan_, std::exchange(told_, false)};
  std::swap(sequences_, parked_sequences_);
}

void Foresight::resume(int32_t layer) {
  plan_ = parked_.plan, scan_ = parked_.scan, told_ = parked_.told;
  std::swap(sequences_, parked_sequences_);
  for (const Stage& stage : stages_) stage.tier->resume_step(plan_, scan_, layer);
  if (told_) begin_iteration();
}

void Foresight::forecast(int32_t layer) {
  predictor_->forecast(layer, forecast_);
  for (Stage& stage : stages_)
    if (stage.wants_forecasts() && stage.tier->forecast(layer, forecast_)) stage.need.useful();
}

void Foresight::routed(MoeLayerId layer, std::span<const int32_t> ids, std::span<const lanes::RoutedExpert> experts,
                       std::span<const float> uses) {
  MOESTRO_CHECK(told_, "routes of a step in which nothing can be missing");
  wanted_.clear();
  const uint32_t first = layer.value * static_cast<uint32_t>(experts_);
  for (const lanes::RoutedExpert& e : experts)
    wanted_.push_back({first + static_cast<uint32_t>(e.expert), std::min(1.0F, uses[static_cast<size_t>(e.expert)])});
  for (Stage& stage : stages_)
    if (!stage.tier->routed(layer, wanted_)) stage.need.missed();
  count(layer, ids);
  predictor_->routed(static_cast<int32_t>(layer.value), routes_);
}

void Foresight::count(MoeLayerId layer, std::span<const int32_t> ids) {
  counts_.clear();
  first_count_.clear();
  for (const auto& s : sequences_) {
    first_count_.push_back(static_cast<uint32_t>(counts_.size()));
    const auto chosen = ids.subspan(static_cast<size_t>(s.first_row * top_k_), static_cast<size_t>(s.rows * top_k_));
    for (const int32_t expert : chosen) ++row_counts_[static_cast<size_t>(expert)];
    for (const int32_t expert : chosen)
      if (const uint32_t tokens = std::exchange(row_counts_[static_cast<size_t>(expert)], 0); tokens > 0)
        counts_.push_back({layer, ExpertId(static_cast<uint32_t>(expert)), tokens});
  }
  first_count_.push_back(static_cast<uint32_t>(counts_.size()));
  routes_.clear();
  for (size_t i = 0; i < sequences_.size(); ++i)
    routes_.push_back(
        {sequences_[i].id.value, std::span(counts_).subspan(first_count_[i], first_count_[i + 1] - first_count_[i])});
}

/// A router's logits become the probability that a row chooses an expert by their distance from the row's choice: the
/// middle between the last that would be chosen and the first that would not.
void Foresight::guessed(MoeLayerId layer, int32_t layers, std::span<const float> logits) {
  const auto experts = static_cast<size_t>(experts_), k = static_cast<size_t>(top_k_);
  const auto n = static_cast<size_t>(layers);
  if (k >= experts) return;
  guess_cells_.assign(n * experts, 1.0F);  // that no row chooses it
  for (size_t row = 0; row * n * experts < logits.size(); ++row)
    for (size_t l = 0; l < n; ++l) {
      const auto asked = logits.subspan((row * n + l) * experts, experts);
      sorted_.assign(asked.begin(), asked.end());
      std::nth_element(sorted_.begin(), sorted_.begin() + static_cast<std::ptrdiff_t>(k), sorted_.end(),
                       std::greater<>());
      const float first_out = sorted_[k];
      const float last_in = *std::min_element(sorted_.begin(), sorted_.begin() + static_cast<std::ptrdiff_t>(k));
      const float middle = 0.5F * (first_out + last_in);
      for (size_t e = 0; e < experts; ++e)
        guess_cells_[l * experts + e] *= 1.0F - 1.0F / (1.0F + std::exp(middle - asked[e]));
    }
  guesses_.clear();
  for (size_t l = 0; l < n; ++l) {
    const auto row = std::span(guess_cells_).subspan(l * experts, experts);
    for (float& p : row) p = std::isfinite(p) ? 1.0F - p : 0.0F;
    guesses_.push_back({static_cast<int32_t>(layer.value) + 1 + static_cast<int32_t>(l), row});
  }
  predictor_->guessed(static_cast<int32_t>(layer.value), guesses_);
}

void Foresight::foresee(MoeLayerId layer) {
  if (wants_forecasts()) forecast(static_cast<int32_t>(layer.value));
}

void Foresight::end_step() {
  if (std::exchange(told_, false)) predictor_->end_iteration();
  draw_copies();
}

void Foresight::abandon() {
  if (std::exchange(told_, false)) predictor_->end_iteration();
  for (const Stage& stage : stages_) stage.tier->abandon();
  draw_copies();
}

void Foresight::forget(SequenceId sequence) {
  running_.erase(sequence);
  if (predictor_) predictor_->end_sequence(sequence.value);
}

// --- the timeline ---

tier::Key Foresight::key_of(int32_t model_layer, int32_t expert) const {
  const auto layer = std::ranges::lower_bound(model_layers_, model_layer) - model_layers_.begin();
  return static_cast<tier::Key>(layer * experts_ + expert);
}

lanes::Lateness Foresight::lateness(int32_t layer, int32_t expert) {
  const ExpertTier::Late late = stages_.front().tier->why_late(key_of(layer, expert));
  return {late.from_drive ? lanes::Lateness::From::kDrive : lanes::Lateness::From::kDram, late.cause};
}

void Foresight::draw_copies() {
  copied_.clear();
  stages_.front().tier->take_copied(copied_);
  if (timeline_ == nullptr) return;
  const auto experts = static_cast<uint32_t>(experts_), keys = static_cast<uint32_t>(layers_) * experts;
  for (const Copied& c : copied_) {
    if (c.dense_layer >= 0) {
      timeline_->transfer({.layer = c.dense_layer,
                           .bytes = c.dense_bytes,
                           .kind = lanes::TaskKind::kWeightRead,
                           .begin = c.begin,
                           .end = c.end});
      continue;
    }
    timeline_->transfer({.lane = c.drive ? lanes::Lane::kStoreRead : lanes::Lane::kHostToDevice,
                         .layer = model_layers_[c.key % keys / experts],  // of either copy
                         .expert = static_cast<int32_t>(c.key % experts),
                         .demand = c.demand,
                         .copy = c.copy,
                         .begin = c.begin,
                         .end = c.end});
  }
}

}  // namespace moestro::device
