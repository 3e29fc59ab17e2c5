#include "store/pack/dense_source.h"

#include <algorithm>

namespace moestro::store {

uint64_t DenseSource::row_bytes() const {
  auto bytes = static_cast<uint64_t>(dtype_bytes(*tensor_.dtype));
  for (size_t i = 1; i < wanted_.shape.size(); ++i) bytes *= static_cast<uint64_t>(wanted_.shape[i]);
  return bytes;
}

uint64_t DenseSource::source_row(uint64_t row) const {
  const auto first = static_cast<uint64_t>(wanted_.source_row), head = static_cast<uint64_t>(wanted_.head_rows);
  if (head == 0) return first + row;
  const uint64_t within = row % head, half = head / 2;
  return first + row - within + (within < half ? 2 * within : 2 * (within - half) + 1);
}

Status DenseSource::read(uint64_t first, std::span<std::byte> out) const {
  const uint64_t row = row_bytes();
  if (wanted_.head_rows == 0) return checkpoint_.read(tensor_, source_row(0) * row + first, out);
  while (!out.empty()) {
    const uint64_t within = first % row, part = std::min<uint64_t>(out.size(), row - within);
    MOESTRO_RETURN_IF_ERROR(checkpoint_.read(tensor_, source_row(first / row) * row + within, out.first(part)));
    first += part;
    out = out.subspan(part);
  }
  return Status::ok();
}

}  // namespace moestro::store
