#pragma once
// Formats whose rows are blocks of values with their scales (common/formats/blocks.h): how eight numbers of a block
// become f32. They are two fours of adjacent columns, kHalf columns apart, because that is how most formats divide
// bytes: the low halves of four bytes are one four, the high halves the other. Each number is what formats::dequantise
// gives, to the bit: products and sums are rounded one by one, in its order.
//
// A block may begin at any address that its size allows. It is read as bytes, as halves where all sizes are even, and
// as words that word_at() puts together where they are not aligned; no word is read that has none of the block's bytes.

#include "kernels/cuda/bf16_pairs.h"
#include "kernels/plugin/op_abi.h"

namespace moestro::kernels::cuda {

__device__ inline uint32_t block_byte(const char* at) { return load_as<uint8_t>(at); }
__device__ inline float block_f16(const char* at) { return f16_value(load_as<uint16_t>(at)); }

/// Four bytes from `at` on; kAligned: it is a multiple of 4.
template <bool kAligned>
__device__ inline uint32_t word_at(const char* at) {
  if constexpr (kAligned) return load_as<uint32_t>(at);
  const auto address = reinterpret_cast<uintptr_t>(at);
  const auto past = static_cast<uint32_t>(address % 4);
  const char* first = at - past;
  const uint32_t low = load_as<uint32_t>(first), high = load_as<uint32_t>(past == 0 ? first : first + 4);
  return past == 0 ? low : low >> (8 * past) | high << (32 - 8 * past);
}

/// 2^23 + n has n as its last bits.
__device__ inline float small_integer(uint32_t n) { return bits_to_float(0x4b000000u | n) - 8388608.0f; }
/// n - less; both are below 2^16.
__device__ inline float difference(uint32_t n, uint32_t less) {
  return bits_to_float(0x4b000000u | n) - bits_to_float(0x4b000000u | less);
}
/// Byte i as a number of 0 to 255, less 128.
__device__ inline float byte_less_128(uint32_t bytes, int i) {
  return bits_to_float(select_bytes(bytes, 0x4b000000u, 0x7440u + static_cast<uint32_t>(i))) - 8388736.0f;
}

/// Half byte 2i or 2i + 1 of a word.
__device__ inline uint32_t half_byte(uint32_t word, int i, int high) { return word >> (8 * i + 4 * high) & 15u; }

/// 16 signed bytes, each plus 128.
struct ByteTable {
  uint32_t words[4];
};
__host__ __device__ constexpr uint32_t table_word(int a, int b, int c, int d) {
  return static_cast<uint32_t>(a + 128) | static_cast<uint32_t>(b + 128) << 8 | static_cast<uint32_t>(c + 128) << 16 |
         static_cast<uint32_t>(d + 128) << 24;
}
/// formats::kE2M1Doubled and kIQ4NLValues.
__device__ inline ByteTable doubled_e2m1() {
  return {{table_word(0, 1, 2, 3), table_word(4, 6, 8, 12), table_word(0, -1, -2, -3), table_word(-4, -6, -8, -12)}};
}
__device__ inline ByteTable iq4_values() {
  return {{table_word(-127, -104, -83, -65), table_word(-49, -35, -22, -10), table_word(1, 13, 25, 38),
           table_word(53, 69, 89, 113)}};
}
/// to[i]: what the table has for the low half of byte i; to[4 + i]: for its high half.
__device__ inline void look_up(const ByteTable& table, uint32_t word, float (&to)[8]) {
  MOESTRO_UNROLL
  for (int pair = 0; pair < 2; ++pair) {
    const uint32_t four = word >> (16 * pair), where = four & 0x7777u, upper = four >> 1 & 0x4444u;
    const uint32_t bytes = select_bytes(select_bytes(table.words[0], table.words[1], where),
                                        select_bytes(table.words[2], table.words[3], where), 0x3210u | upper);
    MOESTRO_UNROLL
    for (int i = 0; i < 4; ++i) to[2 * pair + i / 2 + i % 2 * 4] = byte_less_128(bytes, i);
  }
}

/// 2^(e - 128): half of what an e8m0 scale says.
__device__ inline float half_of_e8m0(uint32_t e) {
  return bits_to_float(e > 1 ? (e - 1) << 23 : uint32_t{0x00200000} << e);
}

/// e4m3 in byte i of a word: its exponent and mantissa as those of an f32, which is 2^120 times too small.
__device__ inline float e4m3_of(uint32_t word, int i) {
  const auto moved = static_cast<int32_t>(word << (24 - 8 * i));
  return bits_to_float(static_cast<uint32_t>(moved >> 4) & 0x87f00000u) * 0x1p120f;
}

/// What a format has. decode(): columns c to c + 3 of a block, then those from c + kHalf on; c is a multiple of 4 whose
/// bit kHalf is 0.
template <int kColumns_, int kBytes_, int kHalf_>
struct BlockShapeOf {
  static constexpr int kColumns = kColumns_, kBytes = kBytes_, kHalf = kHalf_;
  static constexpr bool kAligned = kBytes_ % 4 == 0;
};

struct Q4_0Block : BlockShapeOf<32, 18, 16> {
  __device__ static void decode(const char* b, int c, float (&to)[8]) {
    const uint32_t word = word_at<kAligned>(b + 2 + c);
    const float d = block_f16(b);
    MOESTRO_UNROLL
    for (int i = 0; i < 8; ++i) to[i] = d * difference(half_byte(word, i % 4, i / 4), 8);
  }
};

struct Q4_1Block : BlockShapeOf<32, 20, 16> {
  __device__ static void decode(const char* b, int c, float (&to)[8]) {
    const uint32_t word = word_at<kAligned>(b + 4 + c);
    const float d = block_f16(b), m = block_f16(b + 2);
    MOESTRO_UNROLL
    for (int i = 0; i < 8; ++i) to[i] = d * small_integer(half_byte(word, i % 4, i / 4)) + m;
  }
};

/// The half byte and the fifth bit of number i.
__device__ inline uint32_t five_bits(uint32_t word, uint32_t high, int c, int i) {
  return half_byte(word, i % 4, i / 4) | (high >> (c + i % 4 + i / 4 * 16) & 1u) << 4;
}

struct Q5_0Block : BlockShapeOf<32, 22, 16> {
  __device__ static void decode(const char* b, int c, float (&to)[8]) {
    const uint32_t high = word_at<kAligned>(b + 2), word = word_at<kAligned>(b + 6 + c);
    const float d = block_f16(b);
    MOESTRO_UNROLL
    for (int i = 0; i < 8; ++i) to[i] = d * difference(five_bits(word, high, c, i), 16);
  }
};

struct Q5_1Block : BlockShapeOf<32, 24, 16> {
  __device__ static void decode(const char* b, int c, float (&to)[8]) {
    const uint32_t high = word_at<kAligned>(b + 4), word = word_at<kAligned>(b + 8 + c);
    const float d = block_f16(b), m = block_f16(b + 2);
    MOESTRO_UNROLL
    for (int i = 0; i < 8; ++i) to[i] = d * small_integer(five_bits(word, high, c, i)) + m;
  }
};

struct Q8_0Block : BlockShapeOf<32, 34, 16> {
  __device__ static void decode(const char* b, int c, float (&to)[8]) {
    const float d = block_f16(b);
    MOESTRO_UNROLL
    for (int half = 0; half < 2; ++half) {
      const uint32_t bytes = word_at<kAligned>(b + 2 + c + half * kHalf) ^ 0x80808080u;
      MOESTRO_UNROLL
      for (int i = 0; i < 4; ++i) to[half * 4 + i] = d * byte_less_128(bytes, i);
    }
  }
};

struct IQ4NLBlock : BlockShapeOf<32, 18, 16> {
  __device__ static void decode(const char* b, int c, float (&to)[8]) {
    look_up(iq4_values(), word_at<kAligned>(b + 2 + c), to);
    const float d = block_f16(b);
    MOESTRO_UNROLL
    for (int i = 0; i < 8; ++i) to[i] = d * to[i];
  }
};

struct MXFP4Block : BlockShapeOf<32, 17, 16> {
  __device__ static void decode(const char* b, int c, float (&to)[8]) {
    look_up(doubled_e2m1(), word_at<kAligned>(b + 1 + c), to);
    const float half = half_of_e8m0(block_byte(b));
    MOESTRO_UNROLL
    for (int i = 0; i < 8; ++i) to[i] = half * to[i];
  }
};

struct Q2KBlock : BlockShapeOf<256, 84, 32> {
  __device__ static void decode(const char* b, int c, float (&to)[8]) {
    const uint32_t word = word_at<kAligned>(b + 16 + c / 128 * 32 + c % 32) >> (c % 128 / 32 * 2);
    const float d = block_f16(b + 80), dmin = block_f16(b + 82);
    MOESTRO_UNROLL
    for (int half = 0; half < 2; ++half) {
      const uint32_t s = block_byte(b + c / 16 + half * 2);
      const float scale = d * small_integer(s & 15u), minimum = dmin * small_integer(s >> 4);
      MOESTRO_UNROLL
      for (int i = 0; i < 4; ++i)
        to[half * 4 + i] = scale * small_integer(word >> (8 * i + 2 * half) & 3u) - minimum;
    }
  }
};

struct Q3KBlock : BlockShapeOf<256, 110, 32> {
  __device__ static float scale_of(const char* b, int group) {
    const uint32_t low = block_byte(b + 96 + group % 8) >> (group / 8 * 4) & 15u,
                   high = block_byte(b + 104 + group % 4) >> (group / 4 * 2) & 3u;
    return block_f16(b + 108) * difference(low | high << 4, 32);
  }
  __device__ static void decode(const char* b, int c, float (&to)[8]) {
    const uint32_t word = word_at<kAligned>(b + 32 + c / 128 * 32 + c % 32) >> (c % 128 / 32 * 2),
                   high = word_at<kAligned>(b + c % 32) >> (c / 32);
    MOESTRO_UNROLL
    for (int half = 0; half < 2; ++half) {
      const float scale = scale_of(b, c / 16 + half * 2);
      MOESTRO_UNROLL
      for (int i = 0; i < 4; ++i) {
        const uint32_t q = (word >> (8 * i + 2 * half) & 3u) | (high >> (8 * i + half) & 1u) << 2;
        to[half * 4 + i] = scale * difference(q, 4);
      }
    }
  }
};

/// A scale and a minimum of each four: d * s and dmin * m.
struct ScalesOfFours {
  float scale[2], minimum[2];
};
/// Of q4_k and q5_k, for columns c and c + 32: the 12 bytes hold 6 bits each of 8 scales and 8 minima.
__device__ inline ScalesOfFours scales_of_k(const char* b, int c) {
  const char* packed = b + 4 + c / 32 % 4;
  const uint32_t first = load_as<uint16_t>(packed), second = load_as<uint16_t>(packed + 4),
                 third = load_as<uint16_t>(packed + 8);
  const bool early = c < 128;
  const uint32_t scales = early ? first & 0x3f3fu : (third & 0x0f0fu) | (first >> 2 & 0x3030u),
                 minima = early ? second & 0x3f3fu : (third >> 4 & 0x0f0fu) | (second >> 2 & 0x3030u);
  const float d = block_f16(b), dmin = block_f16(b + 2);
  return {{d * small_integer(scales & 0xffu), d * small_integer(scales >> 8)},
          {dmin * small_integer(minima & 0xffu), dmin * small_integer(minima >> 8)}};
}

struct Q4KBlock : BlockShapeOf<256, 144, 32> {
  __device__ static void decode(const char* b, int c, float (&to)[8]) {
    const uint32_t word = word_at<kAligned>(b + 16 + c / 64 * 32 + c % 32);
    const ScalesOfFours by = scales_of_k(b, c);
    MOESTRO_UNROLL
    for (int i = 0; i < 8; ++i)
      to[i] = by.scale[i / 4] * small_integer(half_byte(word, i % 4, i / 4)) - by.minimum[i / 4];
  }
};

struct Q5KBlock : BlockShapeOf<256, 176, 32> {
  __device__ static void decode(const char* b, int c, float (&to)[8]) {
    const uint32_t word = word_at<kAligned>(b + 48 + c / 64 * 32 + c % 32),
                   high = word_at<kAligned>(b + 16 + c % 32) >> (c / 32);
    const ScalesOfFours by = scales_of_k(b, c);
    MOESTRO_UNROLL
    for (int i = 0; i < 8; ++i) {
      const uint32_t q = half_byte(word, i % 4, i / 4) | (high >> (i % 4 * 8 + i / 4) & 1u) << 4;
      to[i] = by.scale[i / 4] * small_integer(q) - by.minimum[i / 4];
    }
  }
};

struct Q6KBlock : BlockShapeOf<256, 210, 32> {
  __device__ static void decode(const char* b, int c, float (&to)[8]) {
    const uint32_t bits = word_at<kAligned>(b + 128 + c / 128 * 32 + c % 32) >> (c % 128 / 32 * 2);
    const float d = block_f16(b + 208);
    MOESTRO_UNROLL
    for (int half = 0; half < 2; ++half) {
      const uint32_t word = word_at<kAligned>(b + c / 128 * 64 + c % 64 + half * 32) >> (c % 128 / 64 * 4);
      const float scale = d * difference(block_byte(b + 192 + c / 16 + half * 2) ^ 0x80u, 128);
      MOESTRO_UNROLL
      for (int i = 0; i < 4; ++i) {
        const uint32_t q = (word >> (8 * i) & 15u) | (bits >> (8 * i + 2 * half) & 3u) << 4;
        to[half * 4 + i] = scale * difference(q, 32);
      }
    }
  }
};

struct IQ4XSBlock : BlockShapeOf<256, 136, 16> {
  __device__ static void decode(const char* b, int c, float (&to)[8]) {
    const int group = c / 32;
    look_up(iq4_values(), word_at<kAligned>(b + 8 + group * 16 + c % 16), to);
    const uint32_t low = block_byte(b + 4 + group / 2) >> (group % 2 * 4) & 15u,
                   high = uint32_t{load_as<uint16_t>(b + 2)} >> (2 * group) & 3u;
    const float scale = block_f16(b) * difference(low | high << 4, 32);
    MOESTRO_UNROLL
    for (int i = 0; i < 8; ++i) to[i] = scale * to[i];
  }
};

template <int kColumns_>
struct FP8Block : BlockShapeOf<kColumns_, kColumns_ + 4, 16> {
  __device__ static void decode(const char* b, int c, float (&to)[8]) {
    const float scale = bits_to_float(load_as<uint32_t>(b));
    MOESTRO_UNROLL
    for (int half = 0; half < 2; ++half) {
      const auto word = load_as<uint32_t>(b + 4 + c + half * 16);
      MOESTRO_UNROLL
      for (int i = 0; i < 4; ++i) to[half * 4 + i] = scale * e4m3_of(word, i);
    }
  }
};

template <int kColumns_>
struct Int4Block : BlockShapeOf<kColumns_, kColumns_ / 2 + 4, 16> {
  __device__ static void decode(const char* b, int c, float (&to)[8]) {
    const auto head = load_as<uint32_t>(b), word = load_as<uint32_t>(b + 4 + c / 32 * 16 + c % 16);
    const auto half = static_cast<uint16_t>(head);
    const float scale = head >> 24 == 0 ? f16_value(half) : bf16_value(half);
    MOESTRO_UNROLL
    for (int i = 0; i < 8; ++i) to[i] = scale * difference(half_byte(word, i % 4, i / 4), head >> 16 & 0xffu);
  }
};

struct NVFP4Block : BlockShapeOf<128, 76, 16> {
  __device__ static void decode(const char* b, int c, float (&to)[8]) {
    look_up(doubled_e2m1(), load_as<uint32_t>(b + 12 + c / 32 * 16 + c % 16), to);
    const float of_tensor = bits_to_float(load_as<uint32_t>(b));
    const uint32_t scales = load_as<uint16_t>(b + 4 + c / 16);
    MOESTRO_UNROLL
    for (int i = 0; i < 8; ++i) to[i] = of_tensor * e4m3_of(scales, i / 4) * (0.5f * to[i]);
  }
};

/// Plain numbers of 16 bits as blocks: a matrix of them may be in one expert with matrices of blocks.
template <typename N>
struct HalvesBlock : BlockShapeOf<32, 64, 16> {
  __device__ static void decode(const char* b, int c, float (&to)[8]) {
    MOESTRO_UNROLL
    for (int i = 0; i < 8; i += 2) {
      const auto pair = load_as<uint32_t>(b + 2 * (c + i % 4 + i / 4 * 16));
      to[i] = N::value(static_cast<uint16_t>(pair));
      to[i + 1] = N::value(static_cast<uint16_t>(pair >> 16));
    }
  }
};

/// Calls f(the format's block), or returns f(NoBlock) for formats that are not blocks.
struct NoBlock : BlockShapeOf<1, 0, 16> {
  __device__ static void decode(const char*, int, float (&to)[8]) {
    MOESTRO_UNROLL
    for (int i = 0; i < 8; ++i) to[i] = 0.0f;
  }
};
#if defined(__CUDACC__)
#pragma nv_exec_check_disable  // f is either a host's or a device's, as the caller is
#endif
template <typename F>
__host__ __device__ auto with_block(int32_t dtype, F&& f) {
  switch (dtype) {
    case MOESTRO_CUDA_BF16: return f(HalvesBlock<BF16>{});
    case MOESTRO_CUDA_F16: return f(HalvesBlock<F16>{});
    case MOESTRO_CUDA_Q4_0: return f(Q4_0Block{});
    case MOESTRO_CUDA_Q5_0: return f(Q5_0Block{});
    case MOESTRO_CUDA_Q8_0: return f(Q8_0Block{});
    case MOESTRO_CUDA_Q2_K: return f(Q2KBlock{});
    case MOESTRO_CUDA_Q3_K: return f(Q3KBlock{});
    case MOESTRO_CUDA_Q4_K: return f(Q4KBlock{});
    case MOESTRO_CUDA_Q5_K: return f(Q5KBlock{});
    case MOESTRO_CUDA_Q6_K: return f(Q6KBlock{});
    case MOESTRO_CUDA_IQ4_NL: return f(IQ4NLBlock{});
    case MOESTRO_CUDA_MXFP4: return f(MXFP4Block{});
    case MOESTRO_CUDA_Q4_1: return f(Q4_1Block{});
    case MOESTRO_CUDA_Q5_1: return f(Q5_1Block{});
    case MOESTRO_CUDA_IQ4_XS: return f(IQ4XSBlock{});
    case MOESTRO_CUDA_FP8: return f(FP8Block<128>{});
    case MOESTRO_CUDA_FP8_G32: return f(FP8Block<32>{});
    case MOESTRO_CUDA_INT4_G128: return f(Int4Block<128>{});
    case MOESTRO_CUDA_INT4_G64: return f(Int4Block<64>{});
    case MOESTRO_CUDA_INT4_G32: return f(Int4Block<32>{});
    case MOESTRO_CUDA_NVFP4: return f(NVFP4Block{});
    default: return f(NoBlock{});
  }
}

/// A format as an argument of kernels. Rows are read in spans: whole blocks of any format, fewer columns of formats
/// with many bytes. Columns of blocks and of spans are powers of two, given by their logarithms: kernels shift where
/// they would divide for each row that they decode.
struct BlockFormat {
  int32_t dtype = 0;
  int32_t column_bits = 0, bytes = 0;  ///< of a block; 0 bytes: there is no such format
  int32_t half = 16;
  int32_t span_bits = 8;

