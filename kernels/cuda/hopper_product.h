#pragma once
// Products of many tokens on Hopper: a block computes 128 tokens by kRows rows of weights (or kRows / 2 of gate and as
// many of up), unit after unit of work. One thread of its first warpgroup brings pieces of 64 columns of both sides
// into a ring of shared memory, as boxes of 64 rows (copy_box). Each of the two other warpgroups multiplies 64 of the
// tokens with all rows, from there.
//
//   stage   | tokens [128][64] | weights [kRows][64] |     bf16, rows as swizzled_rows
//   room    | stage 0 | ... | stage kStages - 1 | full [kStages] | empty [kStages] | units [kStages] |
//
// full[i] ends a phase when stage i has come, empty[i] when all of its readers have left it. units[i] is the unit whose
// piece stage i holds.

#include "kernels/cuda/hopper.h"
#include "kernels/cuda/reduce.h"

namespace moestro::kernels::cuda {

inline constexpr int kHopperTokens = 128, kHopperDepth = 64, kHopperThreads = 3 * kWarpgroup;
inline constexpr int kPieceBytes = kHopperDepth * 2;
inline constexpr uint32_t kBoxBytes = kBoxRows * kPieceBytes, kSwizzleAlign = 1024;

/// A unit of work: rows [first, first + count) of tokens by one of the blocks of rows of the weights. count 0: there is
/// none any more. tile: of MoestroCudaExperts::token_tiles, one of the expert's.
struct alignas(16) HopperUnit {
  int32_t first, count, row_block, tile;
};

/// Where the weights of a unit lie: 64 rows from each origin + offset[i].
template <int kBoxes>
struct WeightBoxes {
  const char* origin;
  int64_t offset[kBoxes];  ///< below 0: no such rows
};

template <int kRows_, int kStages_>
struct HopperForm {
  static constexpr int kRows = kRows_, kStages = kStages_, kBoxes = kRows_ / kBoxRows;
};

template <typename Form>
struct HopperRoom {
  static constexpr int kStages = Form::kStages;
  static constexpr uint32_t kTokenBytes = kHopperTokens * kPieceBytes;
  static constexpr uint32_t kStageBytes = kTokenBytes + Form::kRows * kPieceBytes;
  static constexpr uint32_t kBytes = kStages * (kStageBytes + 2 * sizeof(SharedBarrier) + sizeof(HopperUnit));
  static constexpr uint64_t kAsked = kBytes + kSwizzleAlign;

  char* begin;

  __device__ HopperRoom() {
    char* room = shared_memory();
    begin = room + (kSwizzleAlign - shared_address(room) % kSwizzleAlign) % kSwizzleAlign;
  }
  __device__ char* tokens(int stage) const { return begin + static_cast<uint32_t>(stage) * kStageBytes; }
  __device__ char* weights(int stage) const { return tokens(stage) + kTokenBytes; }
  __device__ SharedBarrier* full(int stage) const {
    return reinterpret_cast<SharedBarrier*>(begin + kStages * kStageBytes) + stage;
  }
  __device__ SharedBarrier* empty(int stage) const { return full(kStages + stage); }
  __device__ HopperUnit* unit(int stage) const { return reinterpret_cast<HopperUnit*>(full(2 * kStages)) + stage; }
};

/// The place in the ring: a stage, and the phase of its barriers.
template <int kStages>
struct RingPlace {
  int stage = 0;
  uint32_t phase = 0;
  __device__ void advance() {
    if (++stage == kStages) stage = 0, phase ^= 1u;
  }
};

/// One thread. `Task` has:
///   const TensorMap& tokens, weights        the maps of both sides
///   bool find(int index, HopperUnit&, const char*& from)    the unit of this number, and what weights() begins from
///   WeightBoxes<kBoxes> weights<kBoxes>(unit, from)         of its first piece
///   void next_piece(int s, WeightBoxes&)    from piece s to the next one
///   int pieces()
///   void put(unit, int token, int h, sums)  stores the sums of a row of the tile (see multiply_warpgroup); all lanes
template <typename Form, typename Task>
struct HopperProducer {
  const Task& task;
  const HopperRoom<Form>& room;
  RingPlace<Form::kStages> at;

  __device__ void run() {
    HopperUnit unit{};
    const char* from = nullptr;
    for (int u = static_cast<int>(blockIdx.x); task.find(u, unit, from); u += static_cast<int>(gridDim.x))
      run_unit(unit, task.template weights<Form::kBoxes>(unit, from));
    begin_stage({0, 0, 0, 0}, 0);
  }

  __device__ void run_unit(const HopperUnit& unit, WeightBoxes<Form::kBoxes> boxes) {
    const bool both_halves = unit.count > kBoxRows;
    uint32_t bytes = (both_halves ? 2 : 1) * kBoxBytes;
    MOESTRO_UNROLL
    for (int i = 0; i < Form::kBoxes; ++i) bytes += boxes.offset[i] < 0 ? 0 : kBoxBytes;
    const int pieces = task.pieces();
    for (int s = 0; s < pieces; ++s) {
      begin_stage(unit, bytes);
      copy_tokens(unit.first, s, 0);
      if (both_halves) copy_tokens(unit.first, s, 1);
      MOESTRO_UNROLL
      for (int i = 0; i < Form::kBoxes; ++i)
        if (boxes.offset[i] >= 0) copy_weights(boxes.origin + boxes.offset[i], i);
      task.next_piece(s, boxes);
      at.advance();
    }
  }

