#pragma once
// A CUDA device whose copies do not come before the gate is open, and what has been queued on it.

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/device/cuda_link_fixture.h"
#include "tests/device/wait_by_asking.h"

namespace moestro::device::testing {

class GatedLinkFixture : public CudaLinkFixture {
 protected:
  GatedLinkFixture() {
    gate_open = false;
    copies.clear();
    cuda_ = emulated::functions();
    cuda_.query_event = query;
    cuda_.wait_event = wait_by_asking<query>;
    cuda_.copy_in = [](void* to, const void* from, uint64_t bytes, MoestroCudaStream stream) {
      const std::lock_guard lock(copies_mutex);
      copies.push_back(static_cast<const std::byte*>(from));
      return emulated::functions().copy_in(to, from, bytes, stream);
    };
    device_.functions = &cuda_;
    emulated::make_streams_late(3);
  }
  ~GatedLinkFixture() override { emulated::make_streams_late(0); }

  static MoestroCudaResult query(MoestroCudaEvent event) {
    return gate_open ? emulated::functions().query_event(event) : MOESTRO_CUDA_NOT_READY;
  }
  /// The sources of the copies that have been queued, once there are `count`.
  std::vector<const std::byte*> queued(size_t count) {
    for (const Nanos until = clock_.now() + std::chrono::seconds(60); clock_.now() < until; std::this_thread::yield()) {
      const std::lock_guard lock(copies_mutex);
      if (copies.size() >= count) return copies;
    }
    return {};
  }

  inline static std::atomic<bool> gate_open;
  inline static std::mutex copies_mutex;
  inline static std::vector<const std::byte*> copies;
  MoestroCudaFunctions cuda_;
};

}  // namespace moestro::device::testing
