#include "store/pack/quantised_dialects.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "common/expert_layout.h"
#include "store/pack/matrix_numbers.h"

namespace moestro::store {
namespace {

constexpr int64_t kRowsAtOnce = 64;          // that are unpacked together, so that they stay in the core's cache
constexpr int64_t kBytesAtOnce = 256 << 10;  // that are read and unpacked together, for the second cache
constexpr int64_t kHeaderBytes = 4;          // before the values of blocks of fp8 and int4

int64_t scale_bytes(const std::string& format) { return format == "F32" ? 4 : format == "F8_E8M0" ? 1 : 2; }

/// Two numbers of 4 bits a byte, columns c and c + 16 of each 32; `nibble(c)` gives column c.
template <class Nibble>
void pack_nibbles(int64_t cols, const Nibble& nibble, uint8_t* out) {
  for (int64_t c = 0; c < cols; c += kRunColumns, out += kRunBytes)
    for (int64_t i = 0; i < kRunBytes; ++i)
      out[i] = static_cast<uint8_t>(nibble(c + i) | nibble(c + i + kRunBytes) << 4);
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
    MOESTRO_RETURN_IF_ERROR(read_rows(read, blocks_, cols() / shape.columns, kRunBytes, groups, values));
    MOESTRO_RETURN_IF_ERROR(read_rows(read, scales_, cols() / shape.columns, 1, groups, exponents));
    auto* to = reinterpret_cast<uint8_t*>(out);
    const auto* from = reinterpret_cast<const uint8_t*>(values.data());
    for (int64_t g = 0; g < groups.rows * groups.cols; ++g, to += shape.bytes, from += kRunBytes) {
      to[0] = std::to_integer<uint8_t>(exponents[static_cast<size_t>(g)]);
      pack_nibbles(kRunColumns, AdjacentNibbles{from}, to + 1);
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
  /// Of a range: where its numbers go, and scales and zero points, a row of them for each row.
  struct Part {
    std::vector<uint8_t> zeros;
    std::vector<uint16_t> scales;
    int64_t first_group = 0, groups = 0;
    uint8_t* blocks = nullptr;
    BlockShape shape;
    int64_t row_bytes = 0;

    /// The 16 bytes of columns [32 * run, 32 * run + 32) of a row of the range.
    uint8_t* run(int64_t row, int64_t run) const {
      const int64_t runs = shape.columns / kRunColumns;
      return blocks + row * row_bytes + run / runs * shape.bytes + kHeaderBytes + run % runs * kRunBytes;
    }
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
    part.zeros.resize(static_cast<size_t>(range.rows * part.groups));
    part.scales.resize(part.zeros.size());
    part.blocks = reinterpret_cast<uint8_t*>(out);
    part.shape = block_shape(dtype());
    part.row_bytes = row_bytes(dtype(), range.cols);
    MOESTRO_RETURN_IF_ERROR(load(read, range, part));
    for (int64_t r = 0; r < range.rows; ++r)
      for (int64_t c = 0; c < range.cols; c += part.shape.columns, out += part.shape.bytes) {
        const auto g =
            static_cast<size_t>(r * part.groups + (range.first_col + c) / group_ - part.first_group);
        std::memcpy(out, &part.scales[g], sizeof(uint16_t));
        out[2] = static_cast<std::byte>(part.zeros[g]);
        out[3] = static_cast<std::byte>(scales_.format == "BF16" ? 1 : 0);
      }
    return Status::ok();
  }

  SourceTensor scales_;
  int64_t group_;
};

/// The eight numbers of a word, each in a byte, the lowest first.
uint64_t spread(uint32_t word) {
  uint64_t x = word;
  x = (x | x << 16) & 0x0000ffff0000ffffu;
  x = (x | x << 8) & 0x00ff00ff00ff00ffu;
  return (x | x << 4) & 0x0f0f0f0f0f0f0f0fu;
}

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
    for (int64_t band = 0; band < range.rows; band += kRowsAtOnce)
      for (int64_t g = 0; g < part.groups; ++g)
        for (int64_t r = band; r < std::min(band + kRowsAtOnce, range.rows); ++r)
          part.scales[static_cast<size_t>(r * part.groups + g)] = number_at<uint16_t>(bytes, g * range.rows + r);
    return Status::ok();
  }
  /// Calls use(first, count) for the range's columns, counted from its own first: as many runs as fit in the core's
  /// second cache, if the words of one are `run_bytes`.
  template <class Use>
  static Status in_parts(const MatrixRange& range, int64_t run_bytes, const Use& use) {
    const int64_t at_once = std::max<int64_t>(kBytesAtOnce / run_bytes, 1) * kRunColumns;
    for (int64_t c = 0; c < range.cols; c += at_once)
      MOESTRO_RETURN_IF_ERROR(use(c, std::min(at_once, range.cols - c)));
    return Status::ok();
  }
  /// Words [groups, rows / 8] of zero points.
  Status read_zeros(const ReadTensor& read, const SourceTensor& zeros, const MatrixRange& range, const Part& part,
                    Bytes& words) const {
    const int64_t first = range.first_row / kInWord, last = ceil_div(range.first_row + range.rows, kInWord);
    return read_rows(read, zeros, rows() / kInWord, 4, {part.first_group, part.groups, first, last - first}, words);
  }
  /// word(stored) gives the eight numbers of one of them in order.
  template <class Word>
  static void place_zeros(const Bytes& words, const MatrixRange& range, const Word& word, Part& part) {
    const int64_t first = range.first_row / kInWord, last = ceil_div(range.first_row + range.rows, kInWord);
    for (int64_t w = first; w < last; ++w)
      for (int64_t g = 0; g < part.groups; ++g) {
        const uint64_t numbers = word(number_at<uint32_t>(words, g * (last - first) + w - first));
        const int64_t end = std::min((w + 1) * kInWord, range.first_row + range.rows);
        for (int64_t r = std::max(w * kInWord, range.first_row); r < end; ++r)
          part.zeros[static_cast<size_t>((r - range.first_row) * part.groups + g)] =
              static_cast<uint8_t>(numbers >> 8 * (r % kInWord));
      }
  }
};

class GptqMatrix : public TransposedInt4Matrix {
 public:
  GptqMatrix(std::string name, DType dtype, int64_t rows, int64_t cols, int64_t group, Int4Tensors t, GptqZeros form)
      : TransposedInt4Matrix(std::move(name), dtype, rows, cols, group, std::move(t.scales)),
        words_(std::move(t.words)),
        zeros_(std::move(*t.zeros)),
        form_(form) {}

