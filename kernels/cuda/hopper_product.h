#pragma once
// Products of many tokens on Hopper: a block computes 128 tokens by kRows rows of a weight matrix (or kRows / 2 of gate
// and as many of up), unit after unit of work. Its first warpgroup brings pieces of 64 columns of both sides into a
// ring of shared memory; each of the two others multiplies 64 of the tokens with all rows, from there.
//
//   stage   | tokens [128][64] | weights [kRows][64] |     bf16, rows as swizzled_rows
//   room    | stage 0 | ... | stage kStages - 1 | full [kStages] | empty [kStages] | units [kStages] |
//
// full[i] ends a phase when stage i has come, empty[i] when all of its readers have left it. units[i] is the unit
// whose first piece stage i holds. Tokens are gathered row by row. Weights come as boxes of 64 rows (copy_box) through a
// map of all addresses, so that it need not know where experts lie: c0 counts elements and c2 pages from the map's
// base. Rows and columns are multiples of 64, which divides the tiles of experts too.

#include "kernels/cuda/bf16_pairs.h"
#include "kernels/cuda/experts_work.h"
#include "kernels/cuda/hopper.h"
#include "kernels/cuda/reduce.h"

namespace moestro::kernels::cuda {

inline constexpr int kHopperTokens = 128, kHopperDepth = 64, kHopperThreads = 3 * kWarpgroup;
inline constexpr int kBoxRows = 64, kPieceBytes = kHopperDepth * 2;
inline constexpr uint32_t kBoxBytes = kBoxRows * kPieceBytes, kSwizzleAlign = 1024;
/// Where a map begins, and its third dimension: with 2^31 of them it reaches every address of a process.
inline constexpr uint64_t kMapBase = 1 << 16, kMapPage = 1 << 17;

/// A unit of work, as the producer tells the consumers: rows [first, first + count) of tokens; count 0: there is none
/// any more.
struct alignas(16) HopperUnit {
  int32_t first, count, row_block, unused;
};

/// Where the weights of a unit lie: 64 rows from each origin + offset[i], `pitch` bytes apart.
template <int kBoxes>
struct WeightBoxes {
  const char* origin;
  int64_t offset[kBoxes];  ///< below 0: no such rows
  int64_t pitch;
};

template <int kRows, int kStages>
struct HopperRoom {
  static constexpr uint32_t kTokenBytes = kHopperTokens * kPieceBytes, kStageBytes = kTokenBytes + kRows * kPieceBytes;
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

/// Which sides come by copy_box; the others by copies of 16 bytes.
enum class Boxes { kNone, kWeights, kBoth };

/// What is variable. kSignals: the hardware signals that copies have come; otherwise their thread does, when it has
/// begun later ones.
template <int kRows_, int kStages_, Boxes kBoxed, bool kSignals_>
struct HopperForm {
  static constexpr int kRows = kRows_, kStages = kStages_, kBoxes = kRows_ / kBoxRows;
  static constexpr bool kWeightBoxes = kBoxed != Boxes::kNone, kTokenBoxes = kBoxed == Boxes::kBoth;
  static constexpr bool kSignals = kSignals_;
  /// Stages that a thread begins before it waits for one; a stage is left when its next one has come.
  static constexpr int kAhead = kSignals_ ? 0 : at_most(2, kStages_ - 2);
  using Room = HopperRoom<kRows_, kStages_>;
};

template <typename Form, typename Task>
struct HopperProducer {
  static constexpr int kRowsAtOnce = kWarpgroup / (kPieceBytes / 16);
  static constexpr int kTokenCopies = kHopperTokens / kRowsAtOnce, kWeightCopies = Form::kRows / kRowsAtOnce;

  const Task& task;
  const typename Form::Room& room;
  RingPlace<Form::kStages> at, told;
  int untold = 0;  ///< stages begun whose copies are not known to have come
  uint32_t from[kTokenCopies];  ///< rows of tokens

  __device__ static int thread() { return static_cast<int>(threadIdx.x) % kWarpgroup; }
  __device__ static int row() { return thread() / 8; }
  __device__ static int piece() { return thread() % 8; }

  __device__ void run() {
    HopperUnit unit{};
    const char* blob = nullptr;
    for (int u = static_cast<int>(blockIdx.x); task.find(u, unit, blob); u += static_cast<int>(gridDim.x))
      run_unit(unit, blob);
    begin_stage({0, 0, 0, 0}, 0);
    signal();
    while (untold > 0) tell<0>();
  }

