#pragma once
// kernels/cuda/hopper.h where threads are fibers. Descriptors are decoded as PTX's manual has them ("Matrix
// Descriptor", "Strides" and "Swizzling modes" of wgmma), so that a wrong one gives wrong numbers.

#include <cstdint>
#include <cstring>
#include <vector>

#include "common/check.h"
#include "kernels/cuda/emulator/emulator.h"

namespace moestro::kernels::cuda {

/// See hopper_map.h.
struct TensorMap {
  uint64_t first = 0, sizes[3] = {}, strides[2] = {};
};

namespace emulated {

/// Of the emulated device; 0, the default: it is not a Hopper.
inline int& hopper_multiprocessors() {
  static int count = 0;
  return count;
}

struct BarrierState {
  uint16_t arrivals, left;
  uint32_t phase : 1, bytes : 31;
};
inline BarrierState barrier_state(const uint64_t* at) {
  return unpacked<BarrierState>(*at);
}
template <typename Change>
void change_barrier(uint64_t* at, Change change) {
  BarrierState state = barrier_state(at);
  change(state);
  if (state.left == 0 && state.bytes == 0) {
    state.phase ^= 1u;
    state.left = state.arrivals;
  }
  *at = packed(state);
}

struct PendingProduct {
  float* d;
  int columns;
  uint64_t a, b;
  bool adds;
};
/// Of a thread: groups, oldest first; the last is not ended yet.
inline std::vector<std::vector<PendingProduct>>& product_groups() {
  static std::vector<std::vector<std::vector<PendingProduct>>> of_threads(1024, {{}});
  return of_threads[thread()];
}

/// Element (row, column) of a matrix of 16 columns. Swizzling exchanges address bits 4-6 by bits 7-9.
inline float element(uint64_t descriptor, int row, int column) {
  const auto field = [&](int bit) { return static_cast<uint32_t>(descriptor >> bit & 0x3fff) << 4; };
  MOESTRO_CHECK(descriptor >> 62 == 1 && (descriptor >> 49 & 7) == 0, "a descriptor of swizzled rows");
  const uint32_t at = field(0) + static_cast<uint32_t>(row / 8) * field(32) + static_cast<uint32_t>(row % 8) * 128 +
                      static_cast<uint32_t>(column) * 2;
  uint16_t bits;
  std::memcpy(&bits, shared() + (at ^ (at >> 7 & 7) << 4), 2);
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}
inline void do_product(const PendingProduct& p) {
  const int t = static_cast<int>(thread() % 128);
  float left[2][16];
  for (int h = 0; h < 2; ++h)
    for (int k = 0; k < 16; ++k) left[h][k] = element(p.a, t / 32 * 16 + t % 32 / 4 + 8 * h, k);
  for (int j = 0; j < p.columns / 8; ++j)
    for (int i = 0; i < 2; ++i) {
      float right[16];
      for (int k = 0; k < 16; ++k) right[k] = element(p.b, 8 * j + t % 4 * 2 + i, k);
      for (int h = 0; h < 2; ++h) {
        float& sum = p.d[4 * j + 2 * h + i];
        if (!p.adds) sum = 0.0f;
        for (int k = 0; k < 16; ++k) sum += left[h][k] * right[k];
      }
    }
}

}  // namespace emulated

/// Alignment counts from the beginning of shared memory.
inline uint32_t shared_address(const void* at) {
  return static_cast<uint32_t>(static_cast<const char*>(at) - emulated::shared());
}

inline void init_barrier(uint64_t* barrier, uint32_t arrivals) {
  const auto count = static_cast<uint16_t>(arrivals);
  *barrier = emulated::packed(emulated::BarrierState{count, count, 0, 0});
}
inline void publish_barriers() {}
inline void arrive_for_bytes(uint64_t* barrier, uint32_t bytes) {
  emulated::change_barrier(barrier, [&](emulated::BarrierState& s) {
    MOESTRO_CHECK(s.left > 0, "more arrivals than the barrier waits for");
    --s.left;
    s.bytes += bytes & 0x7fffffffu;
  });
}
inline void arrive(uint64_t* barrier) {
  arrive_for_bytes(barrier, 0);
}
inline void wait_for(uint64_t* barrier, uint32_t phase) {
  emulated::wait_until([=] { return emulated::barrier_state(barrier).phase != phase; });
}

/// Rows behind the map's last are zeros.
inline void copy_box(void* to, const TensorMap& map, int32_t c0, int32_t c1, int32_t c2, uint64_t* barrier) {
  constexpr uint32_t kRows = 64, kPieces = 8;
  const uint32_t to_shared = shared_address(to);
  MOESTRO_CHECK(to_shared % 1024 == 0 && c0 >= 0 && c1 >= 0 && c2 >= 0, "a box within its map");
  const auto column = static_cast<uint64_t>(c0), first_row = static_cast<uint64_t>(c1);
  MOESTRO_CHECK(column + 64 <= map.sizes[0] && static_cast<uint64_t>(c2) < map.sizes[2], "a box within its map");
  const uint64_t first = map.first + static_cast<uint64_t>(c2) * map.strides[1] + column * 2;
  MOESTRO_CHECK(first % 16 == 0 && map.strides[0] % 16 == 0, "a box of aligned rows");
  for (uint32_t row = 0; row < kRows; ++row)
    for (uint32_t piece = 0; piece < kPieces; ++piece) {
      char* place = emulated::shared() + to_shared + row * 128 + ((piece ^ (row & 7)) << 4);
      if (first_row + row >= map.sizes[1]) {
        std::memset(place, 0, 16);
        continue;
      }
      std::memcpy(place, reinterpret_cast<const char*>(first + (first_row + row) * map.strides[0] + piece * 16), 16);
      emulated::count_streamed(16);
    }
  emulated::change_barrier(barrier, [&](emulated::BarrierState& s) { s.bytes -= kRows * kPieces * 16; });
}

template <int kRegisters>
void take_registers() {}
template <int kRegisters>
void give_registers() {}

inline void begin_products() {}
template <int kSums>
void multiply_warpgroup(float (&d)[kSums], uint64_t a, uint64_t b, bool adds) {
  emulated::product_groups().back().push_back({d, 2 * kSums, a, b, adds});
}
inline void end_product_group() {
  emulated::product_groups().emplace_back();
}
template <int kLeft>
void wait_product_groups() {
  auto& all = emulated::product_groups();
  for (; all.size() > kLeft + size_t{1}; all.erase(all.begin()))
    for (const emulated::PendingProduct& one : all.front()) emulated::do_product(one);
}
template <int kSums>
void hold_sums(float (&)[kSums]) {}

}  // namespace moestro::kernels::cuda
