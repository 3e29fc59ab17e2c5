#include "store/pack/random_weights.h"

#include <xxhash.h>

#include <algorithm>
#include <boost/math/special_functions/erf.hpp>
#include <cmath>

#include "common/float16.h"

namespace moestro::store {
namespace {

constexpr double kWeightDeviation = 0.02, kEmbeddingDeviation = 1.0;
constexpr uint64_t kNumbersAtOnce = 4;  // 16 bits each of a 64-bit hash

}  // namespace

RandomWeights::Quantiles RandomWeights::quantiles(double deviation) {
  Quantiles values(kParts);
  for (uint32_t i = kParts / 2; i < kParts; ++i) {
    const double upper = (2.0 * i + 1.0) / kParts - 1.0;  // twice the probability above one half
    const auto value = static_cast<float>(deviation * std::sqrt(2.0) * boost::math::erf_inv(upper));
    values[i] = f32_to_bf16(value);
    values[kParts - 1 - i] = f32_to_bf16(-value);
  }
  return values;
}

RandomWeights::RandomWeights(const model::ModelDescription& model, uint64_t seed)
    : seed_(seed), weight_(quantiles(kWeightDeviation)), embedding_(quantiles(kEmbeddingDeviation)) {
  for (const model::DenseTensor& t : model.dense) {
    if (t.name == "embed.weight") ones_.emplace(t.source_name, false);
    if (t.shape.size() == 1 && t.name.ends_with("norm.weight")) ones_.emplace(t.source_name, true);
  }
}

void RandomWeights::fill(const std::string& tensor, uint64_t first, std::span<uint16_t> out) const {
  const auto special = ones_.find(tensor);
  if (special != ones_.end() && special->second) {
    std::fill(out.begin(), out.end(), f32_to_bf16(1.0f));
    return;
  }
  const uint16_t* values = (special == ones_.end() ? weight_ : embedding_).data();
  const uint64_t key = XXH3_64bits_withSeed(tensor.data(), tensor.size(), seed_);
  const auto bits_of = [key](uint64_t counter) { return XXH3_64bits_withSeed(&counter, sizeof counter, key); };
  size_t i = 0;
  for (; i < out.size() && (first + i) % kNumbersAtOnce != 0; ++i) {
    const uint64_t at = first + i;
    out[i] = values[(bits_of(at / kNumbersAtOnce) >> (at % kNumbersAtOnce * 16)) & 0xffff];
  }
  for (; i + kNumbersAtOnce <= out.size(); i += kNumbersAtOnce) {
    const uint64_t bits = bits_of((first + i) / kNumbersAtOnce);
    out[i] = values[bits & 0xffff];
    out[i + 1] = values[(bits >> 16) & 0xffff];
    out[i + 2] = values[(bits >> 32) & 0xffff];
    out[i + 3] = values[bits >> 48];
  }
  const uint64_t bits = i < out.size() ? bits_of((first + i) / kNumbersAtOnce) : 0;
  for (unsigned shift = 0; i < out.size(); ++i, shift += 16) out[i] = values[(bits >> shift) & 0xffff];
}

}  // namespace moestro::store