  __device__ void run_unit(const HopperUnit& unit, const char* blob) {
    if constexpr (!Form::kTokenBoxes) {
      MOESTRO_UNROLL
      for (int i = 0; i < kTokenCopies; ++i)
        from[i] = task.token(unit.first + at_most(row() + i * kRowsAtOnce, unit.count - 1));
    }
    auto boxes = task.template weights<Form::kBoxes>(unit, blob);
    const uint32_t bytes = box_bytes(unit, boxes);
    for (int s = 0; s < task.pieces(); ++s) {
      begin_stage(unit, bytes);
      if (Form::kWeightBoxes && thread() == 0) copy_weight_boxes(boxes);
      if (Form::kTokenBoxes && thread() == 0) copy_token_boxes(s, unit);
      if constexpr (!Form::kTokenBoxes) copy_tokens(s);
      if constexpr (!Form::kWeightBoxes) copy_weights(boxes);
      task.next_piece(s, boxes);
      signal();
      at.advance();
    }
  }

  /// Of the boxes of a stage.
  __device__ static uint32_t box_bytes(const HopperUnit& unit, const WeightBoxes<Form::kBoxes>& boxes) {
    uint32_t bytes = 0;
    MOESTRO_UNROLL
    for (int i = 0; i < Form::kBoxes; ++i) bytes += Form::kWeightBoxes && boxes.offset[i] >= 0 ? kBoxBytes : 0;
    return bytes + (Form::kTokenBoxes ? (unit.count > kBoxRows ? 2 : 1) * kBoxBytes : 0);
  }

  __device__ void begin_stage(const HopperUnit& unit, uint32_t bytes) {
    wait_for(room.empty(at.stage), at.phase ^ 1u);
    if (thread() != 0) return;
    *room.unit(at.stage) = unit;
    arrive_for_bytes(room.full(at.stage), bytes);
  }

  __device__ void copy_weight_boxes(const WeightBoxes<Form::kBoxes>& boxes) {
    MOESTRO_UNROLL
    for (int i = 0; i < Form::kBoxes; ++i)
      if (boxes.offset[i] >= 0)
        copy(room.weights(at.stage) + i * kBoxBytes, task.weight_map(), boxes.origin + boxes.offset[i]);
  }
  __device__ void copy_token_boxes(int s, const HopperUnit& unit) {
    const char* first = task.tokens() + unit.first * task.tokens_pitch() + static_cast<int64_t>(s) * kPieceBytes;
    copy(room.tokens(at.stage), task.token_map(), first);
    if (unit.count > kBoxRows)
      copy(room.tokens(at.stage) + kBoxBytes, task.token_map(), first + kBoxRows * task.tokens_pitch());
  }
  __device__ void copy(char* to, const TensorMap& map, const char* first) {
    const uint64_t byte = reinterpret_cast<uint64_t>(first) - kMapBase;
    copy_box(to, map, static_cast<int32_t>(byte % kMapPage / 2), 0, static_cast<int32_t>(byte / kMapPage),
             room.full(at.stage));
  }

  __device__ void copy_tokens(int s) {
    char* to = room.tokens(at.stage) + swizzled_piece(row(), piece());
    const char* columns = task.tokens() + static_cast<int64_t>(s) * kPieceBytes + piece() * 16;
    MOESTRO_UNROLL
    for (int i = 0; i < kTokenCopies; ++i)
      copy_async16(to + i * kRowsAtOnce * kPieceBytes, columns + from[i] * task.tokens_pitch());
  }
  __device__ void copy_weights(const WeightBoxes<Form::kBoxes>& boxes) {
    char* to = room.weights(at.stage) + swizzled_piece(row(), piece());
    const char* columns = boxes.origin + row() * boxes.pitch + piece() * 16;
    constexpr int kOfBox = kBoxRows / kRowsAtOnce;
    MOESTRO_UNROLL
    for (int i = 0; i < kWeightCopies; ++i)
      if (boxes.offset[i / kOfBox] >= 0)
        copy_async16(to + i * kRowsAtOnce * kPieceBytes,
                     columns + boxes.offset[i / kOfBox] + i % kOfBox * kRowsAtOnce * boxes.pitch);
  }

