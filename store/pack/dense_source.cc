#include "store/pack/dense_source.h"

#include <algorithm>
#include <cstring>

#include "store/pack/convert.h"

namespace moestro::store {
namespace {

/// Two formats as one that holds both.
DType joined(DType a, DType b) { return a == b && !is_blocks(a) ? a : DType::kF32; }

}  // namespace

DType dense_source_dtype(const Checkpoint& checkpoint, const model::DenseTensor& wanted) {
  const DType own = *checkpoint.tensor(wanted.source_name).dtype;
  return wanted.values_name.empty() ? own : joined(own, *checkpoint.tensor(wanted.values_name).dtype);
}

DenseSource::DenseSource(const Checkpoint& checkpoint, const model::DenseTensor& wanted, uint64_t band_bytes_max,
                         std::vector<std::byte>& band)
    : checkpoint_(checkpoint),
      wanted_(wanted),
      tensor_(checkpoint.tensor(wanted.source_name)),
      band_bytes_max_(band_bytes_max),
      band_(band) {
  tensor_.dtype = dense_source_dtype(checkpoint, wanted);
}

uint64_t DenseSource::row_bytes() const {
  int64_t numbers = 1;
  for (size_t i = 1; i < wanted_.shape.size(); ++i) numbers *= wanted_.shape[i];
  return static_cast<uint64_t>(moestro::row_bytes(*tensor_.dtype, numbers));
}

uint64_t DenseSource::source_row(uint64_t row) const {
  const auto first = static_cast<uint64_t>(wanted_.source_row), head = static_cast<uint64_t>(wanted_.head_rows);
  if (wanted_.group_rows > 0) {
    const auto group = static_cast<uint64_t>(wanted_.group_rows), step = static_cast<uint64_t>(wanted_.group_step);
    return first + row / group * step + row % group;
  }
  if (head == 0) return first + row;
  const uint64_t within = row % head, half = head / 2;
  return first + row - within + (within < half ? 2 * within : 2 * (within - half) + 1);
}

Status DenseSource::read(uint64_t first, std::span<std::byte> out) {
  if (wanted_.head_rows > 0 || wanted_.group_rows > 0 || !wanted_.values_name.empty())
    return read_by_rows(first, out);
  return read_at(source_row(0) * row_bytes() + first, out);
}

Status DenseSource::read_at(uint64_t at, std::span<std::byte> out) {
  if (!tensor_.matrix || !tensor_.matrix->has_short_runs()) return checkpoint_.read(tensor_, at, out);
  while (!out.empty()) {
    if (at < band_at_ || at >= band_at_ + band_bytes_) MOESTRO_RETURN_IF_ERROR(load_band(at));
    const uint64_t within = at - band_at_, part = std::min<uint64_t>(out.size(), band_bytes_ - within);
    std::memcpy(out.data(), band_.data() + within, part);
    at += part;
    out = out.subspan(part);
  }
  return Status::ok();
}

// Whole rows from the one of `at` on: a checkpoint has each column of them in one run.
Status DenseSource::load_band(uint64_t at) {
  const auto row = static_cast<uint64_t>(moestro::row_bytes(*tensor_.dtype, tensor_.matrix->cols()));
  const uint64_t rows = std::max<uint64_t>(band_bytes_max_ / row, 1), first = at / row * row;
  const uint64_t bytes = std::min(rows * row, tensor_.bytes - first);
  if (band_.size() < bytes) band_.resize(bytes);  // never smaller, as each growth fills it with zeros
  band_at_ = first, band_bytes_ = 0;
  MOESTRO_RETURN_IF_ERROR(checkpoint_.read(tensor_, first, std::span(band_).first(bytes)));
  band_bytes_ = bytes;
  return Status::ok();
}

Status DenseSource::read_by_rows(uint64_t first, std::span<std::byte> out) {
  const uint64_t row = row_bytes();
  while (!out.empty()) {
    const uint64_t within = first % row, part = std::min<uint64_t>(out.size(), row - within);
    if (wanted_.values_name.empty()) {
      MOESTRO_RETURN_IF_ERROR(read_at(source_row(first / row) * row + within, out.first(part)));
    } else {
      MOESTRO_RETURN_IF_ERROR(read_latent_row(first / row));
      std::memcpy(out.data(), row_.data() + within, part);
    }
    first += part;
    out = out.subspan(part);
  }
  return Status::ok();
}

Status DenseSource::read_latent_row(uint64_t row) {
  const int64_t keys = wanted_.key_rows, values = wanted_.value_rows, rank = wanted_.shape[1];
  const int64_t at = static_cast<int64_t>(row), head = at / (keys + values), within = at % (keys + values);
  if (within >= keys)
    return read_rows(checkpoint_.tensor(wanted_.values_name), head * values + within - keys, 1, row_);
  if (keys_head_ != head) {
    MOESTRO_RETURN_IF_ERROR(read_rows(checkpoint_.tensor(wanted_.source_name), head * rank, rank, keys_));
    keys_head_ = head;
  }
  const int64_t each = dtype_bytes(*tensor_.dtype);
  row_.resize(row_bytes());
  for (int64_t c = 0; c < rank; ++c)
    std::memcpy(row_.data() + c * each, keys_.data() + (c * keys + within) * each, static_cast<size_t>(each));
  return Status::ok();
}

Status DenseSource::read_rows(const SourceTensor& from, int64_t first, int64_t count, std::vector<std::byte>& out) {
  const int64_t cols = from.shape[1], bytes = moestro::row_bytes(*from.dtype, cols);
  raw_.resize(static_cast<size_t>(count * bytes));
  out.resize(static_cast<size_t>(count * moestro::row_bytes(*tensor_.dtype, cols)));
  MOESTRO_RETURN_IF_ERROR(checkpoint_.read(from, static_cast<uint64_t>(first * bytes), raw_));
  const bool fits = convert_values(*from.dtype, raw_.data(), *tensor_.dtype, out.data(), count * cols);
  MOESTRO_CHECK(fits, "f32 holds every number of a block");
  return Status::ok();
}

}  // namespace moestro::store
