#include "common/prediction/logistic.h"

#include <algorithm>
#include <cmath>

namespace moestro::prediction {
namespace {

constexpr size_t kMax = Logistic::kFeaturesMax;
constexpr uint64_t kEager = 1024;  ///< examples up to which no step waits
constexpr int32_t kTogether = 4;
constexpr double kStepMax = 1;  ///< of one weight: a few odd examples at the start must not throw it far

/// Solves a x = b for a symmetric positive definite `a` of n rows, by its Cholesky factor; false if it is not.
bool solve(std::array<double, kMax * kMax> a, size_t n, Logistic::Weights& b) {
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j <= i; ++j) {
      double sum = a[i * kMax + j];
      for (size_t k = 0; k < j; ++k) sum -= a[i * kMax + k] * a[j * kMax + k];
      if (i == j && !(sum > 1e-12)) return false;
      a[i * kMax + j] = i == j ? std::sqrt(sum) : sum / a[j * kMax + j];
    }
  for (size_t i = 0; i < n; ++i) {
    for (size_t k = 0; k < i; ++k) b[i] -= a[i * kMax + k] * b[k];
    b[i] /= a[i * kMax + i];
  }
  for (size_t i = n; i-- > 0;) {
    for (size_t k = i + 1; k < n; ++k) b[i] -= a[k * kMax + i] * b[k];
    b[i] /= a[i * kMax + i];
  }
  return true;
}

}  // namespace

Logistic::Logistic(size_t features, const Weights& start, double trust)
    : features_(std::min(features, kMax)), weights_(start), trust_(trust) {}

void Logistic::note(std::span<const float> x, double p, bool came) {
  const double error = (came ? 1.0 : 0.0) - p, curve = std::max(p * (1 - p), 1e-4);
  for (size_t i = 0; i < features_; ++i) {
    gradient_[i] += error * static_cast<double>(x[i]);
    const double xi = curve * static_cast<double>(x[i]);
    for (size_t j = 0; j <= i; ++j) curvature_[i * kMax + j] += xi * static_cast<double>(x[j]);
  }
  ++examples_;
}

void Logistic::step(double memory) {
  kept_ *= memory;
  if (++waiting_ < kTogether && examples_ > kEager) return;
  std::array<double, kMax * kMax> held = curvature_;
  for (size_t i = 0; i < features_; ++i) held[i * kMax + i] += trust_;
  Weights step = gradient_;
  if (solve(held, features_, step))
    for (size_t i = 0; i < features_; ++i)
      if (std::isfinite(step[i])) weights_[i] += std::clamp(step[i], -kStepMax, kStepMax);
  gradient_.fill(0);
  for (double& c : curvature_) c *= kept_;
  kept_ = 1, waiting_ = 0;
}

}  // namespace moestro::prediction
