#include "store/pack/int4_words.h"

#include <cstring>

namespace moestro::store {
namespace {

constexpr int64_t kWordBytes = 4;
static_assert(kWordBytes == sizeof(uint32_t));

/// Two words, whose numbers share bytes: the lower half is of `low`.
struct Pairs {
  uint32_t even, odd;  ///< of numbers 0, 2, 4, 6 of both words, and 1, 3, 5, 7
  Pairs(uint32_t low, uint32_t high)
      : even((low & kLow) | (high & kLow) << 4), odd((low >> 4 & kLow) | (high & ~kLow)) {}
  static constexpr uint32_t kLow = 0x0f0f0f0fu;
};

constexpr int64_t kTogether = 4;  // words, of which 16 columns are a square of bytes
constexpr int64_t kSide = kRunBytes;
static_assert(kTogether * kWordBytes == kSide);

struct Square {
  uint8_t bytes[kSide * kSide];
};

/// One byte of the first half, one of the second, and so on. The compiler makes vector instructions of it.
void interleave(const Square& from, Square& to) {
  constexpr int64_t kHalf = kSide * kSide / 2;
  for (int64_t i = 0; i < kHalf; ++i) {
    to.bytes[2 * i] = from.bytes[i];
    to.bytes[2 * i + 1] = from.bytes[kHalf + i];
  }
}

/// Rows become columns: each step moves the bits of a byte's index on by one, and there are eight.
void transpose(Square& square) {
  Square other;
  for (int step = 0; step < 4; step += 2) interleave(square, other), interleave(other, square);
}

/// The runs of four words, `stride` bytes from one column to the next.
void unpack_four(const std::byte* words, int64_t stride, uint8_t (*rows)[kRunBytes]) {
  constexpr int64_t kPairs = kSide * kTogether;
  uint32_t low[kPairs], high[kPairs];
  for (int64_t c = 0; c < kSide; ++c) {
    std::memcpy(low + c * kTogether, words + c * stride, kSide);
    std::memcpy(high + c * kTogether, words + (c + kSide) * stride, kSide);
  }
  uint32_t even[kPairs], odd[kPairs];
  for (int64_t i = 0; i < kPairs; ++i) {
    const Pairs pairs(low[i], high[i]);
    even[i] = pairs.even, odd[i] = pairs.odd;
  }
  Square runs[2];
  std::memcpy(&runs[0], even, sizeof even), std::memcpy(&runs[1], odd, sizeof odd);
  for (Square& square : runs) transpose(square);
  constexpr int64_t kRowOfNumber[kInWord] = {0, 2, 4, 6, 1, 3, 5, 7};
  for (int64_t word = 0; word < kTogether; ++word)
    for (int64_t i = 0; i < kInWord; ++i)
      std::memcpy(rows[word * kInWord + kRowOfNumber[i]], runs[i % 2].bytes + (word * kWordBytes + i / 2) * kSide,
                  kSide);
}

}  // namespace

void unpack_gptq(const std::byte* words, int64_t line, int64_t count, uint8_t* out, int64_t row_bytes) {
  constexpr int64_t kHalf = kRunBytes / 2;
  uint8_t halves[2][kGptqRows * kHalf];  // of each row's run
  for (int64_t half = 0; half < 2; ++half) {
    uint32_t low[kGptqRows] = {}, high[kGptqRows] = {};
    std::memcpy(low, words + half * line, static_cast<size_t>(count * kWordBytes));
    std::memcpy(high, words + (half + 2) * line, static_cast<size_t>(count * kWordBytes));
    uint8_t even[sizeof low], odd[sizeof low];
    for (int64_t r = 0; r < kGptqRows; ++r) {
      const Pairs pairs(low[r], high[r]);
      std::memcpy(even + r * kWordBytes, &pairs.even, kWordBytes);
      std::memcpy(odd + r * kWordBytes, &pairs.odd, kWordBytes);
    }
    for (size_t i = 0; i < sizeof even; ++i) halves[half][2 * i] = even[i], halves[half][2 * i + 1] = odd[i];
  }
  for (int64_t r = 0; r < count; ++r)
    for (int64_t half = 0; half < 2; ++half)
      std::memcpy(out + r * row_bytes + half * kHalf, halves[half] + r * kHalf, kHalf);
}

void unpack_awq(const std::byte* words, int64_t stride, int64_t count, AwqRuns& out) {
  constexpr int64_t kLine = kAwqWords * kWordBytes;
  alignas(64) std::byte lines[kRunColumns * kLine];  // each cache line is read once, also where they are far apart
  if (count == kAwqWords) {
    for (int64_t c = 0; c < kRunColumns; ++c) std::memcpy(lines + c * kLine, words + c * stride, kLine);
  } else {
    std::memset(lines, 0, sizeof lines);
    for (int64_t c = 0; c < kRunColumns; ++c)
      std::memcpy(lines + c * kLine, words + c * stride, static_cast<size_t>(count * kWordBytes));
  }
  for (int64_t w = 0; w < count; w += kTogether)
    unpack_four(lines + w * kWordBytes, kLine, out.rows + w * kInWord);
}

}  // namespace moestro::store
