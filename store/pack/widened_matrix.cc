#include <cstring>

#include "common/expert_layout.h"
#include "common/formats/blocks.h"
#include "store/pack/quantised_dialects.h"

namespace moestro::store {
namespace {

class WidenedMatrix : public QuantisedMatrix {
 public:
  WidenedMatrix(std::string name, Quantised blocks)
      : QuantisedMatrix(std::move(name), DType::kF32, blocks->rows(), blocks->cols()), blocks_(std::move(blocks)) {}

  bool has_short_runs() const override { return blocks_->has_short_runs(); }

  Status read_range(const ReadTensor& read, const MatrixRange& range, std::byte* out) const override {
    const int64_t columns = block_shape(blocks_->dtype()).columns, first = range.first_col / columns * columns,
                  count = round_up(range.first_col + range.cols, columns) - first;
    const auto stride = static_cast<size_t>(row_bytes(blocks_->dtype(), count));
    std::vector<std::byte> bytes(static_cast<size_t>(range.rows) * stride);
    MOESTRO_RETURN_IF_ERROR(blocks_->read_range(read, {range.first_row, range.rows, first, count}, bytes.data()));
    std::vector<float> row(static_cast<size_t>(count));
    const auto wanted = static_cast<size_t>(range.cols) * sizeof(float);
    for (size_t r = 0; r < static_cast<size_t>(range.rows); ++r) {
      formats::dequantise(blocks_->dtype(), bytes.data() + r * stride, count, row.data());
      std::memcpy(out + r * wanted, row.data() + (range.first_col - first), wanted);
    }
    return Status::ok();
  }

 private:
  Quantised blocks_;
};

}  // namespace

Quantised widened_matrix(std::string name, Quantised blocks) {
  return std::make_shared<WidenedMatrix>(std::move(name), std::move(blocks));
}

}  // namespace moestro::store
