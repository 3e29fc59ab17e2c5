#include "store/pack/quantised_dialects.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "common/expert_layout.h"
#include "common/float16.h"
#include "common/model/strict_json.h"

namespace moestro::store {
namespace {

using model::in_quotes;
using Bytes = std::vector<std::byte>;

constexpr int64_t kNumbersAtOnce = 1 << 24;  // of what is read beyond the blocks themselves
constexpr int64_t kHeaderBytes = 4;          // before the values of blocks of fp8 and int4
constexpr int64_t kNibbleRun = 32, kNibbleRunBytes = 16;

/// Columns [first, first + cols) of rows of a tensor [.., width] with `each` bytes a number.
Status read_rows(const ReadTensor& read, const SourceTensor& tensor, int64_t width, int64_t each,
                 const MatrixRange& range, Bytes& out) {
  const int64_t line = range.cols * each;
  out.resize(static_cast<size_t>(range.rows * line));
  const auto at = [&](int64_t row) { return static_cast<uint64_t>((row * width + range.first_col) * each); };
  if (range.cols == width) return read(tensor, at(range.first_row), out);
  for (int64_t r = 0; r < range.rows; ++r)
    MOESTRO_RETURN_IF_ERROR(read(tensor, at(range.first_row + r),
                                 std::span(out).subspan(static_cast<size_t>(r * line), static_cast<size_t>(line))));
  return Status::ok();
}

template <class Number>
Number number_at(const Bytes& bytes, int64_t index) {
  Number n;
  std::memcpy(&n, bytes.data() + index * static_cast<int64_t>(sizeof n), sizeof n);
  return n;
}

/// Number `index` of scales in one of the formats that checkpoints have them in.
float scale_at(const std::string& format, const Bytes& bytes, int64_t index) {
  if (format == "F32") return number_at<float>(bytes, index);
  if (format == "F8_E8M0") return std::ldexp(1.0f, static_cast<int>(number_at<uint8_t>(bytes, index)) - 127);
  const auto half = number_at<uint16_t>(bytes, index);
  return format == "BF16" ? bf16_to_f32(half) : f16_to_f32(half);
}
int64_t scale_bytes(const std::string& format) { return format == "F32" ? 4 : format == "F8_E8M0" ? 1 : 2; }

/// Two numbers of 4 bits a byte, columns c and c + 16 of each 32; `nibble(c)` gives column c.
template <class Nibble>
void pack_nibbles(int64_t cols, const Nibble& nibble, uint8_t* out) {
  for (int64_t c = 0; c < cols; c += kNibbleRun, out += kNibbleRunBytes)
    for (int64_t i = 0; i < kNibbleRunBytes; ++i)
      out[i] = static_cast<uint8_t>(nibble(c + i) | nibble(c + i + kNibbleRunBytes) << 4);
}

/// Nibble c of a row whose bytes hold adjacent columns, the first in the low half.
struct AdjacentNibbles {
  const uint8_t* bytes;
  int operator()(int64_t c) const { return c % 2 == 0 ? bytes[c / 2] & 15 : bytes[c / 2] >> 4; }
};

class Mxfp4Matrix : public QuantisedMatrix {
 public:
  Mxfp4Matrix(std::string name, int64_t rows, int64_t cols, SourceTensor blocks, SourceTensor scales)
      : QuantisedMatrix(std::move(name), DType::kMXFP4, rows, cols),
        blocks_(std::move(blocks)),
        scales_(std::move(scales)) {}

  Status read_range(const ReadTensor& read, const MatrixRange& range, std::byte* out) const override {
    const BlockShape shape = block_shape(dtype());
    const MatrixRange groups{range.first_row, range.rows, range.first_col / shape.columns, range.cols / shape.columns};
    Bytes values, exponents;
    MOESTRO_RETURN_IF_ERROR(read_rows(read, blocks_, cols() / shape.columns, kNibbleRunBytes, groups, values));
    MOESTRO_RETURN_IF_ERROR(read_rows(read, scales_, cols() / shape.columns, 1, groups, exponents));
    auto* to = reinterpret_cast<uint8_t*>(out);
    const auto* from = reinterpret_cast<const uint8_t*>(values.data());
    for (int64_t g = 0; g < groups.rows * groups.cols; ++g, to += shape.bytes, from += kNibbleRunBytes) {
      to[0] = std::to_integer<uint8_t>(exponents[static_cast<size_t>(g)]);
      pack_nibbles(kNibbleRun, AdjacentNibbles{from}, to + 1);
    }
    return Status::ok();
  }