  __host__ __device__ int32_t columns() const { return 1 << column_bits; }
  __host__ __device__ int32_t span_columns() const { return 1 << span_bits; }
  __host__ __device__ int32_t bytes_of(int64_t cols) const {
    return static_cast<int32_t>(cols >> column_bits) * bytes;
  }
  __host__ __device__ int32_t span_bytes() const { return bytes_of(span_columns()); }
  __host__ __device__ int32_t spans_of(int64_t cols) const {
    return static_cast<int32_t>((cols + span_columns() - 1) >> span_bits);
  }
};
/// The logarithm of a power of two.
constexpr int log2_of(int power) { return power == 1 ? 0 : 1 + log2_of(power / 2); }
inline BlockFormat block_format(int32_t dtype) {
  return with_block(dtype, [&](auto block) {
    using B = decltype(block);
    constexpr bool kMany = B::kColumns <= 128 && 256 / B::kColumns * B::kBytes > 192;
    constexpr int kColumnBits = log2_of(B::kColumns);
    static_assert(1 << kColumnBits == B::kColumns);
    return BlockFormat{dtype, kColumnBits, B::kBytes, B::kHalf, kMany ? 7 : 8};
  });
}
/// Whether a matrix is computed by the kernels for blocks alone.
inline bool is_block_format(int32_t dtype) { return dtype >= MOESTRO_CUDA_Q4_0 && block_format(dtype).bytes > 0; }

/// A piece of 64 columns of a row is decoded by eight lanes. The first column of lane `i`; its second four is
/// BlockFormat::half columns further.
inline constexpr int kBlockPiece = 64;
__host__ __device__ constexpr int first_column(int half, int i) { return half == 16 ? i / 4 * 32 + i % 4 * 4 : i * 4; }

}  // namespace moestro::kernels::cuda