  __device__ void begin_stage(const HopperUnit& unit, uint32_t bytes) {
    wait_for(room.empty(at.stage), at.phase ^ 1u);
    *room.unit(at.stage) = unit;
    arrive_for_bytes(room.full(at.stage), bytes);
  }
  __device__ void copy_tokens(int32_t first, int s, int half) {
    copy_box(room.tokens(at.stage) + half * kBoxBytes, task.token_map(), s * kHopperDepth, first + half * kBoxRows, 0,
             room.full(at.stage));
  }
  __device__ void copy_weights(const char* first, int box) {
    const uint64_t byte = reinterpret_cast<uint64_t>(first) - kMapBase;
    copy_box(room.weights(at.stage) + box * kBoxBytes, task.weight_map(), static_cast<int32_t>(byte % kMapPage / 2), 0,
             static_cast<int32_t>(byte / kMapPage), room.full(at.stage));
  }
};

template <typename Form, typename Task>
struct HopperConsumer {
  const Task& task;
  const HopperRoom<Form>& room;
  const int first_token;  ///< of the tile, this warpgroup's
  RingPlace<Form::kStages> at;
  using Sums = float[Form::kRows / 2];  ///< as multiply_warpgroup

  __device__ HopperConsumer(const Task& task_, const HopperRoom<Form>& room_)
      : task(task_), room(room_), first_token((same(static_cast<int>(threadIdx.x)) / kWarpgroup - 1) * kBoxRows) {}

  /// All lanes have what one has: the compiler does not know it of threadIdx or shared memory, and would not leave
  /// products under way where lanes may differ.
  __device__ static int same(int value) { return __shfl_sync(kWholeWarp, value, 0); }

  __device__ void run() {
    for (;;) {
      wait_for(room.full(at.stage), at.phase);
      const HopperUnit unit = *room.unit(at.stage);
      const int count = same(unit.count);
      if (count == 0) return;
      if (first_token < count) {
        Sums sums;
        // ptxas 12.4 makes every product wait for the one before where sums begin undefined.
        MOESTRO_UNROLL
        for (float& sum : sums) sum = 0.0f;
        multiply_all(sums);
        put(unit, sums);
      } else {
        pass_all();
      }
    }
  }

  /// By whole warps: no lane still looks at the stage when another signals that it is free.
  __device__ void leave(int stage) {
    __syncwarp();
    if (lane_id() == 0) arrive(room.empty(stage));
  }

  /// A stage is left when its products have ended, with those of the next one begun.
  __device__ void multiply_all(Sums& sums) {
    int before = 0;
    const int pieces = task.pieces();
    for (int s = 0; s < pieces; ++s) {
      wait_for(room.full(at.stage), at.phase);
      const uint64_t tokens = swizzled_rows(room.tokens(at.stage) + first_token * kPieceBytes);
      const uint64_t weights = swizzled_rows(room.weights(at.stage));
      hold_sums(sums);
      begin_products();
      MOESTRO_UNROLL
      for (int k = 0; k < kHopperDepth / 16; ++k)
        multiply_warpgroup(sums, tokens + static_cast<uint64_t>(k * 2), weights + static_cast<uint64_t>(k * 2),
                           s > 0 || k > 0);
      end_product_group();
      wait_product_groups<1>();
      if (s > 0) leave(before);
      before = at.stage;
      at.advance();
    }
    wait_product_groups<0>();
    hold_sums(sums);
    leave(before);
  }
  /// Without tokens of its own it goes with the others.
  __device__ void pass_all() {
    const int pieces = task.pieces();
    for (int s = 0; s < pieces; ++s) {
      wait_for(room.full(at.stage), at.phase);
      leave(at.stage);
      at.advance();
    }
  }

  __device__ void put(const HopperUnit& unit, const Sums& sums) {
    const int warp = static_cast<int>(threadIdx.x) % kWarpgroup / kWarp;
    MOESTRO_UNROLL
    for (int h = 0; h < 2; ++h) task.put(unit, first_token + warp * 16 + lane_id() / 4 + 8 * h, h, sums);
  }
};

template <typename Form, typename Task>
__global__ void __launch_bounds__(kHopperThreads, 1) hopper_kernel(const __grid_constant__ typename Task::Arguments a) {
  const Task task{a};
  const HopperRoom<Form> room;
  if (threadIdx.x == 0) {
    constexpr uint32_t kReaders = 2 * kWarpgroup / kWarp;
    for (int i = 0; i < Form::kStages; ++i) {
      init_barrier(room.full(i), 1);
      init_barrier(room.empty(i), kReaders);
    }
    publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x < kWarpgroup) {
    give_registers<40>();
    if (threadIdx.x == 0) HopperProducer<Form, Task>{task, room, {}}.run();
  } else {
    take_registers<232>();
    HopperConsumer<Form, Task>(task, room).run();
  }
}

template <typename Form, typename Task>
MoestroCudaResult launch_hopper(const typename Task::Arguments& a, int blocks, MoestroCudaStream stream) {
  const dim3 grid(static_cast<unsigned>(blocks));
#if defined(__CUDACC__)
  return launch(hopper_kernel<Form, Task>, grid, dim3(kHopperThreads), HopperRoom<Form>::kAsked, stream, a);
#else
  return launch<emulated::kSharedMaxOnHopper>(hopper_kernel<Form, Task>, grid, dim3(kHopperThreads),
                                              HopperRoom<Form>::kAsked, stream, a);
#endif
}

}  // namespace moestro::kernels::cuda
