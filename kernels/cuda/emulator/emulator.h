#pragma once
// CUDA's model of execution on one thread of the CPU, for tests of kernels: each thread of a block is a fiber that runs
// until it reaches a barrier, an exchange within its warp, or its end. Blocks run one after another, in random order.
// What is undefined in CUDA is a failed check here: a barrier that not all threads reach, an exchange with a missing
// lane, more shared memory than requested. Each block's shared memory initially contains NaN.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>

#include "common/check.h"
#include "common/float16.h"
#include "kernels/cuda/emulator/streams.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define MOESTRO_UNROLL
#define MOESTRO_UNROLL_4

namespace moestro::kernels::cuda {

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1)
      : x(x_), y(y_), z(z_) {}  // NOLINT: CUDA's is not explicit either
};
struct Index3 {
  unsigned x = 0, y = 0, z = 0;
};

/// Those of the running fiber.
inline Index3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;

namespace emulated {

/// The kind of an exchange; all lanes of a warp do the same.
enum class Exchange : uint8_t { kShuffle, kShuffleXor, kFold, kReduce, kBallot, kTiles, kMatrices, kWait };

/// 0, the default: threads run in the order of their numbers wherever possible, and blocks in a random order, which is
/// the same for each grid of as many blocks. Otherwise threads, warps and blocks run in a random order from this seed.
/// A kernel without races gives the same bits. Valid until the next call.
void set_order(uint64_t seed);
/// Numbers so far.
struct Counters {
  uint64_t launches = 0, threads = 0;
  /// What streamed16(), copy_async16() and copy_box() have read: weights and KV, not what threads load by themselves.
  uint64_t bytes_streamed = 0;
};
Counters counters();
void count_streamed(uint64_t bytes);

/// What a block may have on every card, and on compute capability 9.0.
inline constexpr uint64_t kSharedMax = 99 * 1024, kSharedMaxOnHopper = 227 * 1024;

/// Runs `body(argument)` once for each thread of the grid; one grid after another, also with several callers.
void run(dim3 grid, dim3 block, uint64_t shared_bytes, void (*body)(void*), void* argument,
         uint64_t shared_max = kSharedMax);
void barrier();
/// The running thread continues when `ready` says so; it must become true by what other threads of the block do.
void wait_until(const std::function<bool()>& ready);
inline constexpr unsigned kLanes = 32;
inline unsigned running = 0;  ///< the thread of the block that runs
inline unsigned lane() { return running % kLanes; }
inline unsigned thread() { return running; }  ///< of the block
char* shared();

/// Makes what the lanes of a warp get of what they have given, at once for all of them.
using Combine = void(uint64_t* words);
/// The exchanges of a warp.
struct Warp {
  static constexpr unsigned kWordsMax = 32;
  uint64_t words[2][kWordsMax * kLanes];  ///< of the last exchange and of the one that goes on
  std::array<uint64_t, kLanes> said{};  ///< by each lane, of what all of them have
  unsigned given = 0, turn = 0;
  Exchange kind = Exchange::kWait;
  Combine* combine = nullptr;
  void check_said() const {
    MOESTRO_CHECK(std::all_of(said.begin(), said.end(), [this](uint64_t of_lane) { return of_lane == said[0]; }),
                  "lanes of a warp that have different values of what all have");
  }
};
inline Warp* running_warp = nullptr;  ///< that of the running thread
/// The running thread waits until the last lane has given its words.
void wait_for_lanes();
/// The other lanes of the running thread's warp continue.
void let_lanes_continue();

/// The first words of the 32 lanes of this warp, then their second ones, and so on; valid until this lane's exchange
/// after the next. All lanes give equally many. In the header, since emulated kernels spend a third of their time here.
template <size_t kWords>
const uint64_t* exchange(Exchange kind, const std::array<uint64_t, kWords>& mine, Combine* combine = nullptr) {
  static_assert(kWords <= Warp::kWordsMax);
  Warp& w = *running_warp;
  if (w.given == 0) w.kind = kind, w.combine = combine;
  MOESTRO_CHECK(w.kind == kind && w.combine == combine, "lanes of a warp that exchange different things");
  uint64_t* words = w.words[w.turn % 2];
  for (size_t i = 0; i < kWords; ++i) words[i * kLanes + lane()] = mine[i];
  if (++w.given < kLanes) {
    wait_for_lanes();
    return words;
  }
  w.given = 0;
  ++w.turn;
  w.check_said();
  if (combine != nullptr) combine(words);
  let_lanes_continue();
  return words;
}
inline const uint64_t* exchange(Exchange kind, uint64_t mine, Combine* combine = nullptr) {
  return exchange(kind, std::array{mine}, combine);
}
/// Checks that [at, at + bytes) is in the block's shared memory and that `at` is a multiple of `bytes`.
void check_shared(const void* at, uint64_t bytes);

/// Copies of the running thread that go on meanwhile (kernels/cuda/async_copy.h). `to` is poisoned at once and written
/// by the wait for its group, which is as late as a device may be. A thread must not end before its copies.
void begin_copy(void* to, const void* from, int bytes);
void commit_copies();
void wait_copies(unsigned groups);

template <typename T>
uint64_t packed(T value) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}
template <typename T>
T unpacked(uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace emulated

inline void __syncthreads() { emulated::barrier(); }
inline void __syncwarp() { emulated::exchange(emulated::Exchange::kWait, std::array<uint64_t, 0>()); }
template <typename T>
T __shfl_sync(uint32_t, T value, int from) {
  return emulated::unpacked<T>(emulated::exchange(emulated::Exchange::kShuffle, emulated::packed(value))[from & 31]);
}
template <typename T>
T __shfl_xor_sync(uint32_t, T value, int mask) {
  return emulated::unpacked<T>(emulated::exchange(
      emulated::Exchange::kShuffleXor, emulated::packed(value))[emulated::lane() ^ static_cast<unsigned>(mask)]);
}
inline uint32_t __ballot_sync(uint32_t, bool value) {
  const uint64_t* all = emulated::exchange(emulated::Exchange::kBallot, value);
  uint32_t votes = 0;
  for (uint32_t i = 0; i < 32; ++i) votes |= static_cast<uint32_t>(all[i]) << i;
  return votes;
}
/// No exchange: that the lanes' values are equal is checked when they next meet.
template <typename T>
T uniform(T value) {
  uint64_t& said = emulated::running_warp->said[emulated::lane()];
  said = said * 31 + emulated::packed(value) + 1;
  return value;
}
inline int __popc(uint32_t bits) { return __builtin_popcount(bits); }
template <typename T>
T atomicAdd(T* at, T value) {
  const T before = *at;
  *at = before + value;
  return before;
}

/// Blocks run one after another: what one has written, the next one sees.
inline void __threadfence() {}
template <typename T>
T load_fresh(const T* at) {
  return *at;
}
inline float load_unwritten(const float* at) { return *at; }
/// One exchange in place of one for each step and value, since most of what kernels exchange is this; the same bits.
template <int kWidth, typename T, int kRows, int kSize, typename Fold, typename Take>
void warp_fold_rows(const T (&values)[kRows][kSize], int count, Fold, Take take) {
  constexpr unsigned kOfWord = sizeof(uint64_t) / sizeof(T), kWords = (kRows * kSize + kOfWord - 1) / kOfWord;
  constexpr auto fold_all = [](uint64_t* words) {
    for (uint64_t* word = words; word < words + kWords * 32; word += 32) {
      T all[32 * kOfWord];
      std::memcpy(all, word, sizeof all);
      for (unsigned apart = kWidth / 2 * kOfWord; apart >= kOfWord; apart /= 2) {
        for (T* lower = all; lower < all + 32 * kOfWord; lower += 2 * apart) {
          for (unsigned i = 0; i < apart; ++i) {
            const T a = lower[i], b = lower[apart + i];
            lower[i] = Fold{}(a, b);
            lower[apart + i] = Fold{}(b, a);
          }
        }
      }
      std::memcpy(word, all, sizeof all);
    }
  };
  std::array<uint64_t, kWords> mine{};
  std::memcpy(mine.data(), values, sizeof values);
  const uint64_t* all = emulated::exchange(emulated::Exchange::kFold, mine, fold_all);
  for (unsigned i = 0; i < kWords; ++i) mine[i] = all[i * 32 + emulated::lane()];
  T folded[kRows][kSize];
  std::memcpy(folded, mine.data(), sizeof folded);
  for (int r = 0; r < kRows; ++r)
    for (int i = 0; i < kSize && i < count; ++i) take(r, i, folded[r][i]);
}
template <int kWidth, typename T, int kSize, typename Fold>
void warp_fold_each(T (&values)[kSize], int count, Fold fold) {
  T row[1][kSize];
  std::memcpy(row[0], values, sizeof values);
  warp_fold_rows<kWidth>(row, count, fold, [&values](int, int i, T folded) { values[i] = folded; });
}
template <int kWidth, typename T, typename Fold>
T warp_fold(T value, Fold fold) {
  T values[] = {value};
  warp_fold_each<kWidth>(values, 1, fold);
  return values[0];
}
template <int kCount, int kKept, int kStep, int kSize>
void reduce_scatter(float (&values)[kSize]) {
  if constexpr (kCount > kKept) {
    static_assert(kCount % 2 == 0 && kCount <= kSize);
    constexpr auto reduce_all = [](uint64_t* words) {
      float all[kCount * 32];
      std::memcpy(all, words, sizeof all);
      const auto at = [&all](unsigned value, unsigned lane) -> float& {
        return all[value / 2 * 64 + lane * 2 + value % 2];
      };
      for (unsigned half = kCount / 2, step = kStep; half >= kKept; half /= 2, step /= 2) {
        for (unsigned i = 0; i < half; ++i) {
          for (unsigned lower = 0; lower < 32; ++lower) {
            if ((lower & step) != 0) continue;
            const unsigned upper = lower + step;
            at(i, lower) += at(i, upper);
            at(i, upper) = at(i + half, upper) + at(i + half, lower);
          }
        }
      }
      std::memcpy(words, all, (kKept + 1) / 2 * 32 * sizeof(uint64_t));
    };
    std::array<uint64_t, kCount / 2> mine;
    std::memcpy(mine.data(), values, sizeof mine);
    const uint64_t* all = emulated::exchange(emulated::Exchange::kReduce, mine, reduce_all);
    for (unsigned i = 0; i < (kKept + 1) / 2; ++i) mine[i] = all[i * 32 + emulated::lane()];
    std::memcpy(values, mine.data(), kKept * sizeof(float));
  }
}
inline uint32_t warp_most(uint32_t value) {
  return warp_fold<32>(value, [](uint32_t a, uint32_t b) { return a < b ? b : a; });
}
inline void prefetch(const void*) {}
inline void after_predecessors() {}
inline void let_next_begin() {}

inline char* shared_memory() { return emulated::shared(); }
inline float multiply_add(float a, float b, float c) { return a * b + c; }
inline float bits_to_float(uint32_t bits) { return std::bit_cast<float>(bits); }
inline uint32_t float_to_bits(float f) { return std::bit_cast<uint32_t>(f); }
inline float f16_value(uint16_t half) { return f16_to_f32(half); }
inline uint16_t f16_bits(float f) { return f32_to_f16(f); }

using std::isfinite;
using std::isnan;

template <uint64_t kSharedMax = emulated::kSharedMax, typename... P, typename... A>
int32_t launch(void (*kernel)(P...), dim3 grid, dim3 block, uint64_t shared_bytes, void* stream,
               const A&... arguments) {
  const auto work = [=] {
    auto body = [&] { kernel(arguments...); };
    emulated::run(
        grid, block, shared_bytes, [](void* it) { (*static_cast<decltype(body)*>(it))(); }, &body, kSharedMax);
  };
  if (const int32_t refused = emulated::refused_on_device(stream)) return refused;
  emulated::count_launch(stream);
  if (emulated::keeps(stream)) emulated::keep(stream, work);
  else work();
  return 0;
}

template <typename... P, typename... A>
int32_t launch_early(void (*kernel)(P...), dim3 grid, dim3 block, uint64_t shared_bytes, void* stream,
                     const A&... arguments) {
  return launch(kernel, grid, block, shared_bytes, stream, arguments...);
}

}  // namespace moestro::kernels::cuda
