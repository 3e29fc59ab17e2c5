#pragma once
// Words of eight numbers of 4 bits become runs of a row: 32 columns, c and c + 16 a byte. Private to the dialects.

#include <cstddef>
#include <cstdint>

namespace moestro::store {

inline constexpr int64_t kInWord = 8;  ///< numbers of 4 bits in a word
inline constexpr int64_t kRunColumns = 32, kRunBytes = kRunColumns / 2;

inline constexpr int64_t kGptqRows = 64;  ///< that are unpacked together, so that they stay in the core's cache

/// GPTQ: a word has 8 adjacent columns of a row. A run of `count` rows, at most 64, of four lines of words that are
/// `line` bytes apart. Row r goes to out + r * row_bytes.
void unpack_gptq(const std::byte* words, int64_t line, int64_t count, uint8_t* out, int64_t row_bytes);

inline constexpr int64_t kAwqWords = 16;  ///< that are unpacked together: a cache line

/// A run of each row of the words.
struct AwqRuns {
  uint8_t rows[kAwqWords * kInWord][kRunBytes];
};

/// AWQ: a word has 8 adjacent rows of a column. The first `count` words, at most 16, of 32 columns that are `stride`
/// bytes apart. Rows of words beyond `count` are undefined.
void unpack_awq(const std::byte* words, int64_t stride, int64_t count, AwqRuns& out);

}  // namespace moestro::store
