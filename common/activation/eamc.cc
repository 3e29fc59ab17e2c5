#include "common/activation/eamc.h"

#include <algorithm>
#include <cmath>

#include "common/activation/eamc_kernels.h"
#include "common/check.h"

namespace moestro::activation {
namespace {

constexpr double kUnits = 255;
}  // namespace

std::vector<uint8_t> normalised(const ActivationMatrix& matrix, int32_t top_k) {
  std::vector<uint8_t> cells;
  cells.reserve(static_cast<size_t>(matrix.layers() * matrix.experts()));
  for (int64_t layer = 0; layer < matrix.layers(); ++layer) {
    const auto row = matrix.row(MoeLayerId(static_cast<uint32_t>(layer)));
    uint64_t total = 0;
    for (const uint32_t n : row) total += n;
    const double scale = total == 0 ? 0 : kUnits * top_k / static_cast<double>(total);
    for (const uint32_t n : row) cells.push_back(static_cast<uint8_t>(std::min(kUnits, std::round(scale * n))));
  }
  return cells;
}

Eamc::Eamc(const EamcShape& shape, int32_t capacity) : shape_(shape) { reset(capacity); }

void Eamc::reset(int32_t capacity) {
  capacity_ = std::max(capacity, 0);
  size_ = 0;
  ++version_;
  stride_ = (static_cast<size_t>(capacity_) + kBlock - 1) / kBlock * kBlock;
  by_entry_.assign(shape_.cells() * static_cast<size_t>(capacity_), 0);
  by_column_.assign(shape_.cells() * stride_, 0);
  inverse_norms_.assign(static_cast<size_t>(shape_.layers) * stride_, 0);
  changed_at_.assign(static_cast<size_t>(capacity_), 0);
}

std::span<const uint8_t> Eamc::cells(int32_t entry) const {
  MOESTRO_CHECK(entry >= 0 && entry < size_, "an entry of the collection");
  return std::span(by_entry_).subspan(static_cast<size_t>(entry) * shape_.cells(), shape_.cells());
}

void Eamc::put(int32_t entry, std::span<const uint8_t> cells) {
  const auto at = static_cast<size_t>(entry);
  std::copy(cells.begin(), cells.end(), by_entry_.begin() + static_cast<std::ptrdiff_t>(at * shape_.cells()));
  uint64_t squares = 0;
  for (int32_t layer = 0; layer < shape_.layers; ++layer) {
    for (int32_t e = 0; e < shape_.experts; ++e) {
      const size_t cell = static_cast<size_t>(layer) * static_cast<size_t>(shape_.experts) + static_cast<size_t>(e);
      by_column_[cell * stride_ + at] = cells[cell];
      squares += static_cast<uint64_t>(cells[cell]) * cells[cell];
    }
    inverse_norms_[static_cast<size_t>(layer) * stride_ + at] = squares == 0 ? 0.0F : static_cast<float>(1 / std::sqrt(static_cast<double>(squares)));
  }
  size_ = std::max(size_, entry + 1);
  changed_at_[at] = ++version_;
}

Status Eamc::set(int32_t entry, std::span<const uint8_t> cells) {
  if (entry < 0 || entry > size_ || entry >= capacity_)
    return invalid_argument("entry " + std::to_string(entry) + " of a collection that has " + std::to_string(size_) + " of " + std::to_string(capacity_));
  if (cells.size() != shape_.cells())
    return invalid_argument("an activation matrix of " + std::to_string(cells.size()) + " cells where the model has " + std::to_string(shape_.cells()));
  put(entry, cells);
  return Status::ok();
}

std::optional<Eamc::Change> Eamc::insert(const ActivationMatrix& matrix) {
  if (capacity_ == 0 || matrix.layers() != shape_.layers || matrix.experts() != shape_.experts) return std::nullopt;
  const std::vector<uint8_t> cells = normalised(matrix, shape_.top_k);
  if (std::all_of(cells.begin(), cells.end(), [](uint8_t c) { return c == 0; })) return std::nullopt;
  const bool full = size_ == capacity_;
  const int32_t entry = full ? most_similar(cells) : size_;
  put(entry, cells);
  return Change{entry, full};
}

int32_t Eamc::most_similar(std::span<const uint8_t> cells) const {
  if (size_ == 0) return -1;
  std::vector<uint32_t> dots(stride_);
  for (size_t cell = 0; cell < cells.size(); ++cell)
    if (cells[cell] != 0) add_weighted_column(by_column_.data() + cell * stride_, cells[cell], stride_used(), dots.data());
  const float none[kBlock] = {};
  const float* norms = inverse_norms(shape_.layers - 1);
  float scores[kBlock], most = -1;
  int32_t best = 0;
  for (size_t first = 0; first < stride_used(); first += kBlock) {
    if (score_block(none, 0, dots.data() + first, 1, norms + first, scores) <= most) continue;
    for (size_t i = 0; i < kBlock && first + i < static_cast<size_t>(size_); ++i)
      if (scores[i] > most) most = scores[i], best = static_cast<int32_t>(first + i);
  }
  return best;
}

}  // namespace moestro::activation
