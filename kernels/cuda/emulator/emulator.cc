#include "kernels/cuda/emulator/emulator.h"

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <vector>

#include "common/check.h"
#include "kernels/cuda/emulator/device_region.h"
#include "kernels/cuda/emulator/fiber.h"

namespace moestro::kernels::cuda::emulated {
namespace {

constexpr unsigned kThreadsMax = 1024;
constexpr size_t kGuardBytes = 256;
constexpr char kGuard = 0x5a;
constexpr int kCopyBytes = 16;
constexpr unsigned kGroups = 16;  ///< of copies that a thread has not waited for; kernels have up to 4 stages

enum class State : uint8_t { kReady, kAtBarrier, kInExchange, kPolls, kEnded };

/// The block that runs.
class Block {
 public:
  void run(dim3 grid, dim3 block, uint64_t shared_bytes, void (*body)(void*), void* argument, uint64_t shared_max);
  void barrier();
  void wait_until(const std::function<bool()>& ready);
  void wait_for_lanes() { wait(State::kInExchange); }
  void let_lanes_continue() { std::fill_n(states_.begin() + first_of_warp(), kLanes, State::kReady); }
  void set_order(uint64_t now);
  void check_shared(const void* at, uint64_t bytes) const;
  void begin_copy(void* to, const void* from, int bytes);
  void commit_copies();
  void wait_copies(unsigned groups);

  uint64_t seed = 0;
  Counters counters;
  std::vector<char> shared;

 private:
  struct Copy {
    void* to;
    const void* from;
    int bytes;
  };
  using Ring = std::array<std::vector<Copy>, kGroups>;  ///< groups of a thread's copies; each keeps its memory
  struct Copying {
    uint32_t copies = 0;  ///< that have not ended
    uint16_t oldest = 0, newest = 0;  ///< groups that have not ended; the newest is not committed
    unsigned committed() const { return static_cast<uint16_t>(newest - oldest); }
  };
  static void thread_main(void* block);
  void run_one();
  bool sweep(unsigned warp);
  bool resume(unsigned thread);
  void become(unsigned thread);
  static unsigned first_of_warp() { return running / kLanes * kLanes; }
  /// The running thread waits as `state`.
  void wait(State state);
  /// The order in which `n` warps or lanes run now.
  const std::vector<unsigned>& order(unsigned n, std::vector<unsigned>& into);
  /// That of `n` blocks: always shuffled.
  void order_blocks(unsigned n);

  // Of the threads, each in an array of its own: a switch between two reads little of each.
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::array<State, kThreadsMax> states_{};
  std::array<Index3, kThreadsMax> indices_{};
  std::array<const std::function<bool()>*, kThreadsMax> ready_{};  ///< of those that poll
  std::array<Copying, kThreadsMax> copying_{};
  std::vector<Ring> rings_ = std::vector<Ring>(kThreadsMax);

