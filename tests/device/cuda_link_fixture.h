#pragma once
// A tier of eight experts and a CUDA link that carries them into four slots.

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "common/policy/lru_policy.h"
#include "kernels/cuda/emulated/functions.h"
#include "kernels/cuda/emulator/streams.h"
#include "services/worker/device/cuda_link.h"

namespace moestro::device::testing {

namespace emulated = kernels::cuda::emulated;

class CudaLinkFixture : public ::testing::Test {
 protected:
  static constexpr uint64_t kBytes = 256 * 1024, kChunk = kBytes / 4;
  static constexpr uint32_t kKeys = 8, kSlots = 4;

  CudaLinkFixture() : arena_(kKeys * kBytes) {
    for (uint32_t key = 0; key < kKeys; ++key) std::memset(host(key), static_cast<int>(key + 1), kBytes);
    device_.functions = &emulated::functions();
    device_.bytes = kSlots * kBytes;
    device_.chunk_bytes = kChunk;
  }
  ~CudaLinkFixture() override { end(); }

  std::byte* host(tier::Key key) { return arena_.data() + key * kBytes; }
  /// `piece`: of the registration; `registered`: bytes of the arena that are offered to it. `layer_bytes`: of dense
  /// weights that take turns. `kv`: it carries KV too.
  void make(uint64_t piece = ArenaRegistration::kPiece, uint64_t registered = kKeys * kBytes,
            uint64_t layer_bytes = 0, bool kv = false) {
    ASSERT_EQ(cuda().make_stream(0, &device_.compute), 0);
    tier_ = std::make_unique<tier::DeviceTier>(tier::TierOptions{.layers = 2,
                                                                 .experts = 4,
                                                                 .slots = kSlots,
                                                                 .expert_bytes = kBytes,
                                                                 .chunk_bytes = device_.chunk_bytes,
                                                                 .chunks_given = CudaLink::kUnderWay},
                                               std::make_unique<policy::LruPolicy>());
    slots_ = std::make_unique<SlotMemory>(*SlotMemory::on_device(device_, kSlots, kBytes));
    registration_ =
        std::make_unique<ArenaRegistration>(device_, std::span<const std::byte>(arena_).first(registered), true, piece);
    auto link = CudaLink::create(*tier_, *slots_, *registration_, device_,
                                 {.keys = kKeys, .slots = kSlots, .poison_slots = true, .kv = kv,
                                  .layer_bytes = layer_bytes},
                                 clock_);
    ASSERT_TRUE(link.is_ok()) << link.status().message();
    link_ = std::move(*link);
  }
  void end() {
    link_.reset(), registration_.reset(), slots_.reset(), tier_.reset();
    if (device_.compute != nullptr) (void)cuda().end_stream(std::exchange(device_.compute, nullptr));
  }
  const MoestroCudaFunctions& cuda() const { return *device_.functions; }

  /// A layer wants these.
  void route(int32_t layer, std::initializer_list<tier::Key> keys) {
    std::vector<tier::DeviceTier::Wanted> wanted;
    std::vector<tier::Found> found(keys.size());
    {
      const std::lock_guard lock(link_->mutex());
      for (const tier::Key key : keys) {
        wanted.push_back({key});
        link_->set_source(key, host(key), kBytes);
      }
      tier_->routed(clock_.now(), layer, wanted, found);
    }
    link_->wake();
  }
  /// The slot of a key, once it is whole; null if the link fails before.
  std::byte* wait_for(tier::Key key) {
    std::unique_lock lock(link_->mutex());
    uint64_t seen = link_->ends();
    while (link_->failure().is_ok()) {
      if (const auto slot = tier_->slot_of(key)) return slots_->slot(*slot);
      link_->wait_for_end(lock, seen, clock_.now() + std::chrono::seconds(60));
    }
    return nullptr;
  }
  void release(tier::Key key) {
    {
      const std::lock_guard lock(link_->mutex());
      link_->released(*tier_->slot_of(key));
      tier_->released(clock_.now(), key);
    }
    link_->wake();
  }
  /// What lies at `at` on the device, once all that was queued for computing has ended.
  std::vector<std::byte> read_back(const void* at, uint64_t bytes = kBytes) {
    std::vector<std::byte> copy(bytes);
    EXPECT_EQ(cuda().copy_out(copy.data(), at, bytes, device_.compute), 0);
    EXPECT_EQ(cuda().wait_stream(device_.compute), 0);
    return copy;
  }
  std::vector<std::byte> bytes_of(tier::Key key) { return {host(key), host(key) + kBytes}; }

  SteadyClock clock_;
  std::vector<std::byte> arena_;
  CudaSlots device_;
  std::unique_ptr<tier::DeviceTier> tier_;
  std::unique_ptr<SlotMemory> slots_;
  std::unique_ptr<ArenaRegistration> registration_;
  std::unique_ptr<CudaLink> link_;
};

}  // namespace moestro::device::testing