  __device__ void signal() {
    if constexpr (Form::kTokenBoxes) {
      // The bytes of boxes tell by themselves.
    } else if constexpr (Form::kSignals) {
      arrive_after_copies(room.full(at.stage));
    } else {
      commit_copies();
      if (++untold > Form::kAhead) tell<Form::kAhead>();
    }
  }
  /// The oldest stage's copies of this thread have come.
  template <int kLeft>
  __device__ void tell() {
    wait_copies<kLeft>();
    show_to_products();
    arrive(room.full(told.stage));
    told.advance();
    --untold;
  }
};

template <typename Form, typename Task>
struct HopperConsumer {
  const Task& task;
  const typename Form::Room& room;
  const int first_token;  ///< of the tile, this warpgroup's
  RingPlace<Form::kStages> at;
  using Sums = float[Form::kRows / 2];  ///< as multiply_warpgroup

  __device__ HopperConsumer(const Task& task_, const typename Form::Room& room_)
      : task(task_), room(room_), first_token((same(static_cast<int>(threadIdx.x)) / kWarpgroup - 1) * 64) {}

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
        multiply_all(sums);
        put(unit, sums);
      } else {
        pass_all();
      }
    }
  }

  __device__ void leave(int stage) {
    if (lane_id() == 0) arrive(room.empty(stage));
  }

  __device__ void multiply_all(Sums& sums) {
    int before = 0;
    for (int s = 0; s < task.pieces(); ++s) {
      wait_for(room.full(at.stage), at.phase);
      if constexpr (Form::kSignals) show_to_products();
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
    for (int s = 0; s < task.pieces(); ++s) {
      wait_for(room.full(at.stage), at.phase);
      leave(at.stage);
      at.advance();
    }
  }

  __device__ void put(const HopperUnit& unit, const Sums& sums) {
    const int warp = static_cast<int>(threadIdx.x) % kWarpgroup / kWarp;
    MOESTRO_UNROLL
    for (int h = 0; h < 2; ++h) {
      const int token = first_token + warp * 16 + lane_id() / 4 + 8 * h;
      task.put(unit, token, h, sums);
    }
  }
};

template <typename Form, typename Task>
__global__ void __launch_bounds__(kHopperThreads, 1) hopper_kernel(const __grid_constant__ typename Task::Arguments a) {
  const Task task{a};
  const typename Form::Room room;
  if (threadIdx.x == 0) {
    constexpr uint32_t kProducers = Form::kTokenBoxes ? 1 : kWarpgroup + 1, kReaders = 2 * kWarpgroup / kWarp;
    for (int i = 0; i < Form::kStages; ++i) {
      init_barrier(room.full(i), kProducers);
      init_barrier(room.empty(i), kReaders);
    }
    publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x < kWarpgroup) {
    give_registers<Form::kWeightBoxes ? 40 : 56>();
    // If all comes by boxes, one thread brings it.
    if (!Form::kTokenBoxes || threadIdx.x == 0) HopperProducer<Form, Task>{task, room, {}, {}, 0, {}}.run();
  } else {
    take_registers<Form::kWeightBoxes ? 232 : 224>();
    HopperConsumer<Form, Task>(task, room).run();
  }
}

/// Of grouped products.
struct HopperExperts {
  MoestroCudaExperts a;
  int32_t tiles_max;  ///< entries of a.token_tiles
  TensorMap weights, tokens;
};

struct GroupedTask {
  using Arguments = HopperExperts;
  const Arguments& a;

  __device__ const TensorMap& weight_map() const { return a.weights; }
  __device__ const TensorMap& token_map() const { return a.tokens; }
  /// All tiles of a run are visited before the next rows of the weights: the run's tokens stay in L2.
  __device__ bool find_unit(int index, int row_blocks, HopperUnit& unit, const char*& blob) const {
    if (index / row_blocks >= a.tiles_max) return false;
    const MoestroCudaTokenTile run = a.a.token_tiles[index / row_blocks];
    if (run.blob == 0) return false;
    const int rest = index - run.first * row_blocks;
    blob = reinterpret_cast<const char*>(run.blob);
    unit.row_block = rest / run.tiles;
    unit.first = run.begin + rest % run.tiles * kHopperTokens;
    unit.count = at_most(kHopperTokens, run.end - unit.first);
    return true;
  }
};

/// words[i] becomes words[lane % 4] of lane i of four.
__device__ inline void transpose_of_four(uint32_t (&words)[4]) {
  const bool odd = (lane_id() & 1) != 0, second = (lane_id() & 2) != 0;
  const auto exchange = [](uint32_t& low, uint32_t& high, bool keeps_high, int step) {
    const uint32_t come = __shfl_xor_sync(kWholeWarp, keeps_high ? low : high, step);
    (keeps_high ? low : high) = come;
  };
  exchange(words[0], words[1], odd, 1);
  exchange(words[2], words[3], odd, 1);
  exchange(words[0], words[2], second, 2);
  exchange(words[1], words[3], second, 2);
}

