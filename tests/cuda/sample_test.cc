// Tokens drawn on the device are those that the host's sampler draws.

#include "services/worker/engine/sampler.h"
#include "tests/kernels/op_test_data.h"

namespace moestro::kernels::test {
namespace {

class Sample : public CudaTest {};

TEST_F(Sample, GreedyTakesTheLowestOfTheLargestAndNoneWhereOneIsNotFinite) {
  Random random;
  const auto ops = cuda_ops();
  for (const int64_t vocabulary : {1, 33, 512, 3001, 8192, 16389}) {
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

/// Draws from n rows in turn with each of the ways, on both sides. Returns how many differ.
class Sides {
 public:
  int differ(const std::vector<float>& logits, int64_t n, const Way& way, uint64_t seed) {
    const auto vocabulary = static_cast<int64_t>(logits.size()) / n;
    std::vector<MoestroCudaSampling> how;
    for (int64_t t = 0; t < n; ++t)
      how.push_back(
          {way.temperature, way.top_k, way.top_p, way.min_p, seed, static_cast<uint32_t>(t % 3), position_++});
    std::vector<int32_t> got(static_cast<size_t>(n), -7);
    ops_->sample(logits.data(), n, vocabulary, how, got.data());
    int apart = 0;
    for (int64_t t = 0; t < n; ++t) {
      const MoestroCudaSampling& h = how[static_cast<size_t>(t)];
      Sampling s;
      s.temperature = h.temperature, s.top_k = h.top_k, s.top_p = h.top_p, s.min_p = h.min_p, s.seed = h.seed,
      s.choice = h.choice;
      const std::span<const float> row(logits.data() + t * vocabulary, static_cast<size_t>(vocabulary));
      const int32_t want = host_.sample(row, s, h.position);
      apart += got[static_cast<size_t>(t)] != want;
      if (kEmulated)
        EXPECT_EQ(got[static_cast<size_t>(t)], want)
            << "vocabulary " << vocabulary << " temperature " << way.temperature << " top_k " << way.top_k << " top_p "
            << way.top_p << " min_p " << way.min_p << ", seed " << test::seed();
    }
    return apart;
  }

 private:
  std::unique_ptr<HostFacingOps> ops_ = cuda_ops();
  std::unique_ptr<Ops> host_ops_ = make_cpu_ops({.threads = 1, .deterministic = true, .isa = best_isa()});
  engine::Sampler host_{*host_ops_};
  int32_t position_ = 0;
};

constexpr const char* kApart =
    "a device's exponentials differ from the host's in their last bits, which decides where a draw meets an edge";

TEST_F(Sample, DrawsWhatTheHostDraws) {
  Random random;
  Sides sides;
  int apart = 0;
  for (const int64_t vocabulary : {2, 300, 1500}) {
    for (const Way& way :
         {Way{1, 0, 1, 0}, Way{0.7f, 5, 1, 0}, Way{1.3f, 0, 0.8f, 0}, Way{0.3f, 40, 0.95f, 0.02f}, Way{2, 0, 1, 0.1f},
          Way{1, 4000, 0.0f, 0}, Way{1, 1, 1, 0}, Way{0, 0, 1, 0}, Way{1, 3, 1, 0.9f}, Way{1e-38f, 0, 1, 0}}) {
      auto logits = random.normal(8 * vocabulary, 3.0f);
      for (int64_t i = 0; i < vocabulary; ++i)  // few different values, so that ids decide
        if (i % 4 != 0) logits[static_cast<size_t>(i)] = static_cast<float>(i % 3);
      apart += sides.differ(logits, 8, way, random.engine()() * uint64_t{0x100000001});
    }
  }
  EXPECT_LE(apart, 2) << "of 240: " << kApart;
}

TEST_F(Sample, DrawsFromLongRows) {
  Random random;
  Sides sides;
  int apart = 0;
  for (const int64_t vocabulary : {8192, 20001})  // one slice, and some: the second row begins anywhere
    for (const Way& way : {Way{1, 0, 1, 0}, Way{1, 0, 1, 0.01f}, Way{0.8f, 50, 1, 0}, Way{1, 0, 0.95f, 0},
                           Way{0.6f, 1000, 0.9f, 0.001f}, Way{1e-38f, 7000, 0.9f, 0}, Way{0.1f, 9000, 1, 0}})
      apart += sides.differ(random.normal(2 * vocabulary, 3.0f), 2, way, random.engine()());
  EXPECT_LE(apart, 1) << "of 28: " << kApart;
}

TEST_F(Sample, DrawsFromRowsWhoseCandidatesAreTooManyForAList) {
  Random random;
  Sides sides;
  const int64_t vocabulary = 20000;
  int apart = 0;
  // Cut by weight; by count; by both; by neither, as most weights are 0; and with high temperatures.
  for (const Way& way : {Way{1, 0, 0.9f, 0}, Way{1, 9500, 1, 0.1f}, Way{1, 9500, 0.8f, 0}, Way{0.12f, 15000, 1, 0},
                         Way{50, 9500, 1, 0.9f}, Way{20, 0, 0.7f, 0}, Way{1e30f, 0, 0.5f, 0}}) {
    apart += sides.differ(random.normal(vocabulary, 1.0f), 1, way, random.engine()());
    apart += sides.differ(std::vector<float>(static_cast<size_t>(vocabulary), -2.5f), 1, way, random.engine()());
  }
  EXPECT_LE(apart, 1) << "of 14: " << kApart;
}

}  // namespace
}  // namespace moestro::kernels::test
