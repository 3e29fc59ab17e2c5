#pragma once
// Products of many tokens on tensor cores: a block computes a tile of tokens by rows of weights; the rows may be of two
// matrices (gate and up) that share the tokens. Activations come as bf16, weights as they are stored; formats other
// than bf16 are widened between shared memory and the instruction (tile_weights.h). Sums are f32.
//
// Both sides are copied to shared memory in pieces of kDepth columns, several of them in flight (stages). 16 bytes of a
// row are a chunk; the chunks of a row are exchanged by a number made of the row's (swizzled), so that neither the
// copies nor load_matrices meet in a bank. The fragments of 16 columns are loaded while those before are multiplied.
//
// The order of a sum depends on its columns alone. Zeros stand in for what is behind the last column, row and token.

#include <type_traits>

#include "kernels/cuda/async_copy.h"
#include "kernels/cuda/mma.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/tile_weights.h"

namespace moestro::kernels::cuda {

/// The shape of a block: tokens x rows, of kTokenWarps x kRowWarps warps.
template <int kTokens_, int kRows_, int kTokenWarps_, int kRowWarps_, int kDepth_, int kStages_, int kBlocksOfSm_>
struct TileShape {
  static constexpr int kTokens = kTokens_, kRows = kRows_, kTokenWarps = kTokenWarps_, kRowWarps = kRowWarps_,
                       kDepth = kDepth_, kStages = kStages_, kBlocksOfSm = kBlocksOfSm_;
  static constexpr int kThreads = kTokenWarps * kRowWarps * kWarp;
  static constexpr int kSixteens = kTokens / kTokenWarps / 16;  ///< of tokens of a warp
  static constexpr int kEights = kRows / kRowWarps / 8;         ///< of rows of a warp
  static_assert(kDepth == 32 || kDepth == 64);
  static_assert(kStages >= 3 && kEights % 4 == 0);
};

/// The byte of chunk `chunk` of row `row`, of rows of kRowBytes.
template <int kRowBytes>
__host__ __device__ constexpr int swizzled(int row, int chunk) {
  constexpr int kChunks = kRowBytes / 16, kRowsOfBanks = 128 / kRowBytes;
  return row * kRowBytes + ((chunk ^ (row / kRowsOfBanks % kChunks)) * 16);
}

/// Shared memory: stages one after another.
template <typename W, typename S>
struct StageBytes {
  static constexpr int kXRow = S::kDepth * 2, kWRow = S::kDepth * W::kBits / 8;
  static constexpr int kX = S::kTokens * kXRow, kW = S::kRows * kWRow;
  static constexpr int kParameters = W::kParameters > 0 ? S::kRows * 4 : 0;
  static constexpr int kStage = kX + kW + kParameters;
  static constexpr int kAll = kStage * S::kStages;
};

/// Where a piece is in rows of weights that are as long as each other and lie in one tile of a blob.
struct PieceOfRows {
  int64_t offset = 0;  ///< bytes from a row's place
  int64_t parameters = 0;  ///< numbers from the place of a row's parameters
  int bytes = 0;  ///< of a row from `offset` on
};

/// `Source` has:
///   const uint16_t* x(int token) const         a token's row; null: there is none
///   const uint16_t* any_x() const              a valid address
///   void start(int piece)                      what follows is about this piece
///   bool next()                                about the next one; true: rows have other places from now on
///   PieceOfRows piece() const
///   const char* row(int row) const             the place of a row of the tile; a valid one also for rows that are not
///                                              there, whose sums mean nothing
///   const uint16_t* parameters(int row) const  the same of its parameters
/// or, of DecodedTiles, in place of what follows start():
///   void fill(char* to)                        puts the next piece of the weights to `to`, as a stage has it
/// kMatrices: 2: the rows of a tile are as many of one matrix, then of another. kAligned: every row of weights begins
/// at a multiple of 16 bytes.
template <typename W, typename S, int kMatrices, bool kAligned, typename Source>
class ProductTile {
  using Bytes = StageBytes<W, S>;
  static constexpr int kSteps = S::kDepth / 16;
  static constexpr int kXChunks = Bytes::kXRow / 16, kWChunks = Bytes::kWRow / 16;  ///< of a row
  static constexpr int kXAtOnce = S::kThreads / kXChunks, kWAtOnce = S::kThreads / kWChunks;  ///< rows
  static constexpr int kXCopies = S::kTokens / kXAtOnce, kWCopies = S::kRows / kWAtOnce;  ///< of a thread
  static constexpr int kHalf = S::kEights / kMatrices;  ///< eights of one matrix
  static constexpr int kWords = W::kBits == 16 ? 2 : 1;  ///< that make a fragment
  static_assert(kXCopies * kXAtOnce == S::kTokens && kWCopies * kWAtOnce == S::kRows, "all threads copy equally much");
  static_assert(kXAtOnce % 8 == 0 && kWAtOnce % 8 == 0, "a thread's chunks are exchanged alike");
  static_assert(W::kParameters == 0 || S::kRows <= S::kThreads, "a thread for each row's parameters");
  static constexpr bool kDecoded = std::is_same_v<W, DecodedTiles>;