/// activated = silu(gate x) * (up x): the first half of a unit's rows is of gate, the second of up.
struct GateUpTask : GroupedTask {
  __device__ explicit GateUpTask(const Arguments& arguments) : GroupedTask{arguments} {}

  __device__ int64_t hidden() const { return a.a.layout.hidden; }
  __device__ int pieces() const { return static_cast<int>(hidden() / kHopperDepth); }
  __device__ const char* tokens() const { return reinterpret_cast<const char*>(a.a.rounded_x); }
  __device__ int64_t tokens_pitch() const { return hidden() * 2; }
  __device__ uint32_t token(int row) const { return static_cast<uint32_t>(a.a.sorted[row].token); }
};
template <int kRows>
struct GateUpRows : GateUpTask {
  using GateUpTask::GateUpTask;
  static constexpr int kHalf = kRows / 2;

  __device__ bool find(int index, HopperUnit& unit, const char*& blob) const {
    return find_unit(index, static_cast<int>(divided_up(a.a.layout.ffn, kHalf)), unit, blob);
  }
  template <int kBoxes>
  __device__ WeightBoxes<kBoxes> weights(const HopperUnit& unit, const char* blob) const {
    const MoestroCudaExpertLayout& layout = a.a.layout;
    WeightBoxes<kBoxes> boxes{blob, {}, hidden() * 2};
    MOESTRO_UNROLL
    for (int i = 0; i < kBoxes / 2; ++i) {
      const int64_t f = static_cast<int64_t>(unit.row_block) * kHalf + i * kBoxRows, tile = f / layout.tile_ffn;
      const MoestroCudaTile& at = tile_at(layout, tile);
      const int64_t row = tile * layout.tile_bytes + f % layout.tile_ffn * boxes.pitch;
      boxes.offset[i] = f < layout.ffn ? row + at.gate : -1;
      boxes.offset[kBoxes / 2 + i] = f < layout.ffn ? row + at.up : -1;
    }
    return boxes;
  }
  template <int kBoxes>
  __device__ void next_piece(int, WeightBoxes<kBoxes>& boxes) const {
    boxes.origin += kPieceBytes;
  }
  /// Four lanes have a row's columns in turns of two; they exchange them, and each stores eight in turn.
  template <int kSums>
  __device__ void put(const HopperUnit& unit, int token, int h, const float (&sums)[kSums]) const {
    const int64_t ffn = a.a.layout.ffn;
    const int64_t first = static_cast<int64_t>(unit.row_block) * kHalf + lane_id() % 4 * 8;
    uint16_t* to = a.a.rounded_activated + (unit.first + token) * ffn + first;
    MOESTRO_UNROLL
    for (int j = 0; j < kHalf / 8; j += 4) {
      Bytes16 eight;
      MOESTRO_UNROLL
      for (int i = 0; i < 4; ++i) {
        const float* gate = &sums[4 * (j + i) + 2 * h];
        const float* up = gate + kSums / 2;
        eight.words[i] = bf16_pair(fast_activated(gate[0], up[0]), fast_activated(gate[1], up[1]));
      }
      transpose_of_four(eight.words);
      if (token < unit.count && first + 8 * j < ffn) store_as(to + 8 * j, eight);
    }
  }
};

/// out = down activated.
template <int kRows>
struct DownRows : GroupedTask {
  __device__ explicit DownRows(const Arguments& arguments) : GroupedTask{arguments} {}

