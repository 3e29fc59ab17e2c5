#include "store/pack/expert_matrix.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "common/float16.h"
#include "common/model/strict_json.h"
#include "store/pack/finite.h"

namespace moestro::store {
namespace {

constexpr int64_t kPieceBytes = 1 << 20;  // of reads that take more than was asked for
constexpr float kMxfp4Values[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                    -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

const std::string& matrix_name(const model::ExpertTensors& e, model::ExpertPart part) {
  return part == model::ExpertPart::kGate ? e.gate : part == model::ExpertPart::kUp ? e.up : e.down;
}

const std::string& bias_name(const model::ExpertTensors& e, model::ExpertPart part) {
  return part == model::ExpertPart::kGate ? e.gate_bias : part == model::ExpertPart::kUp ? e.up_bias : e.down_bias;
}

/// [exponent][number of 4 bits] as bf16.
using Mxfp4Table = std::array<std::array<uint16_t, 16>, 256>;
constexpr int kSafeExponent = 252;  // 6 * 2^125 is finite

const Mxfp4Table& mxfp4_table() {
  static const Mxfp4Table table = [] {
    Mxfp4Table t;
    for (int e = 0; e < 256; ++e)
      for (size_t v = 0; v < 16; ++v) t[static_cast<size_t>(e)][v] = f32_to_bf16(std::ldexp(kMxfp4Values[v], e - 127));
    return t;
  }();
  return table;
}

// One group: 16 bytes become 32 numbers of bf16. False if one is not finite.
bool widen_group(const std::byte* bytes, std::byte exponent, std::byte* out) {
  const auto& values = mxfp4_table()[std::to_integer<size_t>(exponent)];
  uint16_t wide[model::kMxfp4Group];
  for (size_t i = 0; i < model::kMxfp4Group / 2; ++i) {
    const auto both = std::to_integer<unsigned>(bytes[i]);
    wide[2 * i] = values[both & 15u];
    wide[2 * i + 1] = values[both >> 4];
  }
  std::memcpy(out, wide, sizeof wide);
  const int e = std::to_integer<int>(exponent);
  return e <= kSafeExponent || (e < 255 && !find_not_finite(DType::kBF16, {out, sizeof wide}));
}

}  // namespace

std::string mxfp4_blocks(const std::string& tensor) { return tensor + "_blocks"; }
std::string mxfp4_scales(const std::string& tensor) { return tensor + "_scales"; }

ExpertMatrix::ExpertMatrix(const Checkpoint& checkpoint, const std::string& name, model::ExpertView view)
    : checkpoint_(checkpoint), view_(std::move(view)) {
  as_read_.name = name;
}

ExpertMatrix ExpertMatrix::of(const Checkpoint& checkpoint, const model::ExpertTensors& expert,
                              model::ExpertPart part) {
  const std::string& name = matrix_name(expert, part);
  ExpertMatrix matrix(checkpoint, name, view_of(checkpoint.model(), expert, part));
  if (checkpoint.model().storage.mxfp4) {
    matrix.tensor_ = &checkpoint.tensor(mxfp4_blocks(name));
    matrix.scales_ = &checkpoint.tensor(mxfp4_scales(name));
    matrix.as_read_.format = "MXFP4", matrix.as_read_.dtype = DType::kBF16;
  } else {
    matrix.tensor_ = &checkpoint.tensor(name);
    matrix.as_read_ = *matrix.tensor_;
  }
  return matrix;
}

ExpertMatrix ExpertMatrix::bias_of(const Checkpoint& checkpoint, const model::ExpertTensors& expert,
                                   model::ExpertPart part) {
  const std::string& name = bias_name(expert, part);
  ExpertMatrix matrix(checkpoint, name, bias_view_of(checkpoint.model(), expert, part));
  matrix.as_read_ = *(matrix.tensor_ = &checkpoint.tensor(name));
  return matrix;
}

Status ExpertMatrix::read_mxfp4(int64_t first, int64_t count, std::byte* out) {
  constexpr int64_t kGroup = model::kMxfp4Group;
  MOESTRO_CHECK(first % kGroup == 0 && count % kGroup == 0, "whole groups of MXFP4");
  packed_.resize(static_cast<size_t>(count / 2));
  exponents_.resize(static_cast<size_t>(count / kGroup));
  MOESTRO_RETURN_IF_ERROR(checkpoint_.read(*tensor_, static_cast<uint64_t>(first / 2), packed_));
  MOESTRO_RETURN_IF_ERROR(checkpoint_.read(*scales_, static_cast<uint64_t>(first / kGroup), exponents_));
  for (int64_t g = 0; g < count / kGroup; ++g)
    if (!widen_group(packed_.data() + g * kGroup / 2, exponents_[static_cast<size_t>(g)], out + 2 * g * kGroup))
      return invalid_argument(checkpoint_.directory().string() + ": tensor " + model::in_quotes(scales_->name) +
                              " makes numbers that are infinite or not a number (exponent " +
                              std::to_string(std::to_integer<int>(exponents_[static_cast<size_t>(g)])) + " at value " +
                              std::to_string(first / kGroup + g) + "); the checkpoint is damaged or was never good");
  return Status::ok();
}

Status ExpertMatrix::read_numbers(int64_t first, int64_t count, std::byte* out) {
  if (scales_ != nullptr) return read_mxfp4(first, count, out);
  const int64_t element = dtype_bytes(*tensor_->dtype);
  return checkpoint_.read(*tensor_, static_cast<uint64_t>(first * element),
                          {out, static_cast<size_t>(count * element)});
}

// `count` runs of `span` numbers, from `first` on in steps of `step`. If they are near each other, many are read at
// once, with what lies between them.
template <class Use>
Status ExpertMatrix::for_lines(int64_t first, int64_t span, int64_t step, int64_t count, const Use& use) {
  const int64_t element = dtype_bytes(*as_read_.dtype);
  const bool near = 2 * span >= step;
  const int64_t at_once = near ? std::clamp<int64_t>(kPieceBytes / (step * element), 1, count) : 1;
  for (int64_t i = 0; i < count; i += at_once) {
    const int64_t lines = std::min(at_once, count - i), numbers = (lines - 1) * step + span;
    piece_.resize(static_cast<size_t>(numbers * element));
    MOESTRO_RETURN_IF_ERROR(read_numbers(first + i * step, numbers, piece_.data()));
    for (int64_t j = 0; j < lines; ++j) use(i + j, piece_.data() + j * step * element);
  }
  return Status::ok();
}

Status ExpertMatrix::read(Range rows, Range cols, std::span<std::byte> out) {
  const int64_t element = dtype_bytes(*as_read_.dtype);
  MOESTRO_CHECK(static_cast<int64_t>(out.size()) == rows.count * cols.count * element, "room for what is read");
  const int64_t first = view_.first + rows.first * view_.row_step + cols.first * view_.col_step;
  if (view_.col_step == 1) {
    if (view_.row_step == cols.count) return read_numbers(first, rows.count * cols.count, out.data());
    const auto bytes = static_cast<size_t>(cols.count * element);
    return for_lines(first, cols.count, view_.row_step, rows.count, [&](int64_t row, const std::byte* numbers) {
      std::memcpy(out.data() + static_cast<size_t>(row) * bytes, numbers, bytes);
    });
  }
  const auto each = static_cast<size_t>(element);
  const int64_t span = (rows.count - 1) * view_.row_step + 1;
  return for_lines(first, span, view_.col_step, cols.count, [&](int64_t col, const std::byte* numbers) {
    for (int64_t r = 0; r < rows.count; ++r)
      std::memcpy(out.data() + (r * cols.count + col) * element, numbers + r * view_.row_step * element, each);
  });
}

}  // namespace moestro::store