 public:
  float sums[S::kSixteens][S::kEights][4];

  __device__ explicit ProductTile(Source& source) : source_(source), room_(shared_memory()) {
    MOESTRO_UNROLL
    for (int m = 0; m < S::kSixteens; ++m) {
      MOESTRO_UNROLL
      for (int n = 0; n < S::kEights; ++n) {
        MOESTRO_UNROLL
        for (int i = 0; i < 4; ++i) sums[m][n][i] = 0.0f;
      }
    }
    MOESTRO_UNROLL
    for (int i = 0; i < kXCopies; ++i) {
      const uint16_t* row = source.x(thread() / kXChunks + i * kXAtOnce);
      x_[i] = row != nullptr ? row + thread() % kXChunks * 8 : source.any_x();
      x_bytes_[i] = row != nullptr ? 16 : 0;
    }
    const int lane = lane_id();
    x_to_ = swizzled<Bytes::kXRow>(thread() / kXChunks, thread() % kXChunks);
    w_to_ = Bytes::kX + swizzled<Bytes::kWRow>(thread() / kWChunks, thread() % kWChunks);
    x_row_ = warp_id() / S::kRowWarps * (S::kTokens / S::kTokenWarps) + lane % 16;
    w_row_ = row_of(kWords == 2 ? lane / 16 : lane / 8) + lane % 8;
  }

  /// Adds the products of pieces [first, end). All threads of the block.
  __device__ void run(int first, int end) {
    source_.start(first);
    place_rows();
    MOESTRO_UNROLL
    for (int i = 0; i < kXCopies; ++i) x_[i] += x_bytes_[i] != 0 ? first * S::kDepth : 0;
    if constexpr (kDecoded) return run_decoded(first, end);
    for (int s = 0; s < S::kStages - 1; ++s) fill(first + s < end);
    begin_reading();
    for (int piece = first; piece < end; ++piece) multiply_piece([&] { fill(piece + S::kStages - 1 < end); });
    wait_copies<0>();
  }

  /// A lane's first token of a sixteen (the other is 8 further), and its first row of an eight of the first matrix (the
  /// other is adjacent).
  __device__ int token_of(int sixteen) const { return x_row_ - lane_id() % 16 + sixteen * 16 + lane_id() / 4; }
  __device__ static int row_of_pair(int eight) {
    return warp_id() % S::kRowWarps * (kHalf * 8) + eight * 8 + lane_id() % 4 * 2;
  }

 private:
  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ char* stage(int i) const { return room_ + i * Bytes::kStage; }
  __device__ static int next(int stage) { return stage + 1 == S::kStages ? 0 : stage + 1; }
  /// The first row in the tile of an eight of this warp.
  __device__ static int row_of(int eight) {
    return eight / kHalf * (S::kRows / kMatrices) + warp_id() % S::kRowWarps * (kHalf * 8) + eight % kHalf * 8;
  }

  __device__ void place_rows() {
    if constexpr (!kDecoded) {
      MOESTRO_UNROLL
      for (int i = 0; i < kWCopies; ++i)
        w_[i] = source_.row(thread() / kWChunks + i * kWAtOnce) + thread() % kWChunks * 16;
    }
    if constexpr (W::kParameters > 0) parameters_from_ = source_.parameters(thread() % S::kRows);
  }

  /// As run(), with one place in the code that fills stages, because decoding is long.
  __device__ void run_decoded(int first, int end) {
    constexpr int kAhead = S::kStages - 1;
#pragma unroll 1
    for (int piece = first - kAhead; piece < end; ++piece) {
      if (piece == first) begin_reading();
      fill(piece + kAhead < end);
      if (piece >= first) multiply_piece([] {});
    }
    wait_copies<0>();
  }

  __device__ void begin_reading() {
    wait_copies<S::kStages - 2>();
    __syncthreads();
    load(0, 0);
  }

  /// Multiplies the stage that is read, and goes on to the next. Calls begun() after its first fragments are loaded.
  template <typename Begun>
  __device__ void multiply_piece(Begun begun) {
    const char* parameters = stage(read_) + Bytes::kX + Bytes::kW;
    MOESTRO_UNROLL
    for (int step = 0; step < kSteps; ++step) {
      if (step == kSteps - 1) {
        wait_copies<S::kStages - 2>();
        __syncthreads();
        read_ = next(read_);
      }
      load((step + 1) % kSteps, (step + 1) % 2);
      // After the barrier of the last step nothing reads the stage that is filled now.
      if (step == 0) begun();
      multiply(step, parameters);
    }
  }