 private:
  SourceTensor blocks_, scales_;
};

class Fp8Matrix : public QuantisedMatrix {
 public:
  /// A scale for `block_rows` rows and `block_cols` columns.
  Fp8Matrix(std::string name, DType dtype, int64_t rows, int64_t cols, SourceTensor values, SourceTensor scales,
            int64_t block_rows, int64_t block_cols)
      : QuantisedMatrix(std::move(name), dtype, rows, cols),
        values_(std::move(values)),
        scales_(std::move(scales)),
        block_rows_(block_rows),
        block_cols_(block_cols) {}

  Status read_range(const ReadTensor& read, const MatrixRange& range, std::byte* out) const override {
    const BlockShape shape = block_shape(dtype());
    Bytes values, scales;
    MOESTRO_RETURN_IF_ERROR(read_rows(read, values_, cols(), 1, range, values));
    const int64_t across = ceil_div(cols(), block_cols_), first = range.first_row / block_rows_,
                  last = (range.first_row + range.rows - 1) / block_rows_ + 1;
    MOESTRO_RETURN_IF_ERROR(
        read_rows(read, scales_, across, scale_bytes(scales_.format), {first, last - first, 0, across}, scales));
    const std::byte* from = values.data();
    for (int64_t r = range.first_row; r < range.first_row + range.rows; ++r)
      for (int64_t c = range.first_col; c < range.first_col + range.cols; c += shape.columns) {
        const float scale =
            scale_at(scales_.format, scales, (r / block_rows_ - first) * across + c / block_cols_);
        std::memcpy(out, &scale, sizeof scale);
        std::memcpy(out + kHeaderBytes, from, static_cast<size_t>(shape.columns));
        out += shape.bytes, from += shape.columns;
      }
    return Status::ok();
  }

 private:
  SourceTensor values_, scales_;
  int64_t block_rows_, block_cols_;
};

/// Numbers of 4 bits with a scale for each group of columns, and zero points.
class Int4Matrix : public QuantisedMatrix {
 public:
  Int4Matrix(std::string name, DType dtype, int64_t rows, int64_t cols, int64_t group, SourceTensor scales)
      : QuantisedMatrix(std::move(name), dtype, rows, cols), scales_(std::move(scales)), group_(group) {}

  Status read_range(const ReadTensor& read, const MatrixRange& range, std::byte* out) const override {
    const int64_t rows_at_once = std::max<int64_t>(kNumbersAtOnce / range.cols, 1);
    for (int64_t r = 0; r < range.rows; r += rows_at_once) {
      MatrixRange part = range;
      part.first_row = range.first_row + r, part.rows = std::min(rows_at_once, range.rows - r);
      MOESTRO_RETURN_IF_ERROR(read_part(read, part, out + r * row_bytes(dtype(), range.cols)));
    }
    return Status::ok();
  }

 protected:
  /// Of a range: its numbers row by row, and scales and zero points, a row of them for each row.
  struct Part {
    std::vector<uint8_t> values, zeros;
    std::vector<uint16_t> scales;
    int64_t first_group = 0, groups = 0;
  };
  virtual Status load(const ReadTensor& read, const MatrixRange& range, Part& part) const = 0;
  const SourceTensor& scales() const { return scales_; }
  int64_t all_groups() const { return ceil_div(cols(), group_); }
  int64_t group() const { return group_; }

 private:
  Status read_part(const ReadTensor& read, const MatrixRange& range, std::byte* out) const {
    Part part;
    part.first_group = range.first_col / group_;
    part.groups = (range.first_col + range.cols - 1) / group_ + 1 - part.first_group;
    part.values.resize(static_cast<size_t>(range.rows * range.cols));
    part.zeros.resize(static_cast<size_t>(range.rows * part.groups));
    part.scales.resize(part.zeros.size());
    MOESTRO_RETURN_IF_ERROR(load(read, range, part));
    const BlockShape shape = block_shape(dtype());
    const uint8_t* values = part.values.data();
    for (int64_t r = 0; r < range.rows; ++r)
      for (int64_t c = 0; c < range.cols; c += shape.columns, values += shape.columns, out += shape.bytes) {
        const auto g =
            static_cast<size_t>(r * part.groups + (range.first_col + c) / group_ - part.first_group);
        std::memcpy(out, &part.scales[g], sizeof(uint16_t));
        out[2] = static_cast<std::byte>(part.zeros[g]);
        out[3] = static_cast<std::byte>(scales_.format == "BF16" ? 1 : 0);
        pack_nibbles(
            shape.columns, [&](int64_t i) { return values[i]; }, reinterpret_cast<uint8_t*>(out + kHeaderBytes));
      }
    return Status::ok();
  }

