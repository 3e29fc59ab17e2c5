#include "common/bf16_in_12.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "common/check.h"

namespace moestro::bf16_in_12 {
namespace {

constexpr unsigned kExponentBits = 7;  // below them lies the mantissa
constexpr unsigned kExponentMask = 0x7f80;
constexpr int64_t kHalf = kBlockColumns / 2;

unsigned exponent_of(uint16_t value) { return (value & kExponentMask) >> kExponentBits; }

/// Where a column of a block has its byte of sign and mantissa.
int64_t byte_of(int64_t within) { return within % kHalf * 2 + within / kHalf; }

}  // namespace

Exponents read_exponents(const std::byte* part, int64_t numbers) {
  const int64_t room = exceptions_max(numbers);
  const std::byte* positions = part + kCodes + sizeof(uint32_t);
  uint32_t stored = 0;
  std::memcpy(&stored, part + kCodes, sizeof stored);
  return {reinterpret_cast<const uint8_t*>(part), positions,
          reinterpret_cast<const uint8_t*>(positions) + room * static_cast<int64_t>(sizeof(uint32_t)),
          std::min<int64_t>(stored, room)};
}

Encoder::Encoder(int64_t rows, int64_t cols) : rows_(rows), cols_(cols), numbers_(rows * cols) {
  MOESTRO_CHECK(numbers_ <= kNumbersMax, "positions are of 32 bits");
}

void Encoder::count(const uint16_t* values, int64_t n) {
  for (int64_t i = 0; i < n; ++i) ++times_[exponent_of(values[i])];
}

// The most frequent exponents, ascending. Those that do not occur have no code, and codes left over say 0.
void Encoder::choose() {
  std::array<uint8_t, kExponents> order;
  std::iota(order.begin(), order.end(), uint8_t{0});
  std::stable_sort(order.begin(), order.end(), [&](uint8_t a, uint8_t b) { return times_[a] > times_[b]; });
  const auto used =
      std::min<int64_t>(kCodes, std::count_if(times_.begin(), times_.end(), [](uint64_t n) { return n > 0; }));
  std::copy_n(order.begin(), used, exponent_of_.begin());
  std::sort(exponent_of_.begin(), exponent_of_.begin() + used);
  code_of_.fill(static_cast<uint8_t>(kCodes));
  for (int64_t code = 0; code < used; ++code)
    code_of_[exponent_of_[static_cast<size_t>(code)]] = static_cast<uint8_t>(code);
  chosen_ = true;
}

void Encoder::list(const uint16_t* values, int64_t n) {
  if (!chosen_) choose();
  for (int64_t i = 0; i < n; ++i) {
    const auto exponent = static_cast<uint8_t>(exponent_of(values[i]));
    if (code_of_[exponent] < kCodes || ++exceptions_ > exceptions_max(numbers_)) continue;
    positions_.push_back(static_cast<uint32_t>(listed_ + i));
    exponents_.push_back(exponent);
  }
  listed_ += n;
}

void Encoder::write_row(const uint16_t* values, std::byte* to) const {
  std::memset(to, 0, static_cast<size_t>(blocks_of(cols_) * kBlockBytes));
  for (int64_t first = 0; first < cols_; first += kBlockColumns, to += kBlockBytes) {
    const int64_t columns = std::min(kBlockColumns, cols_ - first);
    for (int64_t c = 0; c < columns; ++c) {
      const uint16_t value = values[first + c];
      const unsigned code = code_of_[exponent_of(value)] % kCodes;  // of an exception: any
      to[byte_of(c)] = static_cast<std::byte>((value >> 8 & 0x80) | (value & 0x7f));
      to[kBlockColumns + c % kHalf] |= static_cast<std::byte>(c < kHalf ? code : code << 4);
    }
  }
}

void Encoder::write_exponents(std::byte* to) const {
  MOESTRO_CHECK(listed_ == numbers_ && fits(), "a matrix that was read and fits");
  std::memset(to, 0, static_cast<size_t>(exponents_bytes(rows_, cols_)));
  std::memcpy(to, exponent_of_.data(), kCodes);
  const auto count = static_cast<uint32_t>(positions_.size());
  std::memcpy(to + kCodes, &count, sizeof count);
  std::byte* positions = to + kCodes + sizeof count;
  if (count == 0) return;
  std::memcpy(positions, positions_.data(), count * sizeof(uint32_t));
  std::memcpy(positions + exceptions_max(numbers_) * static_cast<int64_t>(sizeof(uint32_t)), exponents_.data(), count);
}

bool encode(const uint16_t* values, int64_t rows, int64_t cols, std::byte* to, std::byte* exponents) {
  Encoder encoder(rows, cols);
  encoder.count(values, rows * cols);
  encoder.list(values, rows * cols);
  if (!encoder.fits()) return false;
  for (int64_t r = 0; r < rows; ++r) encoder.write_row(values + r * cols, to + r * blocks_of(cols) * kBlockBytes);
  encoder.write_exponents(exponents);
  return true;
}

uint16_t value_at(const std::byte* row, const uint8_t* of_code, int64_t col) {
  const std::byte* block = row + col / kBlockColumns * kBlockBytes;
  const int64_t within = col % kBlockColumns;
  const auto number = static_cast<unsigned>(block[byte_of(within)]),
             codes = static_cast<unsigned>(block[kBlockColumns + within % kHalf]);
  const unsigned exponent = of_code[within < kHalf ? codes & 15u : codes >> 4];
  return static_cast<uint16_t>((number & 0x80) << 8 | exponent << kExponentBits | (number & 0x7f));
}

int64_t exception_position(const Exponents& exponents, int64_t index) {
  uint32_t position = 0;
  std::memcpy(&position, exponents.positions + index * static_cast<int64_t>(sizeof position), sizeof position);
  return position;
}

int64_t first_exception(const Exponents& exponents, int64_t position) {
  int64_t first = 0;
  for (int64_t left = exponents.count; left > 0;) {
    const int64_t half = left / 2;
    if (exception_position(exponents, first + half) < position) first += half + 1, left -= half + 1;
    else left = half;
  }
  return first;
}

void put_exceptions(const Exponents& exponents, int64_t cols, const Cut& cut, int64_t stride, uint16_t* to) {
  for (int64_t i = first_exception(exponents, cut.first_row * cols); i < exponents.count; ++i) {
    const int64_t position = exception_position(exponents, i);
    if (position >= cut.end_row * cols) break;
    const int64_t row = position / cols, column = position % cols;
    if (row < cut.first_row || column < cut.first_column || column >= cut.end_column) continue;
    uint16_t& value = to[(row - cut.first_row) * stride + column - cut.first_column];
    value = with_exponent(value, exponents.exceptions[i]);
  }
}

void decode(const std::byte* values, const Exponents& exponents, int64_t cols, int64_t first, int64_t end,
            uint16_t* to) {
  for (int64_t r = first; r < end; ++r) {
    const std::byte* row = values + r * blocks_of(cols) * kBlockBytes;
    for (int64_t c = 0; c < cols; ++c) to[(r - first) * cols + c] = value_at(row, exponents.of_code, c);
  }
  put_exceptions(exponents, cols, {first, end, 0, cols}, cols, to);
}

}  // namespace moestro::bf16_in_12
