// Chunks arrive where they belong, at the link's speed.

#include "services/worker/device/emulated_link.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "common/policy/make_policy.h"

namespace moestro::device {
namespace {

constexpr uint64_t kBytes = 256 * 1024;

class EmulatedLinkTest : public ::testing::Test {
 protected:
  EmulatedLinkTest() {
    for (size_t key = 0; key < host_.size(); ++key) host_[key].assign(kBytes, static_cast<std::byte>(key + 1));
  }

  /// Copies keys 0 to `copies` - 1 of layer 0 and says how long it took.
  Nanos copy(int copies, const LinkOptions& options) {
    auto policy = policy::make_policy("lru", 8);
    tier::DeviceTier tier({.layers = 2,
                           .experts = 4,
                           .slots = 4,
                           .expert_bytes = kBytes,
                           .chunk_bytes = kBytes / 4,
                           .link_bytes_per_s = static_cast<double>(options.bytes_per_s),
                           .link_latency = options.latency},
                          std::move(*policy));
    EmulatedLink link(tier, slots_, options, clock_, 8);
    const Nanos begin = clock_.now();
    {
      std::unique_lock lock(link.mutex());
      tier.begin_step(begin, false);
      std::vector<tier::DeviceTier::Wanted> wanted;
      for (tier::Key key = 0; key < static_cast<tier::Key>(copies); ++key) {
        wanted.push_back({key});
        link.set_source(key, host_[key].data(), host_[key].size());
      }
      std::vector<tier::Found> found(wanted.size());
      tier.routed(begin, 0, wanted, found);
      for (const tier::Found f : found) EXPECT_EQ(f, tier::Found::kMiss);
    }
    link.wake();
    std::unique_lock lock(link.mutex());
    uint64_t seen = link.ends();
    while (link.ends() < static_cast<uint64_t>(copies))
      link.wait_for_end(lock, seen, clock_.now() + std::chrono::seconds(20));
    const Nanos took = clock_.now() - begin;
    std::vector<Copied> ended;
    link.take_ended(ended);
    for (size_t i = 1; i < ended.size(); ++i) EXPECT_LE(ended[i - 1].end, ended[i].begin) << "one at a time";
    std::erase_if(ended, [](const Copied& c) { return !c.whole; });
    EXPECT_EQ(ended.size(), static_cast<size_t>(copies));
    for (size_t i = 0; i < ended.size(); ++i) {
      EXPECT_TRUE(ended[i].demand);
      EXPECT_LE(begin, ended[i].begin);
      const auto slot = tier.slot_of(ended[i].key);
      EXPECT_TRUE(slot && std::memcmp(slots_.slot(*slot), host_[ended[i].key].data(), kBytes) == 0);
    }
    return took;
  }

  SteadyClock clock_;
  std::vector<std::vector<std::byte>> host_{8};
  SlotMemory slots_ = std::move(*SlotMemory::create(4, kBytes));
};

TEST_F(EmulatedLinkTest, BytesLieInTheirSlots) { copy(4, {.bytes_per_s = 1ull << 40, .poison_slots = true}); }

TEST_F(EmulatedLinkTest, ALinkIsNeverFasterThanItIs) {
  // 1 MiB at 32 MiB/s.
  EXPECT_GE(copy(4, {.bytes_per_s = 32 << 20}), std::chrono::microseconds(31250));
  // And 5 ms before each copy.
  EXPECT_GE(copy(4, {.bytes_per_s = 32 << 20, .latency = std::chrono::milliseconds(5)}),
            std::chrono::microseconds(51250));
}

}  // namespace
}  // namespace moestro::device
