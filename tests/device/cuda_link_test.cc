// Chunks arrive where they belong on a CUDA device, from wherever they lie.

#include "tests/device/cuda_link_fixture.h"

namespace moestro::device::testing {
namespace {

class CudaLinkTest : public CudaLinkFixture {
 protected:
  void expect_all_arrive() {
    route(0, {0, 1, 2, 3});
    for (tier::Key key = 0; key < kSlots; ++key) {
      const std::byte* slot = wait_for(key);
      ASSERT_NE(slot, nullptr) << link_->failure().message();
      EXPECT_EQ(read_back(slot), bytes_of(key)) << key;
    }
    std::vector<Copied> ended;
    {
      const std::lock_guard lock(link_->mutex());
      link_->take_ended(ended);
      EXPECT_TRUE(tier_->idle());
      EXPECT_EQ(tier_->counters().moved_bytes, kSlots * kBytes);
    }
    ASSERT_EQ(ended.size(), kSlots);
    for (const Copied& copy : ended) {
      EXPECT_TRUE(copy.demand);
      EXPECT_LE(copy.begin, copy.end);
    }
  }
};

TEST_F(CudaLinkTest, BytesLieInTheirSlots) {
  make();
  EXPECT_EQ(registration_->registered_bytes(), kKeys * kBytes);
  expect_all_arrive();
}

TEST_F(CudaLinkTest, MemoryThatIsNotRegisteredIsStaged) {
  make(ArenaRegistration::kPiece, 0);
  EXPECT_EQ(registration_->registered_bytes(), 0u);
  expect_all_arrive();
}

TEST_F(CudaLinkTest, AChunkMayLieInSeveralPiecesAndBehindTheLast) {
  make(3 * 4096 + 4096 * 7, 2 * kBytes + 4096);
  expect_all_arrive();
}

}  // namespace
}  // namespace moestro::device::testing