  SourceTensor scales_;
  int64_t group_;
};

/// GPTQ and AWQ: matrices are [in, out], so a row of ours is a column of theirs.
class TransposedInt4Matrix : public Int4Matrix {
 public:
  using Int4Matrix::Int4Matrix;
  bool has_short_runs() const override { return true; }

 protected:
  Status load_scales(const ReadTensor& read, const MatrixRange& range, Part& part) const {
    Bytes bytes;
    MOESTRO_RETURN_IF_ERROR(
        read_rows(read, scales(), rows(), 2, {part.first_group, part.groups, range.first_row, range.rows}, bytes));
    for (int64_t g = 0; g < part.groups; ++g)
      for (int64_t r = 0; r < range.rows; ++r)
        part.scales[static_cast<size_t>(r * part.groups + g)] = number_at<uint16_t>(bytes, g * range.rows + r);
    return Status::ok();
  }
  /// Words [lines, rows / 8], each with 8 adjacent rows of ours, whose bits are those at shift_of(row % 8) of
  /// word + `add`. put(line, row of the range, number).
  template <class Shift, class Put>
  Status unpack_rows(const ReadTensor& read, const SourceTensor& words, int64_t first_line, int64_t lines,
                     const MatrixRange& range, uint32_t add, const Shift& shift_of, const Put& put) const {
    const int64_t first = range.first_row / kInWord, last = ceil_div(range.first_row + range.rows, kInWord);
    Bytes bytes;
    MOESTRO_RETURN_IF_ERROR(
        read_rows(read, words, rows() / kInWord, 4, {first_line, lines, first, last - first}, bytes));
    for (int64_t line = 0; line < lines; ++line)
      for (int64_t r = range.first_row; r < range.first_row + range.rows; ++r) {
        const uint32_t word = number_at<uint32_t>(bytes, line * (last - first) + r / kInWord - first) + add;
        put(line, r - range.first_row, static_cast<uint8_t>(word >> shift_of(r % kInWord) & 15));
      }
    return Status::ok();
  }
};

class GptqMatrix : public TransposedInt4Matrix {
 public:
  GptqMatrix(std::string name, DType dtype, int64_t rows, int64_t cols, int64_t group, SourceTensor scales,
             SourceTensor words, SourceTensor zeros, std::optional<SourceTensor> groups_of, bool zeros_less_1)
      : TransposedInt4Matrix(std::move(name), dtype, rows, cols, group, std::move(scales)),
        words_(std::move(words)),
        zeros_(std::move(zeros)),
        groups_of_(std::move(groups_of)),
        zeros_less_1_(zeros_less_1) {}

 protected:
  Status load(const ReadTensor& read, const MatrixRange& range, Part& part) const override {
    MOESTRO_RETURN_IF_ERROR(check_order(read, range));
    MOESTRO_RETURN_IF_ERROR(load_scales(read, range, part));
    // In the first version, zero points are stored less 1. GPTQModel takes 1 from all eight of a word at once, with a
    // borrow from the next where one is 0, and 1 is added so here. AutoGPTQ takes it from each number: where a zero
    // point is 0, which needs sym false, its words differ, and nothing in a file says whose they are.
    MOESTRO_RETURN_IF_ERROR(unpack_rows(
        read, zeros_, part.first_group, part.groups, range, zeros_less_1_ ? 0x11111111u : 0u,
        [](int64_t i) { return 4 * i; },
        [&](int64_t g, int64_t r, uint8_t zero) { part.zeros[static_cast<size_t>(r * part.groups + g)] = zero; }));
    Bytes bytes;  // a word has 8 adjacent columns of a row
    const int64_t first = range.first_col / kInWord, lines = range.cols / kInWord;
    MOESTRO_RETURN_IF_ERROR(read_rows(read, words_, rows(), 4, {first, lines, range.first_row, range.rows}, bytes));
    for (int64_t line = 0; line < lines; ++line)
      for (int64_t r = 0; r < range.rows; ++r) {
        const auto word = number_at<uint32_t>(bytes, line * range.rows + r);
        uint8_t* to = part.values.data() + r * range.cols + line * kInWord;
        for (int64_t i = 0; i < kInWord; ++i) to[i] = static_cast<uint8_t>(word >> 4 * i & 15);
      }
    return Status::ok();
  }

