#include "common/activation/eamc.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>

#include "common/activation/eamc_kernels.h"
#include "common/check.h"

namespace moestro::activation {
namespace {

constexpr double kUnits = 255;

EamcLayout layout_of(const EamcShape& shape, int32_t capacity) {
  return eamc_layout(static_cast<uint64_t>(shape.layers), static_cast<uint64_t>(shape.experts),
                     static_cast<uint64_t>(capacity));
}

/// Whoever sees the value sees what was stored before, too: that the entry is being written.
template <typename T>
void store(T& place, T value) {
  std::atomic_ref(place).store(value, std::memory_order_release);
}

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

Eamc::Memory Eamc::zeros(uint64_t bytes) {
  Memory memory(static_cast<std::byte*>(::operator new[](bytes, std::align_val_t(kEamcBlock))));
  std::memset(memory.get(), 0, bytes);
  return memory;
}

Eamc::Eamc(const EamcShape& shape, int32_t capacity)
    : Eamc(shape, std::max(capacity, 0), zeros(sizeof(EamcCounters) + layout_of(shape, std::max(capacity, 0)).bytes)) {}

Eamc::Eamc(const EamcShape& shape, int32_t capacity, Memory own)
    : Eamc(shape, capacity, reinterpret_cast<EamcCounters*>(own.get()), own.get() + sizeof(EamcCounters)) {
  own_ = std::move(own);
}

Eamc::Eamc(const EamcShape& shape, int32_t capacity, EamcCounters* counters, std::byte* arrays)
    : counters_(counters), arrays_(arrays), view_(shape, capacity, counters, arrays) {}

std::span<const uint8_t> Eamc::cells(int32_t entry) const {
  MOESTRO_CHECK(entry >= 0 && entry < size(), "an entry of the collection");
  return {view_.cells(entry), shape().cells()};
}

void Eamc::put(int32_t entry, std::span<const uint8_t> cells) {
  const EamcLayout layout = layout_of(shape(), capacity());
  const auto to = static_cast<size_t>(entry);
  auto& version = at<std::atomic<uint64_t>>(layout.versions)[to];
  const uint64_t before = version.load(std::memory_order_relaxed);
  version.store(before + 1, std::memory_order_relaxed);
  uint8_t* by_entry = at<uint8_t>(layout.by_entry) + to * cells.size();
  uint8_t* by_column = at<uint8_t>(layout.by_column) + to;
  float* norm = at<float>(layout.inverse_norms) + to;
  uint64_t squares = 0;
  size_t cell = 0;
  for (int32_t layer = 0; layer < shape().layers; ++layer, norm += layout.stride) {
    for (int32_t e = 0; e < shape().experts; ++e, ++cell) {
      store(by_entry[cell], cells[cell]);
      store(by_column[cell * layout.stride], cells[cell]);
      squares += static_cast<uint64_t>(cells[cell]) * cells[cell];
    }
    store(*norm, squares == 0 ? 0.0F : static_cast<float>(1 / std::sqrt(static_cast<double>(squares))));
  }
  version.store(before + 2, std::memory_order_release);
  changed(std::max(size(), entry + 1));
}

void Eamc::changed(int32_t size) {
  counters_->size.store(static_cast<uint32_t>(size), std::memory_order_release);
  counters_->changes.store(counters_->changes.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

void Eamc::clear() {
  const std::vector<uint8_t> none(shape().cells());
  for (int32_t entry = 0; entry < size(); ++entry) put(entry, none);
  if (size() > 0) changed(0);
}

Status Eamc::set(int32_t entry, std::span<const uint8_t> cells) {
  if (entry < 0 || entry > size() || entry >= capacity())
    return invalid_argument("entry " + std::to_string(entry) + " of a collection that has " + std::to_string(size()) +
                            " of " + std::to_string(capacity()));
  if (cells.size() != shape().cells())
    return invalid_argument("an activation matrix of " + std::to_string(cells.size()) + " cells where the model has " +
                            std::to_string(shape().cells()));
  put(entry, cells);
  return Status::ok();
}

std::optional<Eamc::Change> Eamc::insert(const ActivationMatrix& matrix) {
  if (capacity() == 0 || matrix.layers() != shape().layers || matrix.experts() != shape().experts) return std::nullopt;
  const std::vector<uint8_t> cells = normalised(matrix, shape().top_k);
  if (std::all_of(cells.begin(), cells.end(), [](uint8_t c) { return c == 0; })) return std::nullopt;
  const bool full = size() == capacity();
  const int32_t entry = full ? most_similar(cells) : size();
  put(entry, cells);
  return Change{entry, full};
}

int32_t Eamc::most_similar(std::span<const uint8_t> cells) const {
  const auto entries = static_cast<size_t>(size());
  if (entries == 0) return -1;
  const size_t rounded = eamc_rounded(entries);
  std::vector<uint32_t> dots(rounded);
  for (size_t cell = 0; cell < cells.size(); ++cell)
    if (cells[cell] != 0)
      add_weighted_column(view_.column(0, 0) + cell * view_.stride(), cells[cell], rounded, dots.data());
  const float none[kEamcBlock] = {};
  const float* norms = view_.inverse_norms(shape().layers - 1);
  float scores[kEamcBlock], most = -1;
  int32_t best = 0;
  for (size_t first = 0; first < entries; first += kEamcBlock) {
    if (score_block(none, 0, dots.data() + first, 1, norms + first, scores) <= most) continue;
    for (size_t i = 0; i < kEamcBlock && first + i < entries; ++i)
      if (scores[i] > most) most = scores[i], best = static_cast<int32_t>(first + i);
  }
  return best;
}

}  // namespace moestro::activation