 protected:
  Status load(const ReadTensor& read, const MatrixRange& range, Part& part) const override {
    MOESTRO_RETURN_IF_ERROR(load_scales(read, range, part));
    Bytes bytes;
    MOESTRO_RETURN_IF_ERROR(read_zeros(read, zeros_, range, part, bytes));
    MOESTRO_RETURN_IF_ERROR(check_middle(zeros_, bytes, form_));
    place_zeros(bytes, range, [&](uint32_t stored) { return spread(zeros_of_word(stored, form_)); }, part);
    const int64_t line = range.rows * 4;              // words of 8 adjacent columns of each row
    constexpr int64_t kLines = kRunColumns / kInWord;  // of a run
    return in_parts(range, kLines * line, [&](int64_t first_col, int64_t cols) -> Status {
      const MatrixRange lines{(range.first_col + first_col) / kInWord, cols / kInWord, range.first_row, range.rows};
      MOESTRO_RETURN_IF_ERROR(read_rows(read, words_, rows(), 4, lines, bytes));
      for (int64_t r = 0; r < range.rows; r += kGptqRows)
        for (int64_t run = 0; run < cols / kRunColumns; ++run)
          unpack_gptq(bytes.data() + run * kLines * line + r * 4, line, std::min(kGptqRows, range.rows - r),
                      part.run(r, first_col / kRunColumns + run), part.row_bytes);
      return Status::ok();
    });
  }

