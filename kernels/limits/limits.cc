#include "kernels/limits/limits.h"

#include <algorithm>
#include <chrono>

namespace moestro::kernels::limits {
namespace {

constexpr int64_t kMatvecCols = 4096, kMatvecBytes = int64_t{32} << 20;
constexpr int64_t kPeakRounds = int64_t{1} << 22;
constexpr double kGemmSeconds = 0.02;  ///< at least, so that small products are timed many at once

template <class F>
double seconds(const F& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void at_least(AlignedVector<float>& v, int64_t count, bool noisy) {
  const size_t before = v.size();
  if (static_cast<int64_t>(before) >= count) return;
  v.resize(static_cast<size_t>(count));
  for (size_t i = before; i < v.size(); ++i) v[i] = noisy ? static_cast<float>(i % 17) * 0.1f - 0.8f : 0.0f;
}

}  // namespace

Result<std::unique_ptr<Limits>> Limits::create(Ops& ops, int64_t bytes, const std::function<void(int64_t)>& progress) {
  std::unique_ptr<Limits> limits(new Limits(ops, cpu::peak_loops(ops.options().isa)));
  MOESTRO_ASSIGN_OR_RETURN(limits->memory_, StreamedMemory::create(bytes, limits->pool_, progress));
  return limits;
}

int64_t Limits::advance(int64_t& cursor, int64_t bytes) const {
  if (cursor + bytes > memory_->bytes()) cursor = 0;
  const int64_t first = cursor;
  cursor += round_up(bytes, kPartAlign);
  return first;
}

Measured Limits::read(int64_t bytes) {
  Measured m;
  while (static_cast<int64_t>(m.amount) < bytes) {
    const int64_t count = std::min(bytes - static_cast<int64_t>(m.amount), memory_->bytes());
    const int64_t first = advance(read_cursor_, count);
    m += {static_cast<double>(count), seconds([&] { memory_->read(first, count, pool_); })};
  }
  return m;
}

Measured Limits::matvec(DType dtype, int64_t bytes) {
  Measured m;
  at_least(x_, kMatvecCols, true);
  const int64_t each = std::min(kMatvecBytes, memory_->bytes());
  while (static_cast<int64_t>(m.amount) < bytes) {
    int64_t used = 0;
    const Weight w = memory_->weight(advance(matvec_cursor_, each), each, dtype, kMatvecCols, used);
    at_least(y_, w.rows, false);
    m += {static_cast<double>(used), seconds([&] { ops_.matmul(x_.data(), 1, w, nullptr, y_.data()); })};
  }
  return m;
}

Measured Limits::peak(const cpu::PeakLoop& loop) {
  const int threads = ops_.options().threads;
  const double s = seconds([&] {
    pool_.run(threads, [&](int64_t, int) {
      const float sum = loop.run(kPeakRounds);
      asm volatile("" : : "r"(sum));
    });
  });
  return {loop.operations * static_cast<double>(kPeakRounds * threads), s};
}

Measured Limits::expert_gemm(const ExpertFormats& formats, int64_t hidden, int64_t ffn, int64_t n) {
  int64_t used = 0;
  const auto matrix = [&](DType dtype, int64_t rows, int64_t cols) {
    const int64_t whole = rows * (row_bytes(dtype, cols) + parameter_bytes(dtype, cols));
    return memory_->weight(0, std::min(whole, memory_->bytes()), dtype, cols, used);
  };
  const Weight gate = matrix(formats.gate, ffn, hidden), up = matrix(formats.up, ffn, hidden),
               down = matrix(formats.down, hidden, ffn);
  at_least(x_, n * std::max(hidden, ffn), true);
  at_least(y_, n * std::max(hidden, ffn), false);
  const double operations = 2.0 * static_cast<double>(n * ((gate.rows + up.rows) * hidden + down.rows * ffn));
  Measured m;
  do {
    m += {operations, seconds([&] {
            for (const Weight& w : {gate, up}) ops_.matmul(x_.data(), n, w, nullptr, y_.data());
            ops_.matmul(x_.data(), n, down, nullptr, y_.data());
          })};
  } while (m.seconds < kGemmSeconds);
  return m;
}

}  // namespace moestro::kernels::limits
