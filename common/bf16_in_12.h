#pragma once
// bf16 in 12 bits, without loss: the format of DType::kBF16In12, its encoder and a plain decoder (docs/decisions/0017).
//
// A bf16 number is a sign, 7 bits of mantissa and 8 of exponent. Signs and mantissas of weights are noise, but a matrix
// uses few exponents: in a normal distribution, 16 adjacent exponents cover all but 1 in 10,000 numbers. So a number
// keeps its byte of sign and mantissa. Its exponent is replaced by 4 bits that select one of the matrix's 16 most
// frequent exponents. Numbers with another exponent are EXCEPTIONS, and are in a list. With room for one exception in
// 128 numbers, a number takes 12.3 bits. (Exponents of trained weights carry 2.6 bits of information: DFloat11, Zhang
// et al. 2025, which uses a variable number of bits. A fixed width takes a little more, but any row can be reached
// directly and widened at the speed of memory.)
//
// A matrix [rows, cols] is two parts:
//   values     rows of ceil(cols / 64) blocks of 96 bytes. A block of columns 0..63:
//              64 bytes: byte 2i is the sign (bit 7) and mantissa of column i, byte 2i + 1 that of column i + 32;
//              32 bytes: byte i has the code of column i in its low and of column i + 32 in its high half.
//              So words of 16 bits widen to adjacent columns, with vectors of any width. Columns past the row's end
//              are 0.
//   exponents  16 bytes, the exponent of each code | count of exceptions, u32 |
//              their positions row * cols + column, u32, ascending | their exponents, u8.
//              The last two have room for exceptions_max(); unused bytes are 0.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace moestro::bf16_in_12 {

inline constexpr int64_t kBlockColumns = 64, kBlockBytes = 96;
inline constexpr int64_t kCodes = 16;

constexpr int64_t blocks_of(int64_t cols) { return (cols + kBlockColumns - 1) / kBlockColumns; }
/// Nearly a hundred times what a normal distribution needs, because rows may differ by powers of two, and some may be
/// nearly zero, so that their exponents take codes from the others.
constexpr int64_t exceptions_max(int64_t numbers) { return 32 + numbers / 128; }
/// Bytes of the part `exponents`.
constexpr int64_t exponents_bytes(int64_t rows, int64_t cols) {
  return kCodes + static_cast<int64_t>(sizeof(uint32_t)) +
         exceptions_max(rows * cols) * static_cast<int64_t>(sizeof(uint32_t) + sizeof(uint8_t));
}

/// The parsed part `exponents` of a matrix.
struct Exponents {
  const uint8_t* of_code = nullptr;  ///< [kCodes]
  const std::byte* positions = nullptr;
  const uint8_t* exceptions = nullptr;
  int64_t count = 0;  ///< number of exceptions; never more than fit, whatever is stored
};
Exponents read_exponents(const std::byte* part, int64_t numbers);

inline constexpr int64_t kNumbersMax = int64_t{UINT32_MAX};  ///< in a matrix, because positions have 32 bits

/// Encodes a matrix with only one row in memory at a time. Call count() for all numbers, then list() for all of them in
/// order. Then rows and exponents can be written, in any order.
class Encoder {
 public:
  /// rows * cols <= kNumbersMax.
  Encoder(int64_t rows, int64_t cols);
  void count(const uint16_t* values, int64_t n);
  void list(const uint16_t* values, int64_t n);
  /// Whether all exceptions fit. If not, the matrix cannot be stored in this format.
  bool fits() const { return exceptions_ <= exceptions_max(numbers_); }
  /// Writes all blocks_of(cols) * kBlockBytes bytes.
  void write_row(const uint16_t* values, std::byte* to) const;
  /// Writes all exponents_bytes() bytes.
  void write_exponents(std::byte* to) const;

 private:
  static constexpr size_t kExponents = 256;
  void choose();
  int64_t rows_, cols_, numbers_;
  std::array<uint64_t, kExponents> times_{};
  std::array<uint8_t, kCodes> exponent_of_{};
  std::array<uint8_t, kExponents> code_of_{};  ///< kCodes: the exponent has no code
  bool chosen_ = false;
  int64_t listed_ = 0, exceptions_ = 0;
  std::vector<uint32_t> positions_;
  std::vector<uint8_t> exponents_;
};

/// Encodes both parts of `values` [rows, cols] at once. False if the exceptions do not fit; the output is then
/// meaningless.
[[nodiscard]] bool encode(const uint16_t* values, int64_t rows, int64_t cols, std::byte* to, std::byte* exponents);

/// A row's number at `col`, without regard to exceptions.
uint16_t value_at(const std::byte* row, const uint8_t* of_code, int64_t col);

/// Index of the first exception at or after `position`. Positions must ascend.
int64_t first_exception(const Exponents& exponents, int64_t position);
int64_t exception_position(const Exponents& exponents, int64_t index);
/// `value` with another exponent.
constexpr uint16_t with_exponent(uint16_t value, uint8_t exponent) {
  return static_cast<uint16_t>((value & 0x807f) | exponent << 7);
}

/// Columns [first_column, end_column) of rows [first_row, end_row) of a matrix.
struct Cut {
  int64_t first_row, end_row, first_column, end_column;
};
/// Sets the exponents of the exceptions in a cut of a matrix of `cols` columns. Its bf16 is at `to`, `stride` numbers
/// from row to row. Positions outside it are skipped, in whatever order they are.
void put_exceptions(const Exponents& exponents, int64_t cols, const Cut& cut, int64_t stride, uint16_t* to);

/// Decodes rows [first, end) to bf16, `cols` numbers from row to row. This is the plain loop; kernels/cpu has fast
/// ones.
void decode(const std::byte* values, const Exponents& exponents, int64_t cols, int64_t first, int64_t end,
            uint16_t* to);

}  // namespace moestro::bf16_in_12