 private:
  SourceTensor words_, zeros_;
  GptqZeros form_;
};

class AwqMatrix : public TransposedInt4Matrix {
 public:
  AwqMatrix(std::string name, DType dtype, int64_t rows, int64_t cols, int64_t group, Int4Tensors t)
      : TransposedInt4Matrix(std::move(name), dtype, rows, cols, group, std::move(t.scales)),
        words_(std::move(t.words)),
        zeros_(std::move(*t.zeros)) {}

 protected:
  Status load(const ReadTensor& read, const MatrixRange& range, Part& part) const override {
    MOESTRO_RETURN_IF_ERROR(load_scales(read, range, part));
    Bytes bytes;
    MOESTRO_RETURN_IF_ERROR(read_zeros(read, zeros_, range, part, bytes));
    place_zeros(bytes, range, in_order, part);
    const int64_t first = range.first_row / kInWord,
                  words = ceil_div(range.first_row + range.rows, kInWord) - first,
                  line = words * 4;  // words of 8 adjacent rows of a column
    return in_parts(range, kRunColumns * line, [&](int64_t first_col, int64_t cols) -> Status {
      MOESTRO_RETURN_IF_ERROR(
          read_rows(read, words_, rows() / kInWord, 4, {range.first_col + first_col, cols, first, words}, bytes));
      for (int64_t w = 0; w < words; w += kAwqWords)
        for (int64_t run = 0; run < cols / kRunColumns; ++run)
          unpack_rows(bytes.data() + run * kRunColumns * line + w * 4, line, std::min(kAwqWords, words - w),
                      (first + w) * kInWord - range.first_row, range.rows,
                      part.run(0, first_col / kRunColumns + run), part.row_bytes);
      return Status::ok();
    });
  }

 private:
  /// A run of the rows of `count` words, of which the first is row `row` of the range, as far as it has them.
  static void unpack_rows(const std::byte* words, int64_t stride, int64_t count, int64_t row, int64_t rows,
                          uint8_t* out, int64_t row_bytes) {
    AwqRuns runs;
    unpack_awq(words, stride, count, runs);
    const int64_t end = std::min(row + count * kInWord, rows);
    for (int64_t r = std::max<int64_t>(row, 0); r < end; ++r)
      std::memcpy(out + r * row_bytes, runs.rows[r - row], sizeof runs.rows[0]);
  }
  /// The rows of a word, each in a byte: even ones are in its low half, odd ones in the high one.
  static uint64_t in_order(uint32_t word) {
    const uint64_t halves = spread(word), even = halves & 0xffffffffu, odd = halves >> 32;
    const auto apart = [](uint64_t four) {
      four = (four | four << 16) & 0x0000ffff0000ffffu;
      return (four | four << 8) & 0x00ff00ff00ff00ffu;
    };
    return apart(even) | apart(odd) << 8;
  }

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
    const auto* from = reinterpret_cast<const uint8_t*>(bytes.data());
    for (int64_t r = 0; r < range.rows; ++r)
      for (int64_t run = 0; run < range.cols / kRunColumns; ++run, from += kRunBytes)
        pack_nibbles(kRunColumns, AdjacentNibbles{from}, part.run(r, run));
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
                                                   GptqZeros form) {
  return std::make_shared<GptqMatrix>(m.name, dtype, m.rows, m.cols, group, std::move(t), form);
}

std::shared_ptr<const QuantisedMatrix> awq_matrix(const MatrixName& m, DType dtype, int64_t group, Int4Tensors t) {
  return std::make_shared<AwqMatrix>(m.name, dtype, m.rows, m.cols, group, std::move(t));
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
