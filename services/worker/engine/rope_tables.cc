#include "services/worker/engine/rope_tables.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace moestro::engine {
namespace {

using model::RopeSpec;

/// base^(-2j/dim) in f32, as the reference does: the rounding is visible at far positions.
std::vector<float> plain_frequencies(double base, int64_t dim) {
  std::vector<float> inv(static_cast<size_t>(dim / 2));
  for (size_t j = 0; j < inv.size(); ++j) {
    const float exponent = static_cast<float>(2 * j) / static_cast<float>(dim);
    inv[j] = 1.0f / std::pow(static_cast<float>(base), exponent);
  }
  return inv;
}

double dynamic_base(const RopeSpec& rope, int64_t length) {
  const auto original = static_cast<double>(rope.original_max_position), dim = static_cast<double>(rope.rotary_dim);
  const double reached = std::max(static_cast<double>(length), original);
  return rope.theta * std::pow(rope.factor * reached / original - (rope.factor - 1), dim / (dim - 2));
}

/// The component that turns `rotations` times over the original context.
double correction_dim(const RopeSpec& rope, double rotations) {
  return static_cast<double>(rope.rotary_dim) *
         std::log(static_cast<double>(rope.original_max_position) / (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(rope.theta));
}

void scale_yarn(const RopeSpec& rope, std::vector<float>& inv) {
  double low = correction_dim(rope, rope.beta_fast), high = correction_dim(rope, rope.beta_slow);
  if (rope.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(rope.rotary_dim - 1));
  if (low == high) high += 0.001;
  for (size_t j = 0; j < inv.size(); ++j) {
    const auto ramp = static_cast<float>(std::clamp((static_cast<double>(j) - low) / (high - low), 0.0, 1.0));
    const float keep = 1.0f - ramp;
    inv[j] = inv[j] / static_cast<float>(rope.factor) * (1.0f - keep) + inv[j] * keep;
  }
}

void scale_llama3(const RopeSpec& rope, std::vector<float>& inv) {
  const auto original = static_cast<double>(rope.original_max_position);
  const double long_wave = original / rope.low_freq_factor, short_wave = original / rope.high_freq_factor;
  for (float& f : inv) {
    const double wave = 2 * std::numbers::pi / f;
    if (wave < short_wave) continue;
    const auto scaled = static_cast<float>(f / rope.factor);
    if (wave > long_wave || short_wave == long_wave) {
      f = scaled;
      continue;
    }
    const auto smooth =
        static_cast<float>((original / wave - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor));
    f = (1.0f - smooth) * scaled + smooth * f;
  }
}

/// Of longrope, of an engine whose sequences have up to `length` positions.
bool is_long(const RopeSpec& rope, int64_t length) { return length > rope.original_max_position; }

double mscale_of(double factor, double mscale) { return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0; }

}  // namespace

std::vector<float> inverse_frequencies(const RopeSpec& rope, int64_t length) {
  const bool dynamic = rope.scaling == RopeSpec::Scaling::kDynamic;
  std::vector<float> inv = plain_frequencies(dynamic ? dynamic_base(rope, length) : rope.theta, rope.rotary_dim);
  switch (rope.scaling) {
    case RopeSpec::Scaling::kNone:
    case RopeSpec::Scaling::kDynamic: break;
    case RopeSpec::Scaling::kLinear:
      for (float& f : inv) f /= static_cast<float>(rope.factor);
      break;
    case RopeSpec::Scaling::kYarn: scale_yarn(rope, inv); break;
    case RopeSpec::Scaling::kLlama3: scale_llama3(rope, inv); break;
    case RopeSpec::Scaling::kLongrope: {
      const std::vector<double>& factors = is_long(rope, length) ? rope.long_factors : rope.short_factors;
      for (size_t j = 0; j < inv.size(); ++j) inv[j] /= static_cast<float>(factors[j]);
      break;
    }
  }
  return inv;
}

double attention_factor(const RopeSpec& rope, int64_t length) {
  if (rope.scaling == RopeSpec::Scaling::kLongrope)
    return is_long(rope, length) ? rope.long_mscale : rope.short_mscale;
  if (rope.scaling != RopeSpec::Scaling::kYarn) return 1.0;
  if (rope.attention_factor) return *rope.attention_factor;
  if (rope.mscale.value_or(0) != 0 && rope.mscale_all_dim.value_or(0) != 0)
    return mscale_of(rope.factor, *rope.mscale) / mscale_of(rope.factor, *rope.mscale_all_dim);
  return mscale_of(rope.factor, 1.0);
}

RopeTables::RopeTables(const RopeSpec& rope, int64_t positions)
    : half_(rope.rotary_dim / 2),
      positions_(positions),
      factor_(static_cast<float>(attention_factor(rope, positions))),
      inverse_(inverse_frequencies(rope, rope.scaling == RopeSpec::Scaling::kLongrope ? positions : 1)) {
  cos_.resize(static_cast<size_t>(positions * half_));
  sin_.resize(cos_.size());
  const bool dynamic = rope.scaling == RopeSpec::Scaling::kDynamic;
  std::vector<float> inv = inverse_;
  for (int64_t p = 0; p < positions; ++p) {
    if (dynamic && p + 1 > rope.original_max_position) inv = inverse_frequencies(rope, p + 1);
    for (int64_t j = 0; j < half_; ++j) {
      const float angle = static_cast<float>(p) * inv[static_cast<size_t>(j)];
      cos_[static_cast<size_t>(p * half_ + j)] = std::cos(angle) * factor_;
      sin_[static_cast<size_t>(p * half_ + j)] = std::sin(angle) * factor_;
    }
  }
}

void RopeTables::append(int64_t position, std::vector<float>& cos, std::vector<float>& sin) const {
  if (position < positions_) {
    const auto c = this->cos(position), s = this->sin(position);
    cos.insert(cos.end(), c.begin(), c.end());
    sin.insert(sin.end(), s.begin(), s.end());
    return;
  }
  for (const float f : inverse_) {
    const double angle = static_cast<double>(position) * static_cast<double>(f);
    cos.push_back(static_cast<float>(std::cos(angle)) * factor_);
    sin.push_back(static_cast<float>(std::sin(angle)) * factor_);
  }
}

}  // namespace moestro::engine