 private:
  // With act-order, adjacent columns belong to different groups, and no block has one scale.
  Status check_order(const ReadTensor& read, const MatrixRange& range) const {
    if (!groups_of_) return Status::ok();
    Bytes bytes;
    MOESTRO_RETURN_IF_ERROR(read_rows(read, *groups_of_, cols(), 4, {0, 1, range.first_col, range.cols}, bytes));
    for (int64_t c = 0; c < range.cols; ++c)
      if (number_at<int32_t>(bytes, c) != (range.first_col + c) / group())
        return unsupported("tensor " + in_quotes(groups_of_->name) + " orders columns by activation (GPTQ with "
                           "desc_act), which is not supported: take a checkpoint that was quantised with desc_act "
                           "false, or with static_groups, or pack the unquantised one with --experts int4");
    return Status::ok();
  }

  SourceTensor words_, zeros_;
  std::optional<SourceTensor> groups_of_;
  bool zeros_less_1_;
};

class AwqMatrix : public TransposedInt4Matrix {
 public:
  AwqMatrix(std::string name, DType dtype, int64_t rows, int64_t cols, int64_t group, SourceTensor scales,
            SourceTensor words, SourceTensor zeros)
      : TransposedInt4Matrix(std::move(name), dtype, rows, cols, group, std::move(scales)),
        words_(std::move(words)),
        zeros_(std::move(zeros)) {}

 protected:
  Status load(const ReadTensor& read, const MatrixRange& range, Part& part) const override {
    constexpr std::array<int, kInWord> kShifts = {0, 16, 4, 20, 8, 24, 12, 28};  // of rows 0..7
    const auto shift_of = [&](int64_t i) { return kShifts[static_cast<size_t>(i)]; };
    MOESTRO_RETURN_IF_ERROR(load_scales(read, range, part));
    MOESTRO_RETURN_IF_ERROR(unpack_rows(
        read, zeros_, part.first_group, part.groups, range, 0, shift_of,
        [&](int64_t g, int64_t r, uint8_t zero) { part.zeros[static_cast<size_t>(r * part.groups + g)] = zero; }));
    return unpack_rows(
        read, words_, range.first_col, range.cols, range, 0, shift_of,
        [&](int64_t c, int64_t r, uint8_t value) { part.values[static_cast<size_t>(r * range.cols + c)] = value; });
  }

 private:
  SourceTensor words_, zeros_;
};

/// compressed-tensors: our orientation; zero points are packed along rows.
class PackedInt4Matrix : public Int4Matrix {
 public:
  PackedInt4Matrix(std::string name, DType dtype, int64_t rows, int64_t cols, int64_t group, SourceTensor scales,
                   SourceTensor words, std::optional<SourceTensor> zeros)
      : Int4Matrix(std::move(name), dtype, rows, cols, group, std::move(scales)),
        words_(std::move(words)),
        zeros_(std::move(zeros)) {}

 protected:
  Status load(const ReadTensor& read, const MatrixRange& range, Part& part) const override {
    Bytes bytes;
    MOESTRO_RETURN_IF_ERROR(read_rows(read, words_, cols() / 2, 1,
                                      {range.first_row, range.rows, range.first_col / 2, range.cols / 2}, bytes));
    const AdjacentNibbles nibble{reinterpret_cast<const uint8_t*>(bytes.data())};
    for (size_t i = 0; i < part.values.size(); ++i)
      part.values[i] = static_cast<uint8_t>(nibble(static_cast<int64_t>(i)));
    MOESTRO_RETURN_IF_ERROR(read_rows(read, scales(), all_groups(), 2,
                                      {range.first_row, range.rows, part.first_group, part.groups}, bytes));
    std::memcpy(part.scales.data(), bytes.data(), bytes.size());
    constexpr uint8_t kMiddle = 8;  // numbers are signed, and stored with 8 added
    if (!zeros_) return std::ranges::fill(part.zeros, kMiddle), Status::ok();
    const int64_t first = range.first_row / kInWord, last = ceil_div(range.first_row + range.rows, kInWord);
    MOESTRO_RETURN_IF_ERROR(read_rows(read, *zeros_, all_groups(), 4,
                                      {first, last - first, part.first_group, part.groups}, bytes));
    for (int64_t r = 0; r < range.rows; ++r)
      for (int64_t g = 0; g < part.groups; ++g) {
        const int64_t row = range.first_row + r;
        const auto word = number_at<uint32_t>(bytes, (row / kInWord - first) * part.groups + g);
        part.zeros[static_cast<size_t>(r * part.groups + g)] =
            static_cast<uint8_t>(word >> 4 * (row % kInWord) & 15);
      }
    return Status::ok();
  }

