#include "store/pack/expert_matrix.h"

#include <algorithm>
#include <cstring>

#include "store/pack/quantised_matrix.h"

namespace moestro::store {
namespace {

constexpr int64_t kPieceBytes = 1 << 20;  // of reads that take more than was asked for

const std::string& matrix_name(const model::ExpertTensors& e, model::ExpertPart part) {
  return part == model::ExpertPart::kGate ? e.gate : part == model::ExpertPart::kUp ? e.up : e.down;
}

const std::string& bias_name(const model::ExpertTensors& e, model::ExpertPart part) {
  return part == model::ExpertPart::kGate ? e.gate_bias : part == model::ExpertPart::kUp ? e.up_bias : e.down_bias;
}

}  // namespace

ExpertMatrix::ExpertMatrix(const Checkpoint& checkpoint, const std::string& name, model::ExpertView view)
    : checkpoint_(checkpoint), tensor_(&checkpoint.tensor(name)), view_(std::move(view)) {}

ExpertMatrix ExpertMatrix::of(const Checkpoint& checkpoint, const model::ExpertTensors& expert,
                              model::ExpertPart part) {
  return {checkpoint, matrix_name(expert, part), view_of(checkpoint.model(), expert, part)};
}

ExpertMatrix ExpertMatrix::bias_of(const Checkpoint& checkpoint, const model::ExpertTensors& expert,
                                   model::ExpertPart part) {
  return {checkpoint, bias_name(expert, part), bias_view_of(checkpoint.model(), expert, part)};
}

bool ExpertMatrix::has_short_runs() const {
  return view_.col_step != 1 || (tensor_->matrix && tensor_->matrix->has_short_runs());
}

Status ExpertMatrix::read_numbers(int64_t first, int64_t count, std::byte* out) {
  return checkpoint_.read(*tensor_, static_cast<uint64_t>(bytes_of(first)),
                          {out, static_cast<size_t>(bytes_of(count))});
}

// `count` runs of `span` numbers, from `first` on in steps of `step`. If they are near each other, many are read at
// once, with what lies between them.
template <class Use>
Status ExpertMatrix::for_lines(int64_t first, int64_t span, int64_t step, int64_t count, const Use& use) {
  const bool near = 2 * span >= step;
  const int64_t at_once = near ? std::clamp<int64_t>(kPieceBytes / bytes_of(step), 1, count) : 1;
  for (int64_t i = 0; i < count; i += at_once) {
    const int64_t lines = std::min(at_once, count - i), numbers = (lines - 1) * step + span;
    piece_.resize(static_cast<size_t>(bytes_of(numbers)));
    MOESTRO_RETURN_IF_ERROR(read_numbers(first + i * step, numbers, piece_.data()));
    for (int64_t j = 0; j < lines; ++j) use(i + j, piece_.data() + bytes_of(j * step));
  }
  return Status::ok();
}

Status ExpertMatrix::read(Range rows, Range cols, std::span<std::byte> out) {
  MOESTRO_CHECK(static_cast<int64_t>(out.size()) == rows.count * bytes_of(cols.count), "room for what is read");
  const int64_t first = view_.first + rows.first * view_.row_step + cols.first * view_.col_step;
  if (tensor_->matrix && view_.row_step == tensor_->matrix->cols())
    return checkpoint_.read_range(
        *tensor_, {view_.first / view_.row_step + rows.first, rows.count, cols.first, cols.count}, out);
  if (view_.col_step == 1) {
    if (view_.row_step == cols.count) return read_numbers(first, rows.count * cols.count, out.data());
    const auto bytes = static_cast<size_t>(bytes_of(cols.count));
    return for_lines(first, cols.count, view_.row_step, rows.count, [&](int64_t row, const std::byte* numbers) {
      std::memcpy(out.data() + static_cast<size_t>(row) * bytes, numbers, bytes);
    });
  }
  const int64_t element = dtype_bytes(*tensor_->dtype);  // no blocks: they lie along rows
  const auto each = static_cast<size_t>(element);
  const int64_t span = (rows.count - 1) * view_.row_step + 1;
  return for_lines(first, span, view_.col_step, cols.count, [&](int64_t col, const std::byte* numbers) {
    for (int64_t r = 0; r < rows.count; ++r)
      std::memcpy(out.data() + (r * cols.count + col) * element, numbers + r * view_.row_step * element, each);
  });
}

}  // namespace moestro::store
