// Tokens drawn on the device are those that the host's sampler draws.

#include "services/worker/engine/sampler.h"

#include "tests/kernels/op_test_data.h"

namespace moestro::kernels::test {
namespace {

class Sample : public CudaTest {};

TEST_F(Sample, GreedyTakesTheLowestOfTheLargestAndNoneWhereOneIsNotFinite) {
  Random random;
  const auto ops = cuda_ops();
  for (const int64_t vocabulary : {1, 33, 512, 3001}) {
    const int64_t n = 6;
    auto logits = random.normal(n * vocabulary);
    for (int64_t i = 0; i < vocabulary; i += 3)
      logits[static_cast<size_t>(vocabulary + i)] = 9.0f;  // many that are equal
    for (int64_t i = 0; i < vocabulary; ++i)
      logits[static_cast<size_t>(2 * vocabulary + i)] = i % 2 == 0 ? -0.0f : 0.0f;
    const int64_t at = random.below(vocabulary);
    logits[static_cast<size_t>(3 * vocabulary + at)] = NAN;
    logits[static_cast<size_t>(4 * vocabulary + at)] = -INFINITY;
    std::vector<int32_t> ids(6, -7);
    ops->sample(logits.data(), n, vocabulary, {}, ids.data());
    for (int64_t t = 0; t < n; ++t) {
      const auto row = logits.begin() + t * vocabulary;
      const auto want = static_cast<int32_t>(std::max_element(row, row + vocabulary) - row);
      EXPECT_EQ(ids[static_cast<size_t>(t)], t == 3 || t == 4 ? -1 : want) << "row " << t << " of " << vocabulary;
    }
  }
}

struct Way {
  float temperature;
  int32_t top_k;
  float top_p, min_p;
};

TEST_F(Sample, DrawsWhatTheHostDraws) {
  Random random;
  const auto ops = cuda_ops();
  const auto host_ops = make_cpu_ops({.threads = 1, .deterministic = true, .isa = best_isa()});
  engine::Sampler host(*host_ops);
  int32_t position = 0;
  int apart = 0;
  for (const int64_t vocabulary : {2, 300, 1500}) {
    for (const Way& way :
         {Way{1, 0, 1, 0}, Way{0.7f, 5, 1, 0}, Way{1.3f, 0, 0.8f, 0}, Way{0.3f, 40, 0.95f, 0.02f}, Way{2, 0, 1, 0.1f},
          Way{1, 4000, 0.0f, 0}, Way{1, 1, 1, 0}, Way{0, 0, 1, 0}, Way{1, 3, 1, 0.9f}, Way{1e-38f, 0, 1, 0}}) {
      const int64_t n = 8;
      auto logits = random.normal(n * vocabulary, 3.0f);
      for (int64_t i = 0; i < vocabulary; ++i)  // few different values, so that ids decide
        if (i % 4 != 0) logits[static_cast<size_t>(i)] = static_cast<float>(i % 3);
      std::vector<MoestroCudaSampling> how;
      std::vector<int32_t> got(8, -7);
      const uint64_t seed = random.engine()() * uint64_t{0x100000001};
      for (int64_t t = 0; t < n; ++t)
        how.push_back(
            {way.temperature, way.top_k, way.top_p, way.min_p, seed, static_cast<uint32_t>(t % 3), position++});
      ops->sample(logits.data(), n, vocabulary, how, got.data());
      for (int64_t t = 0; t < n; ++t) {
        const MoestroCudaSampling& h = how[static_cast<size_t>(t)];
        Sampling s;
        s.temperature = h.temperature, s.top_k = h.top_k, s.top_p = h.top_p, s.min_p = h.min_p, s.seed = h.seed,
        s.choice = h.choice;
        const std::span<const float> row(logits.data() + t * vocabulary, static_cast<size_t>(vocabulary));
        const int32_t want = host.sample(row, s, h.position);
        apart += got[static_cast<size_t>(t)] != want;
        if (kEmulated)
          ASSERT_EQ(got[static_cast<size_t>(t)], want)
              << "vocabulary " << vocabulary << " temperature " << way.temperature << " top_k " << way.top_k
              << " top_p " << way.top_p << " min_p " << way.min_p << ", seed " << test::seed();
      }
    }
  }
  EXPECT_LE(apart, 2) << "of 240: a device's exponentials differ from the host's in their last bits, which decides "
                         "where a draw meets an edge";
}

}  // namespace
}  // namespace moestro::kernels::test
