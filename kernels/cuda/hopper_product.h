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

#include "kernels/cuda/experts_work.h"
#include "kernels/cuda/hopper.h"
#include "kernels/cuda/reduce.h"

namespace moestro::kernels::cuda {

inline constexpr int kHopperTokens = 128, kHopperDepth = 64, kHopperThreads = 3 * kWarpgroup;
inline constexpr int kBoxRows = 64, kPieceBytes = kHopperDepth * 2;
inline constexpr uint32_t kBoxBytes = kBoxRows * kPieceBytes, kSwizzleAlign = 1024;
#if defined(__CUDACC__)
inline constexpr int64_t kMapPage = 4096;
#else
inline constexpr int64_t kMapPage = 1 << 20;  // addresses of a host are further apart
#endif
/// Token tiles of an expert that are visited before the next rows of its weights: they stay in L2 meanwhile.
inline constexpr int kTilesTogether = 16;

/// Tokens of an expert that are computed at once.
struct TokenTile {
  int32_t expert, first, count;  ///< rows [first, first + count)
  int32_t group, group_size;     ///< the tiles that are visited together: the first one, and how many
};

/// A unit of work, as the producer tells the consumers.
struct alignas(16) HopperUnit {
  int32_t first, count, row_block, expert;
};

/// Where the weights of a unit lie: 64 rows from each origin + offset[i], `pitch` bytes apart.
template <int kBoxes>
struct WeightBoxes {
  const char* origin;
  int64_t offset[kBoxes];  ///< below 0: no such rows
  int64_t pitch;
};

struct HopperMap {
  TensorMap map;
  uint64_t base;  ///< a multiple of kMapPage below all weights
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
  __device__ uint32_t tokens(int stage) const {
    return shared_address(begin) + static_cast<uint32_t>(stage) * kStageBytes;
  }
  __device__ uint32_t weights(int stage) const { return tokens(stage) + kTokenBytes; }
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

/// What is variable: kBoxCopies: weights come by copy_box, otherwise by copies of 16 bytes as tokens do. kSignals: the
/// hardware signals that copies have come; otherwise their thread does, when it has begun later ones.
template <int kRows_, int kStages_, bool kBoxCopies_, bool kSignals_>
struct HopperForm {
  static constexpr int kRows = kRows_, kStages = kStages_, kBoxes = kRows_ / kBoxRows;
  static constexpr bool kBoxCopies = kBoxCopies_, kSignals = kSignals_;
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
    const int total = task.tiles() * task.row_blocks();
    for (int u = static_cast<int>(blockIdx.x); u < total; u += static_cast<int>(gridDim.x)) run_unit(u);
    while (untold > 0) tell<0>();
  }

  __device__ void run_unit(int index) {
    const int row_blocks = task.row_blocks();
    TokenTile tile = task.tile(index / row_blocks);
    const int rest = index - tile.group * row_blocks, row_block = rest / tile.group_size;
    tile = task.tile(tile.group + rest % tile.group_size);
    const HopperUnit unit{tile.first, tile.count, row_block, tile.expert};
    MOESTRO_UNROLL
    for (int i = 0; i < kTokenCopies; ++i)
      from[i] = task.token(tile.first + at_most(row() + i * kRowsAtOnce, tile.count - 1));
    auto boxes = task.template weights<Form::kBoxes>(unit);
    for (int s = 0; s < task.pieces(); ++s) {
      wait_for(room.empty(at.stage), at.phase ^ 1u);
      if (thread() == 0) {
        if (s == 0) *room.unit(at.stage) = unit;
        begin_stage(boxes);
      }
      copy_tokens(s);
      if constexpr (!Form::kBoxCopies) copy_weights(boxes);
      task.next_piece(s, boxes);
      signal();
      at.advance();
    }
  }

  /// One thread's.
  __device__ void begin_stage(const WeightBoxes<Form::kBoxes>& boxes) {
    uint32_t bytes = 0;
    if constexpr (Form::kBoxCopies) {
      MOESTRO_UNROLL
      for (int i = 0; i < Form::kBoxes; ++i) bytes += boxes.offset[i] < 0 ? 0 : kBoxBytes;
    }
    arrive_for_bytes(room.full(at.stage), bytes);
    if constexpr (Form::kBoxCopies) {
      MOESTRO_UNROLL
      for (int i = 0; i < Form::kBoxes; ++i) {
        if (boxes.offset[i] < 0) continue;
        const uint64_t from_base =
            reinterpret_cast<uint64_t>(boxes.origin + boxes.offset[i]) - task.map().base;
        copy_box(room.weights(at.stage) + static_cast<uint32_t>(i) * kBoxBytes, task.map().map,
                 static_cast<int32_t>(from_base % kMapPage / 2), 0, static_cast<int32_t>(from_base / kMapPage),
                 room.full(at.stage));
      }
    }
  }

