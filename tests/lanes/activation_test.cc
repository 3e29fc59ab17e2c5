#include "common/activation/activation_matrix.h"

#include <gtest/gtest.h>

namespace moestro::activation {
namespace {

TEST(ActivationMatrix, CountsAndRefusesWhatIsOutside) {
  ActivationMatrix m(2, 3);
  EXPECT_TRUE(m.add(MoeLayerId(1), ExpertId(2), 5));
  EXPECT_TRUE(m.add(MoeLayerId(1), ExpertId(2), 1));
  EXPECT_FALSE(m.add(MoeLayerId(2), ExpertId(0), 1));
  EXPECT_FALSE(m.add(MoeLayerId(0), ExpertId(3), 1));
  EXPECT_EQ(m.row(MoeLayerId(1))[2], 6u);
  EXPECT_EQ(m.total(), 6u);
  m.clear();
  EXPECT_EQ(m.total(), 0u);
}

TEST(CountRoutes, OneSequenceOfAStep) {
  // Two layers, three tokens, top-2; the sequence has tokens 1 and 2.
  const std::vector<int32_t> routes = {0, 1, 2, 3, 3, 0, /*layer 1*/ 1, 0, 1, 2, 2, 1};
  std::vector<uint32_t> scratch;
  std::vector<ActivationCount> counts;
  count_routes(routes, 2, 3, 2, 1, 3, scratch, counts);
  const std::vector<ActivationCount> expected = {{MoeLayerId(0), ExpertId(0), 1}, {MoeLayerId(0), ExpertId(2), 1},
                                                 {MoeLayerId(0), ExpertId(3), 2}, {MoeLayerId(1), ExpertId(1), 2},
                                                 {MoeLayerId(1), ExpertId(2), 2}};
  EXPECT_EQ(counts, expected);
  for (const uint32_t s : scratch) EXPECT_EQ(s, 0u);
}

}  // namespace
}  // namespace moestro::activation
