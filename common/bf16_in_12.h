#pragma once
// bf16 in 12 bits, without loss: what DType::kBF16In12 stores, and the plain way back. (docs/decisions/0017)
//
// A bf16 number is a sign, 7 bits of mantissa and 8 of exponent. Signs and mantissas of weights are noise, but a matrix
// uses few exponents: of a normal distribution 16 neighbouring ones hold all but 1 in 10,000 numbers. So a number keeps
// its byte of sign and mantissa, and in place of the exponent 4 bits that say which of the matrix's 16 most frequent
// ones it is. The rest are EXCEPTIONS, and stand in a list. With room for as many as one in 128 that is 12.3 bits a
// number. (Exponents of trained weights carry 2.6 bits: DFloat11, Zhang et al. 2025, which spends a variable number of
// bits on each. A fixed width is a little longer, and any row can be reached, and widened at the speed of memory.)
//
// A matrix [rows, cols] is two parts:
//   values     rows of ceil(cols / 64) blocks of 96 bytes. A block of columns 0..63: 64 bytes, of which byte 2i is the
//   sign (bit 7) and mantissa of
//              column i and byte 2i + 1 that of column i + 32; then 32 bytes, of which byte i has the code of column i
//              in its low and of column i + 32 in its high half. So words of 16 bits widen to columns that lie side by
//              side, at any width of vectors. Columns past the row's end are 0.
//   exponents  16 bytes, the exponent of each code | count of exceptions, u32 | their positions row * cols + column,
//   u32, ascending |
//              their exponents, u8. The last two have room for exceptions_max(); what is not used is 0.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace moestro::bf16_in_12 {

inline constexpr int64_t kBlockColumns = 64, kBlockBytes = 96;
inline constexpr int64_t kCodes = 16;

constexpr int64_t blocks_of(int64_t cols) { return (cols + kBlockColumns - 1) / kBlockColumns; }
/// Nearly a hundred times what a normal distribution needs: rows may differ by powers of two, and some may have decayed
/// to next to nothing, whose exponents then take codes from the rest.
constexpr int64_t exceptions_max(int64_t numbers) { return 32 + numbers / 128; }
/// Bytes of the part `exponents`.
constexpr int64_t exponents_bytes(int64_t rows, int64_t cols) {
  return kCodes + static_cast<int64_t>(sizeof(uint32_t)) +
         exceptions_max(rows * cols) * static_cast<int64_t>(sizeof(uint32_t) + sizeof(uint8_t));
}

/// The part `exponents` of a matrix of `numbers` numbers, read.
struct Exponents {
  const uint8_t* of_code = nullptr;  ///< [kCodes]
  const std::byte* positions = nullptr;
  const uint8_t* exceptions = nullptr;
  int64_t count = 0;  ///< of exceptions; never beyond their room, whatever is stored
};
Exponents read_exponents(const std::byte* part, int64_t numbers);

inline constexpr int64_t kNumbersMax = int64_t{UINT32_MAX};  ///< of a matrix: positions are of 32 bits

/// Encodes a matrix of which memory need not hold more than a row: count() all numbers, then list() them all, in order;
/// then rows and exponents can be written, in any order.
class Encoder {
 public:
  /// rows * cols <= kNumbersMax.
  Encoder(int64_t rows, int64_t cols);
  void count(const uint16_t* values, int64_t n);
  void list(const uint16_t* values, int64_t n);
  /// Whether all exceptions have room: else the matrix has no such form.
  bool fits() const { return exceptions_ <= exceptions_max(numbers_); }
  /// blocks_of(cols) * kBlockBytes, every one of them.
  void write_row(const uint16_t* values, std::byte* to) const;
  /// exponents_bytes(), every one of them.
  void write_exponents(std::byte* to) const;

 private:
  static constexpr size_t kExponents = 256;
  void choose();
  int64_t rows_, cols_, numbers_;
  std::array<uint64_t, kExponents> times_{};
  std::array<uint8_t, kCodes> exponent_of_{};
  std::array<uint8_t, kExponents> code_of_{};  ///< kCodes: it has none
  bool chosen_ = false;
  int64_t listed_ = 0, exceptions_ = 0;
  std::vector<uint32_t> positions_;
  std::vector<uint8_t> exponents_;
};

/// Both parts of `values` [rows, cols] at once. False where it does not fit: then what was written means nothing.
[[nodiscard]] bool encode(const uint16_t* values, int64_t rows, int64_t cols, std::byte* to, std::byte* exponents);

/// A row's number at `col`, exceptions apart.
uint16_t value_at(const std::byte* row, const uint8_t* of_code, int64_t col);

/// The first exception at or after `position`, where they ascend.
int64_t first_exception(const Exponents& exponents, int64_t position);
int64_t exception_position(const Exponents& exponents, int64_t index);
/// `value` with another exponent.
constexpr uint16_t with_exponent(uint16_t value, uint8_t exponent) {
  return static_cast<uint16_t>((value & 0x807f) | exponent << 7);
}

/// Sets the exponents of the exceptions among rows [first, end), which lie as bf16 at `to`, `stride` numbers from row
/// to row. Positions outside of these rows are passed over, in whatever order they stand.
void put_exceptions(const Exponents& exponents, int64_t cols, int64_t first, int64_t end, int64_t stride, uint16_t* to);

/// Rows [first, end) as bf16, `cols` numbers from row to row. The plain loop; kernels/cpu has the fast ones.
void decode(const std::byte* values, const Exponents& exponents, int64_t cols, int64_t first, int64_t end,
            uint16_t* to);

}  // namespace moestro::bf16_in_12