  /// Begins to fill the next stage with the next piece, if there is one.
  __device__ void fill(bool more) {
    store_parameters();
    if (more) copy();
    commit_copies();
    write_ = next(write_);
  }

  __device__ void copy() {
    char* to = stage(write_);
    MOESTRO_UNROLL
    for (int i = 0; i < kXCopies; ++i) {
      copy_async16(to + x_to_ + i * kXAtOnce * Bytes::kXRow, x_[i], x_bytes_[i]);
      x_[i] += x_bytes_[i] != 0 ? S::kDepth : 0;
    }
    if constexpr (kDecoded)
      source_.fill(to + Bytes::kX);
    else
      copy_weights(to);
  }

  __device__ void copy_weights(char* to) {
    const PieceOfRows piece = source_.piece();
    const int bytes = at_least(at_most(piece.bytes - thread() % kWChunks * 16, 16), 0);
    MOESTRO_UNROLL
    for (int i = 0; i < kWCopies; ++i)
      copy_chunk(to + w_to_ + i * kWAtOnce * Bytes::kWRow, w_[i] + piece.offset, bytes);
    if constexpr (W::kParameters > 0) {
      const uint16_t* from = parameters_from_ + piece.parameters;
      parameters_ = W::kParameters == 1 ? uint32_t{*from} : load_as<uint32_t>(from);
      if (thread() < S::kRows) parameters_to_ = to + Bytes::kX + Bytes::kW + thread() * 4;
    }
    if (source_.next()) place_rows();
  }

  __device__ static void copy_chunk(char* to, const char* from, int bytes) {
    if constexpr (kAligned) {
      copy_async16(to, from, bytes);
    } else {
      Bytes16 all{};
      for (int i = 0; i < bytes; ++i)
        all.words[i / 4] |= static_cast<uint32_t>(static_cast<unsigned char>(from[i])) << (i % 4 * 8);
      store_as(to, all);
    }
  }

  /// Parameters go through a register: they are stored one piece after they were loaded, when they have arrived.
  __device__ void store_parameters() {
    if constexpr (W::kParameters > 0) {
      if (parameters_to_ != nullptr) store_as(parameters_to_, parameters_);
      parameters_to_ = nullptr;
    }
  }

  /// The fragments of 16 columns of the stage that is read.
  __device__ void load(int step, int to) {
    const char* from = stage(read_);
    const int lane = lane_id();
    const int x_at = swizzled<Bytes::kXRow>(x_row_, step * 2 + lane / 16);
    MOESTRO_UNROLL
    for (int m = 0; m < S::kSixteens; ++m) load_matrices(left_[to][m], from + x_at + m * 16 * Bytes::kXRow);
    const int chunk = kWords == 2 ? step * 2 + lane / 8 % 2 : step * W::kBits / 8;
    const int w_at = Bytes::kX + swizzled<Bytes::kWRow>(w_row_, chunk);
    constexpr int kAtOnce = 4 / kWords;  // eights of rows
    MOESTRO_UNROLL
    for (int n = 0; n < S::kEights; n += kAtOnce) {
      const int further = n / kHalf * (S::kRows / kMatrices) + n % kHalf * 8;
      load_matrices(right_[to][n / kAtOnce], from + w_at + further * Bytes::kWRow);
    }
  }

  __device__ void multiply(int step, const char* parameters) {
    MOESTRO_UNROLL
    for (int n = 0; n < S::kEights; ++n) {
      uint32_t of_row = 0, words[kWords], b[2];
      if constexpr (W::kParameters > 0) of_row = load_as<uint32_t>(parameters + (row_of(n) + lane_id() / 4) * 4);
      MOESTRO_UNROLL
      for (int i = 0; i < kWords; ++i) words[i] = right_[step % 2][n * kWords / 4][n * kWords % 4 + i];
      W::fragment(words, step, of_row, b);
      MOESTRO_UNROLL
      for (int m = 0; m < S::kSixteens; ++m) multiply_tiles(sums[m][n], left_[step % 2][m], b);
    }
  }

  Source& source_;
  char* room_;
  // Where this thread's chunks are, and their places in a stage.
  const uint16_t* x_[kXCopies];
  const char* w_[kWCopies];
  const uint16_t* parameters_from_ = nullptr;
  int x_bytes_[kXCopies], x_to_, w_to_;
  int x_row_, w_row_;  ///< that this lane gives to load_matrices, of the first sixteen and eights
  int read_ = 0, write_ = 0;
  uint32_t left_[2][S::kSixteens][4], right_[2][S::kEights * kWords / 4][4];
  uint32_t parameters_ = 0;
  char* parameters_to_ = nullptr;
};

}  // namespace moestro::kernels::cuda