 private:
  SourceTensor words_;
  std::optional<SourceTensor> zeros_;
};

class Nvfp4Matrix : public QuantisedMatrix {
 public:
  /// `divides`: the tensor's scale is what scales are divided by.
  Nvfp4Matrix(std::string name, int64_t rows, int64_t cols, SourceTensor values, SourceTensor scales,
              SourceTensor whole, bool divides)
      : QuantisedMatrix(std::move(name), DType::kNVFP4, rows, cols),
        values_(std::move(values)),
        scales_(std::move(scales)),
        whole_(std::move(whole)),
        divides_(divides) {}

  Status read_range(const ReadTensor& read, const MatrixRange& range, std::byte* out) const override {
    constexpr int64_t kGroup = 16;
    const BlockShape shape = block_shape(dtype());
    const int64_t groups = shape.columns / kGroup;
    Bytes values, scales, whole(sizeof(float));
    MOESTRO_RETURN_IF_ERROR(read(whole_, 0, whole));
    MOESTRO_RETURN_IF_ERROR(read_rows(read, values_, cols() / 2, 1,
                                      {range.first_row, range.rows, range.first_col / 2, range.cols / 2}, values));
    MOESTRO_RETURN_IF_ERROR(
        read_rows(read, scales_, cols() / kGroup, 1,
                  {range.first_row, range.rows, range.first_col / kGroup, range.cols / kGroup}, scales));
    float factor = number_at<float>(whole, 0);
    if (divides_) factor = 1.0f / factor;
    for (int64_t b = 0; b < range.rows * range.cols / shape.columns; ++b, out += shape.bytes) {
      std::memcpy(out, &factor, sizeof factor);
      std::memcpy(out + kHeaderBytes, scales.data() + b * groups, static_cast<size_t>(groups));
      const auto* from = reinterpret_cast<const uint8_t*>(values.data()) + b * shape.columns / 2;
      pack_nibbles(shape.columns, AdjacentNibbles{from},
                   reinterpret_cast<uint8_t*>(out + kHeaderBytes + groups));
    }
    return Status::ok();
  }

 private:
  SourceTensor values_, scales_, whole_;
  bool divides_;
};

}  // namespace

std::shared_ptr<const QuantisedMatrix> mxfp4_matrix(const MatrixName& m, SourceTensor blocks, SourceTensor scales) {
  return std::make_shared<Mxfp4Matrix>(m.name, m.rows, m.cols, std::move(blocks), std::move(scales));
}

std::shared_ptr<const QuantisedMatrix> fp8_matrix(const MatrixName& m, DType dtype, SourceTensor values,
                                                  SourceTensor scales, int64_t block_rows, int64_t block_cols) {
  return std::make_shared<Fp8Matrix>(m.name, dtype, m.rows, m.cols, std::move(values), std::move(scales), block_rows,
                                     block_cols);
}

std::shared_ptr<const QuantisedMatrix> gptq_matrix(const MatrixName& m, DType dtype, int64_t group, Int4Tensors t,
                                                   std::optional<SourceTensor> groups_of, bool zeros_less_1) {
  return std::make_shared<GptqMatrix>(m.name, dtype, m.rows, m.cols, group, std::move(t.scales), std::move(t.words),
                                      std::move(*t.zeros), std::move(groups_of), zeros_less_1);
}

std::shared_ptr<const QuantisedMatrix> awq_matrix(const MatrixName& m, DType dtype, int64_t group, Int4Tensors t) {
  return std::make_shared<AwqMatrix>(m.name, dtype, m.rows, m.cols, group, std::move(t.scales), std::move(t.words),
                                     std::move(*t.zeros));
}

std::shared_ptr<const QuantisedMatrix> packed_int4_matrix(const MatrixName& m, DType dtype, int64_t group,
                                                          Int4Tensors t) {
  return std::make_shared<PackedInt4Matrix>(m.name, dtype, m.rows, m.cols, group, std::move(t.scales),
                                            std::move(t.words), std::move(t.zeros));
}

std::shared_ptr<const QuantisedMatrix> nvfp4_matrix(const MatrixName& m, SourceTensor values, SourceTensor scales,
                                                    SourceTensor whole, bool divides) {
  return std::make_shared<Nvfp4Matrix>(m.name, m.rows, m.cols, std::move(values), std::move(scales), std::move(whole),
                                       divides);
}

}  // namespace moestro::store
