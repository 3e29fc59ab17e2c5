#include "services/worker/engine/position_tables.h"

#include <algorithm>
#include <cmath>

namespace moestro::engine {

int64_t bias_bucket(const model::RelativeBias& bias, int64_t distance, bool both_ways) {
  const int64_t buckets = both_ways ? bias.buckets / 2 : bias.buckets, exact = buckets / 2;
  const int64_t first = both_ways && distance > 0 ? buckets : 0;
  const int64_t away = both_ways ? std::abs(distance) : std::max<int64_t>(0, -distance);
  if (away < exact) return first + away;
  const auto whole = static_cast<double>(exact);
  const auto span = static_cast<float>(std::log(static_cast<double>(bias.reach) / whole));
  const float share = std::log(static_cast<float>(away) / static_cast<float>(exact)) / span;
  const auto beyond = static_cast<int64_t>(share * static_cast<float>(buckets - exact));
  return first + std::min(exact + beyond, buckets - 1);
}

std::vector<float> expand_bias(const model::RelativeBias& bias, std::span<const float> table, int64_t heads,
                               bool both_ways) {
  std::vector<float> expanded;
  expanded.reserve(static_cast<size_t>(heads * (2 * bias.reach + 1)));
  for (int64_t head = 0; head < heads; ++head)
    for (int64_t distance = -bias.reach; distance <= bias.reach; ++distance)
      expanded.push_back(table[static_cast<size_t>(bias_bucket(bias, distance, both_ways) * heads + head)]);
  return expanded;
}

Sinusoids::Sinusoids(const model::ModelSpec& spec) {
  if (!spec.sinusoidal_positions) return;
  pad_ = *spec.pad_id;
  const int64_t half = spec.hidden / 2;
  const auto step = static_cast<float>(std::log(10000.0) / static_cast<double>(half - 1));
  for (int64_t i = 0; i < half; ++i) frequencies_.push_back(std::exp(static_cast<float>(i) * -step));
}

void Sinusoids::append(std::span<const int32_t> ids, std::span<const int32_t> positions, bool sources,
                       std::vector<float>& to) const {
  int64_t uncounted = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (positions[i] == 0) uncounted = 0;  // a source is whole in its step
    if (ids[i] != pad_) {
      append(positions[i] - uncounted, to);
    } else {
      to.insert(to.end(), 2 * frequencies_.size(), 0.0F);
      uncounted += sources ? 1 : 0;
    }
  }
}

void Sinusoids::append(int64_t position, std::vector<float>& to) const {
  const auto counted = static_cast<float>(position + pad_ + 1);
  for (const float frequency : frequencies_) to.push_back(std::sin(counted * frequency));
  for (const float frequency : frequencies_) to.push_back(std::cos(counted * frequency));
}

}  // namespace moestro::engine
