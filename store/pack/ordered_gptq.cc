#include <algorithm>
#include <cstring>

#include "common/expert_layout.h"
#include "store/pack/matrix_numbers.h"
#include "store/pack/quantised_dialects.h"

namespace moestro::store {
namespace {

/// GPTQ with act-order: adjacent columns belong to different groups, so that no block has one scale. Its numbers, which
/// f32 holds exactly.
class OrderedGptqMatrix : public QuantisedMatrix {
 public:
  OrderedGptqMatrix(std::string name, int64_t rows, int64_t cols, std::vector<int32_t> groups_of, Int4Tensors t,
                    GptqZeros form)
      : QuantisedMatrix(std::move(name), DType::kF32, rows, cols),
        groups_of_(std::move(groups_of)),
        t_(std::move(t)),
        form_(form) {}

  bool has_short_runs() const override { return true; }
  bool is_widened() const override { return true; }

  Status read_range(const ReadTensor& read, const MatrixRange& range, std::byte* out) const override {
    const int64_t rows_at_once = std::max<int64_t>(kNumbersAtOnce / range.cols, 1);
    for (int64_t r = 0; r < range.rows; r += rows_at_once)
      MOESTRO_RETURN_IF_ERROR(read_part(
          read, {range.first_row + r, std::min(rows_at_once, range.rows - r), range.first_col, range.cols},
          out + r * row_bytes(dtype(), range.cols)));
    return Status::ok();
  }

 private:
  Status read_part(const ReadTensor& read, const MatrixRange& range, std::byte* out) const {
    const int64_t groups = t_.scales.shape[0], first_word = range.first_row / kInWord,
                  words = ceil_div(range.first_row + range.rows, kInWord) - first_word;
    const int64_t first_line = range.first_col / kInWord,
                  lines = ceil_div(range.first_col + range.cols, kInWord) - first_line;
    Bytes scales, zeros, numbers;
    MOESTRO_RETURN_IF_ERROR(read_rows(read, t_.scales, rows(), 2, {0, groups, range.first_row, range.rows}, scales));
    MOESTRO_RETURN_IF_ERROR(
        read_rows(read, *t_.zeros, rows() / kInWord, 4, {0, groups, first_word, words}, zeros));
    MOESTRO_RETURN_IF_ERROR(check_middle(*t_.zeros, zeros, form_));
    MOESTRO_RETURN_IF_ERROR(
        read_rows(read, t_.words, rows(), 4, {first_line, lines, range.first_row, range.rows}, numbers));
    for (int64_t r = 0; r < range.rows; ++r)
      for (int64_t c = 0; c < range.cols; ++c) {
        const int64_t column = range.first_col + c, g = groups_of_[static_cast<size_t>(column)],
                      row = range.first_row + r;
        const uint32_t zero_word =
            zeros_of_word(number_at<uint32_t>(zeros, g * words + row / kInWord - first_word), form_);
        const auto zero = static_cast<int>(zero_word >> 4 * (row % kInWord) & 15);
        const auto word = number_at<uint32_t>(numbers, (column / kInWord - first_line) * range.rows + r);
        const auto number = static_cast<int>(word >> 4 * (column % kInWord) & 15);
        const float value = scale_at(t_.scales.format, scales, g * range.rows + r) * static_cast<float>(number - zero);
        std::memcpy(out + (r * range.cols + c) * static_cast<int64_t>(sizeof value), &value, sizeof value);
      }
    return Status::ok();
  }

  std::vector<int32_t> groups_of_;  ///< of each column
  Int4Tensors t_;
  GptqZeros form_;
};

}  // namespace

std::shared_ptr<const QuantisedMatrix> ordered_gptq_matrix(const MatrixName& m, std::vector<int32_t> groups_of,
                                                           Int4Tensors t, GptqZeros form) {
  return std::make_shared<OrderedGptqMatrix>(m.name, m.rows, m.cols, std::move(groups_of), std::move(t), form);
}

}  // namespace moestro::store
