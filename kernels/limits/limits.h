#pragma once
// Measures the limits of this machine, which an engine's speed is compared with. Measure them in the same run and in
// turns with the engine, because bandwidth changes from minute to minute.

#include <functional>
#include <memory>
#include <span>

#include "common/expert_layout.h"
#include "kernels/aligned_vector.h"
#include "kernels/cpu/peak_loops.h"
#include "kernels/limits/measured.h"
#include "kernels/limits/memory.h"

namespace moestro::kernels::limits {

class Limits {
 public:
  /// `bytes` of memory to stream from. `ops` outlives this object and determines threads and instruction set.
  static Result<std::unique_ptr<Limits>> create(Ops& ops, int64_t bytes,
                                                const std::function<void(int64_t done)>& progress = nullptr);

  int64_t bytes() const { return memory_->bytes(); }
  const char* data() const { return memory_->data(); }
  /// Reads the next `bytes` of the memory, cyclically, with a loop that only loads.
  Measured read(int64_t bytes);
  /// The same with products of weights of `dtype` with one vector: the rate that decoding can reach. Bytes include the
  /// groups' parameters.
  Measured matvec(DType dtype, int64_t bytes);
  /// Runs `loop` on every thread.
  Measured peak(const cpu::PeakLoop& loop);
  /// Repeated products of n rows with the three matrices of an expert: the rate that prefill can reach.
  Measured expert_gemm(const ExpertFormats& formats, int64_t hidden, int64_t ffn, int64_t n);
  std::span<const cpu::PeakLoop> loops() const { return loops_; }

 private:
  Limits(Ops& ops, std::span<const cpu::PeakLoop> loops) : ops_(ops), pool_(ops.options().threads), loops_(loops) {}
  /// Start of the next `bytes` for `cursor`.
  int64_t advance(int64_t& cursor, int64_t bytes) const;

  Ops& ops_;
  cpu::ThreadPool pool_;
  std::span<const cpu::PeakLoop> loops_;
  std::unique_ptr<StreamedMemory> memory_;
  int64_t read_cursor_ = 0, matvec_cursor_ = 0;
  AlignedVector<float> x_, y_;
};

}  // namespace moestro::kernels::limits