  std::vector<Warp> warps_;
  unsigned count_ = 0, at_barrier_ = 0, ended_ = 0;
  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
  std::mt19937_64 random_;
  std::vector<unsigned> warp_order_, lane_order_, block_order_;
};

Block the_block;

const std::vector<unsigned>& Block::order(unsigned n, std::vector<unsigned>& into) {
  if (into.size() != n || seed != 0) {
    into.resize(n);
    std::iota(into.begin(), into.end(), 0u);
    if (seed != 0) std::shuffle(into.begin(), into.end(), random_);
  }
  return into;
}

void Block::set_order(uint64_t now) {
  seed = now;
  warp_order_.clear(), lane_order_.clear();  // shuffled, perhaps
}

void Block::order_blocks(unsigned n) {
  block_order_.resize(n);
  std::iota(block_order_.begin(), block_order_.end(), 0u);
  std::shuffle(block_order_.begin(), block_order_.end(), random_);
}

void Block::thread_main(void* of) {
  Block& block = *static_cast<Block*>(of);
  for (;;) {
    block.body_(block.argument_);
    MOESTRO_CHECK(block.copying_[running].copies == 0, "a thread has ended before its copies");
    block.copying_[running] = {};
    ++block.ended_;
    block.wait(State::kEnded);  // until the next block
  }
}

void Block::run(dim3 grid, dim3 block, uint64_t shared_bytes, void (*body)(void*), void* argument,
                uint64_t shared_max) {
  count_ = block.x * block.y * block.z;
  MOESTRO_CHECK(count_ >= kLanes && count_ <= kThreadsMax && count_ % kLanes == 0,
                "a block is of whole warps, at most 1024 threads");
  MOESTRO_CHECK(grid.y <= 65535 && grid.z <= 65535 && grid.x <= 0x7fffffffu, "a grid within CUDA's limits");
  MOESTRO_CHECK(shared_bytes <= shared_max, "shared memory that the cards of this kernel have");
  ++counters.launches;
  body_ = body;
  argument_ = argument;
  while (fibers_.size() < count_) fibers_.push_back(std::make_unique<Fiber>(thread_main, this));
  if (block.x != blockDim.x || block.y != blockDim.y || block.z != blockDim.z) {
    for (unsigned i = 0; i < count_; ++i) indices_[i] = {i % block.x, i / block.x % block.y, i / (block.x * block.y)};
  }
  warps_.resize(count_ / kLanes);
  random_.seed(seed);
  blockDim = block;
  gridDim = grid;
  const unsigned blocks = grid.x * grid.y * grid.z;
  MOESTRO_CHECK(blocks / grid.x / grid.y == grid.z, "a grid that an emulation can run");
  shared.resize(shared_bytes + kGuardBytes);
  order_blocks(blocks);
  for (const unsigned b : block_order_) {
    blockIdx = {b % grid.x, b / grid.x % grid.y, b / (grid.x * grid.y)};
    std::fill_n(shared.begin(), shared_bytes, static_cast<char>(0xff));
    std::fill_n(shared.begin() + static_cast<std::ptrdiff_t>(shared_bytes), kGuardBytes, kGuard);
    run_one();
    MOESTRO_CHECK(std::all_of(shared.end() - kGuardBytes, shared.end(), [](char c) { return c == kGuard; }),
                  "a kernel has written behind its shared memory");
  }
}

void Block::run_one() {
  counters.threads += count_;
  at_barrier_ = ended_ = 0;
  std::fill_n(states_.begin(), count_, State::kReady);
  for (Warp& w : warps_) w.given = 0;
  while (ended_ < count_) {
    bool progress = false;
    for (const unsigned warp : order(static_cast<unsigned>(warps_.size()), warp_order_)) {
      while (sweep(warp)) progress = true;
    }
    MOESTRO_CHECK(progress, "threads of a block wait for others that have ended or wait elsewhere");
  }
  for (const Warp& w : warps_) w.check_said();
}

/// Runs the lanes of a warp that can run, once; false: none can.
bool Block::sweep(unsigned warp) {
  bool progress = false;
  running_warp = &warps_[warp];
  for (const unsigned lane : order(kLanes, lane_order_)) progress = resume(warp * kLanes + lane) || progress;
  return progress;
}

bool Block::resume(unsigned thread) {
  if (states_[thread] == State::kPolls && (*ready_[thread])()) states_[thread] = State::kReady;
  if (states_[thread] != State::kReady) return false;
  become(thread);
  fibers_[thread]->resume();
  return true;
}

void Block::become(unsigned thread) {
  running = thread;
  threadIdx = indices_[thread];
}

void Block::wait(State state) {
  Fiber& fiber = *fibers_[running];
  states_[running] = state;
  // In the plain order the next lane that can run is gone on with from here: half the switches.
  const unsigned first = first_of_warp();
  for (unsigned i = 1; seed == 0 && i < kLanes; ++i) {
    const unsigned next = first + (running - first + i) % kLanes;
    if (states_[next] != State::kReady) continue;
    become(next);
    fibers_[first + (next + 1) % kLanes]->expect();
    return fiber.hand_over(*fibers_[next]);
  }
  fiber.leave();
}

void Block::barrier() {
  MOESTRO_CHECK(ended_ == 0, "a barrier that some threads of the block do not reach");
  if (++at_barrier_ == count_) {
    at_barrier_ = 0;
    std::fill_n(states_.begin(), count_, State::kReady);
    return;
  }
  wait(State::kAtBarrier);
}

void Block::wait_until(const std::function<bool()>& ready) {
  if (ready()) return;
  ready_[running] = &ready;
  wait(State::kPolls);
}

void Block::check_shared(const void* at, uint64_t bytes) const {
  const char* from = static_cast<const char*>(at);
  MOESTRO_CHECK(from >= shared.data() && from + bytes <= shared.data() + shared.size() - kGuardBytes,
                "an address in the block's shared memory");
  MOESTRO_CHECK(reinterpret_cast<uintptr_t>(at) % bytes == 0, "an aligned address in shared memory");
}

void Block::begin_copy(void* to, const void* from, int bytes) {
  MOESTRO_CHECK(bytes >= 0 && bytes <= kCopyBytes, "a copy of up to 16 bytes");
  MOESTRO_CHECK(reinterpret_cast<uintptr_t>(from) % kCopyBytes == 0, "the source of a copy is aligned");
  check_shared(to, kCopyBytes);
  std::memset(to, 0xff, kCopyBytes);
  counters.bytes_streamed += static_cast<uint64_t>(bytes);
  Copying& copying = copying_[running];
  rings_[running][copying.newest % kGroups].push_back({to, from, bytes});
  ++copying.copies;
}

void Block::commit_copies() {
  Copying& copying = copying_[running];
  ++copying.newest;
  MOESTRO_CHECK(copying.committed() < kGroups, "a thread that waits for few groups of copies");
}

void Block::wait_copies(unsigned groups) {
  Copying& copying = copying_[running];
  for (; copying.committed() > groups; ++copying.oldest) {
    auto& group = rings_[running][copying.oldest % kGroups];
    for (const Copy& c : group) {
      if (c.bytes > 0) std::memcpy(c.to, c.from, static_cast<size_t>(c.bytes));
      std::memset(static_cast<char*>(c.to) + c.bytes, 0, static_cast<size_t>(kCopyBytes - c.bytes));
    }
    copying.copies -= static_cast<uint32_t>(group.size());
    group.clear();
  }
}

}  // namespace

void set_order(uint64_t seed) { the_block.set_order(seed); }
Counters counters() { return the_block.counters; }
void count_streamed(uint64_t bytes) { the_block.counters.bytes_streamed += bytes; }
void run(dim3 grid, dim3 block, uint64_t shared_bytes, void (*body)(void*), void* argument, uint64_t shared_max) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  static std::mutex one;  // late streams run on whatever thread waits for them
  const std::lock_guard lock(one);
  const DeviceAccess access;
  the_block.run(grid, block, shared_bytes, body, argument, shared_max);
}
void barrier() { the_block.barrier(); }
void wait_until(const std::function<bool()>& ready) { the_block.wait_until(ready); }
void wait_for_lanes() { the_block.wait_for_lanes(); }
void let_lanes_continue() { the_block.let_lanes_continue(); }
char* shared() { return the_block.shared.data(); }
void check_shared(const void* at, uint64_t bytes) { the_block.check_shared(at, bytes); }
void begin_copy(void* to, const void* from, int bytes) { the_block.begin_copy(to, from, bytes); }
void commit_copies() { the_block.commit_copies(); }
void wait_copies(unsigned groups) { the_block.wait_copies(groups); }

}  // namespace moestro::kernels::cuda::emulated