  __device__ void copy_tokens(int s) {
    const uint32_t to = room.tokens(at.stage) + swizzled_piece(row(), piece());
    const char* columns = task.tokens() + static_cast<int64_t>(s) * kPieceBytes + piece() * 16;
    MOESTRO_UNROLL
    for (int i = 0; i < kTokenCopies; ++i)
      copy16_async(to + static_cast<uint32_t>(i * kRowsAtOnce * kPieceBytes), columns + from[i] * task.tokens_pitch());
  }
  __device__ void copy_weights(const WeightBoxes<Form::kBoxes>& boxes) {
    const uint32_t to = room.weights(at.stage) + swizzled_piece(row(), piece());
    const char* columns = boxes.origin + row() * boxes.pitch + piece() * 16;
    constexpr int kOfBox = kBoxRows / kRowsAtOnce;
    MOESTRO_UNROLL
    for (int i = 0; i < kWeightCopies; ++i)
      if (boxes.offset[i / kOfBox] >= 0)
        copy16_async(to + static_cast<uint32_t>(i * kRowsAtOnce * kPieceBytes),
                     columns + boxes.offset[i / kOfBox] + i % kOfBox * kRowsAtOnce * boxes.pitch);
  }

  __device__ void signal() {
    if constexpr (Form::kSignals) {
      arrive_after_copies(room.full(at.stage));
    } else {
      end_copy_group();
      if (++untold > Form::kAhead) tell<Form::kAhead>();
    }
  }
  /// The oldest stage's copies of this thread have come.
  template <int kLeft>
  __device__ void tell() {
    wait_copy_groups<kLeft>();
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
  using Sums = float[Form::kRows / 2];  ///< as multiply_warpgroup
  RingPlace<Form::kStages> at;

  /// All lanes have what one has: the compiler does not know it of threadIdx or shared memory, and would not leave
  /// products under way where lanes may differ.
  __device__ static int same(int value) { return __shfl_sync(kWholeWarp, value, 0); }
  __device__ static int first_token() { return (same(static_cast<int>(threadIdx.x)) / kWarpgroup - 1) * 64; }

  __device__ void run() {
    const int total = task.tiles() * task.row_blocks();
    for (int u = static_cast<int>(blockIdx.x); u < total; u += static_cast<int>(gridDim.x)) {
      wait_for(room.full(at.stage), at.phase);
      const HopperUnit unit = *room.unit(at.stage);
      if (first_token() < same(unit.count)) {
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
      const uint64_t tokens =
          swizzled_rows(room.tokens(at.stage) + static_cast<uint32_t>(first_token() * kPieceBytes));
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
      const int token = first_token() + warp * 16 + lane_id() / 4 + 8 * h;
      if (token < unit.count) task.put(unit, token, h, lane_id() % 4 * 2, sums);
    }
  }
};

template <typename Form, typename Task>
__global__ void __launch_bounds__(kHopperThreads, 1) hopper_kernel(const __grid_constant__ typename Task::Arguments a) {
  const Task task{a};
  const typename Form::Room room;
  if (threadIdx.x == 0) {
    constexpr uint32_t kProducers = kWarpgroup + 1, kReaders = 2 * kWarpgroup / kWarp;
    for (int i = 0; i < Form::kStages; ++i) {
      init_barrier(room.full(i), kProducers);
      init_barrier(room.empty(i), kReaders);
    }
    publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x < kWarpgroup) {
    give_registers<40>();
    HopperProducer<Form, Task>{task, room, {}, {}, 0, {}}.run();
  } else {
    take_registers<232>();
    HopperConsumer<Form, Task>{task, room, {}}.run();
  }
}

/// The list of token tiles, made on the device.
struct TileList {
  const int32_t* count;
  const int32_t* experts;  ///< of each tile
  const int32_t* indexes;  ///< which tile of its expert
};

/// Of grouped products.
struct HopperExperts {
  MoestroCudaExperts a;
  TileList tiles;
  const uint16_t* x;    ///< bf16 [tokens, hidden]
  uint16_t* activated;  ///< bf16 [rows of `sorted`, ffn]
  HopperMap map;
};

struct GroupedTask {
  using Arguments = HopperExperts;
  const Arguments& a;

  __device__ const HopperMap& map() const { return a.map; }
  __device__ int tiles() const { return *a.tiles.count; }
  __device__ TokenTile tile(int index) const {
    const int expert = a.tiles.experts[index], of_expert = a.tiles.indexes[index];
    const int begin = a.a.offsets[expert], rows = a.a.offsets[expert + 1] - begin;
    const int all = (rows + kHopperTokens - 1) / kHopperTokens, in_group = of_expert % kTilesTogether;
    return {expert, begin + of_expert * kHopperTokens, at_most(kHopperTokens, rows - of_expert * kHopperTokens),
            index - in_group, at_most(kTilesTogether, all - (of_expert - in_group))};
  }
  __device__ const char* blob(int expert) const { return reinterpret_cast<const char*>(a.a.slots[expert]); }
};

/// activated = silu(gate x) * (up x): the first half of a unit's rows is of gate, the second of up.
struct GateUpTask : GroupedTask {
  __device__ explicit GateUpTask(const Arguments& arguments) : GroupedTask{arguments} {}

  __device__ int64_t hidden() const { return a.a.layout.hidden; }
  __device__ int pieces() const { return static_cast<int>(hidden() / kHopperDepth); }
  __device__ const char* tokens() const { return reinterpret_cast<const char*>(a.x); }
  __device__ int64_t tokens_pitch() const { return hidden() * 2; }
  __device__ uint32_t token(int row) const { return static_cast<uint32_t>(a.a.sorted[row].token); }
};
template <int kRows>
struct GateUpRows : GateUpTask {
  using GateUpTask::GateUpTask;
  static constexpr int kHalf = kRows / 2;

  __device__ int row_blocks() const { return static_cast<int>(divided_up(a.a.layout.ffn, kHalf)); }
  template <int kBoxes>
  __device__ WeightBoxes<kBoxes> weights(const HopperUnit& unit) const {
    const MoestroCudaExpertLayout& layout = a.a.layout;
    WeightBoxes<kBoxes> boxes{blob(unit.expert), {}, hidden() * 2};
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
  template <int kSums>
  __device__ void put(const HopperUnit& unit, int token, int h, int column, const float (&sums)[kSums]) const {
    const int64_t ffn = a.a.layout.ffn, first = static_cast<int64_t>(unit.row_block) * kHalf + column;
    uint16_t* to = a.activated + (unit.first + token) * ffn + first;
    MOESTRO_UNROLL
    for (int j = 0; j < kHalf / 8; ++j) {
      if (first + 8 * j >= ffn) break;
      uint32_t both = 0;
      MOESTRO_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int at = 4 * j + 2 * h + i;
        both |= static_cast<uint32_t>(bf16_bits(cuda::activated(sums[at], sums[kSums / 2 + at]))) << (16 * i);
      }
      store_as(to + 8 * j, both);
    }
  }
};

/// out = down activated.
template <int kRows>
struct DownRows : GroupedTask {
  __device__ explicit DownRows(const Arguments& arguments) : GroupedTask{arguments} {}

  __device__ int pieces() const { return static_cast<int>(a.a.layout.ffn / kHopperDepth); }
  __device__ int row_blocks() const { return static_cast<int>(divided_up(a.a.layout.hidden, kRows)); }
  __device__ const char* tokens() const { return reinterpret_cast<const char*>(a.activated); }
  __device__ int64_t tokens_pitch() const { return a.a.layout.ffn * 2; }
  __device__ uint32_t token(int row) const { return static_cast<uint32_t>(row); }
  template <int kBoxes>
  __device__ WeightBoxes<kBoxes> weights(const HopperUnit& unit) const {
    const MoestroCudaExpertLayout& layout = a.a.layout;
    WeightBoxes<kBoxes> boxes{blob(unit.expert) + layout.full.down, {}, layout.tile_ffn * 2};
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
  __device__ void put(const HopperUnit& unit, int token, int h, int column, const float (&sums)[kSums]) const {
    const int64_t first = static_cast<int64_t>(unit.row_block) * kRows + column;
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
  const uint16_t* x;  ///< bf16 [n, cols]
  HopperMap map;
};
template <int kRows>
struct DenseRows {
  using Arguments = HopperMatmul;
  const Arguments& a;

  __device__ const HopperMap& map() const { return a.map; }
  __device__ int tiles() const { return static_cast<int>(divided_up(a.a.n, kHopperTokens)); }
  __device__ TokenTile tile(int index) const {
    const int in_group = index % kTilesTogether, first = index * kHopperTokens;
    return {0, first, static_cast<int32_t>(at_most<int64_t>(kHopperTokens, a.a.n - first)), index - in_group,
            at_most(kTilesTogether, tiles() - (index - in_group))};
  }
  __device__ int pieces() const { return static_cast<int>(a.a.cols / kHopperDepth); }
  __device__ int row_blocks() const { return static_cast<int>(divided_up(a.a.rows, kRows)); }
  __device__ const char* tokens() const { return reinterpret_cast<const char*>(a.x); }
  __device__ int64_t tokens_pitch() const { return a.a.cols * 2; }
  __device__ uint32_t token(int row) const { return static_cast<uint32_t>(row); }
  template <int kBoxes>
  __device__ WeightBoxes<kBoxes> weights(const HopperUnit& unit) const {
    WeightBoxes<kBoxes> boxes{static_cast<const char*>(a.a.weight), {}, a.a.cols * 2};
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
  __device__ void put(const HopperUnit& unit, int token, int h, int column, const float (&sums)[kSums]) const {
    const int64_t first = static_cast<int64_t>(unit.row_block) * kRows + column;
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