  __device__ int pieces() const { return static_cast<int>(a.a.layout.ffn / kHopperDepth); }
  __device__ bool find(int index, HopperUnit& unit, const char*& blob) const {
    return find_unit(index, static_cast<int>(divided_up(a.a.layout.hidden, kRows)), unit, blob);
  }
  __device__ const char* tokens() const { return reinterpret_cast<const char*>(a.a.rounded_activated); }
  __device__ int64_t tokens_pitch() const { return a.a.layout.ffn * 2; }
  __device__ uint32_t token(int row) const { return static_cast<uint32_t>(row); }
  template <int kBoxes>
  __device__ WeightBoxes<kBoxes> weights(const HopperUnit& unit, const char* blob) const {
    const MoestroCudaExpertLayout& layout = a.a.layout;
    WeightBoxes<kBoxes> boxes{blob + layout.full.down, {}, layout.tile_ffn * 2};
    MOESTRO_UNROLL
    for (int i = 0; i < kBoxes; ++i) {
      const int64_t h = static_cast<int64_t>(unit.row_block) * kRows + i * kBoxRows;
      boxes.offset[i] = h < layout.hidden ? h * boxes.pitch : -1;
    }
    return boxes;
  }
  /// Tiles are equally wide.
  template <int kBoxes>
  __device__ void next_piece(int s, WeightBoxes<kBoxes>& boxes) const {
    const int of_tile = static_cast<int>(a.a.layout.tile_ffn) / kHopperDepth;
    boxes.origin += (s + 1) % of_tile != 0 ? kPieceBytes : a.a.layout.tile_bytes - (of_tile - 1) * kPieceBytes;
  }
  template <int kSums>
  __device__ void put(const HopperUnit& unit, int token, int h, const float (&sums)[kSums]) const {
    if (token >= unit.count) return;
    const int64_t first = static_cast<int64_t>(unit.row_block) * kRows + lane_id() % 4 * 2;
    float* to = out_row(a.a, a.a.sorted[unit.first + token]) + first;
    MOESTRO_UNROLL
    for (int j = 0; j < kRows / 8; ++j) {
      if (first + 8 * j >= a.a.layout.hidden) break;
      const int at = 4 * j + 2 * h;
      store_as(to + 8 * j, Bytes8{{float_to_bits(sums[at]), float_to_bits(sums[at + 1])}});
    }
  }
};

/// Of y = x w^T + bias.
struct HopperMatmul {
  MoestroCudaMatmul a;
  TensorMap weights, tokens;
};
template <int kRows>
struct DenseRows {
  using Arguments = HopperMatmul;
  const Arguments& a;

  __device__ const TensorMap& weight_map() const { return a.weights; }
  __device__ const TensorMap& token_map() const { return a.tokens; }
  __device__ bool find(int index, HopperUnit& unit, const char*& blob) const {
    const int tiles = static_cast<int>(divided_up(a.a.n, kHopperTokens)),
              row_blocks = static_cast<int>(divided_up(a.a.rows, kRows));
    if (index >= tiles * row_blocks) return false;
    const int first = index / row_blocks / MOESTRO_CUDA_RUN_TILES * MOESTRO_CUDA_RUN_TILES;
    const int of_run = at_most(MOESTRO_CUDA_RUN_TILES, tiles - first), rest = index - first * row_blocks;
    blob = static_cast<const char*>(a.a.weight);
    unit.row_block = rest / of_run;
    unit.first = (first + rest % of_run) * kHopperTokens;
    unit.count = static_cast<int32_t>(at_most<int64_t>(kHopperTokens, a.a.n - unit.first));
    return true;
  }
  __device__ int pieces() const { return static_cast<int>(a.a.cols / kHopperDepth); }
  __device__ const char* tokens() const { return reinterpret_cast<const char*>(a.a.rounded_x); }
  __device__ int64_t tokens_pitch() const { return a.a.cols * 2; }
  __device__ uint32_t token(int row) const { return static_cast<uint32_t>(row); }
  template <int kBoxes>
  __device__ WeightBoxes<kBoxes> weights(const HopperUnit& unit, const char* blob) const {
    WeightBoxes<kBoxes> boxes{blob, {}, a.a.cols * 2};
    MOESTRO_UNROLL
    for (int i = 0; i < kBoxes; ++i) {
      const int64_t r = static_cast<int64_t>(unit.row_block) * kRows + i * kBoxRows;
      boxes.offset[i] = r < a.a.rows ? r * boxes.pitch : -1;
    }
    return boxes;
  }
  template <int kBoxes>
  __device__ void next_piece(int, WeightBoxes<kBoxes>& boxes) const {
    boxes.origin += kPieceBytes;
  }
  template <int kSums>
  __device__ void put(const HopperUnit& unit, int token, int h, const float (&sums)[kSums]) const {
    if (token >= unit.count) return;
    const int64_t first = static_cast<int64_t>(unit.row_block) * kRows + lane_id() % 4 * 2;
    float* to = a.a.y + (unit.first + token) * a.a.rows + first;
    MOESTRO_UNROLL
    for (int j = 0; j < kRows / 8; ++j) {
      if (first + 8 * j >= a.a.rows) break;
      float two[2] = {sums[4 * j + 2 * h], sums[4 * j + 2 * h + 1]};
      if (a.a.bias != nullptr) two[0] += a.a.bias[first + 8 * j], two[1] += a.a.bias[first + 8 * j + 1];
      store_as(to + 8 * j, Bytes8{{float_to_bits(two[0]), float_to_bits(two[1])}});
    }
  }
};

}  // namespace moestro::kernels::cuda
