#pragma once
// Experts of a step on a GPU that the CPU computes, because that is faster than copying them
// (common/tier/serving_plan.h). Both times are measured as the worker runs. The CPU's kernels round differently from
// the device's, so deterministic workers compute all experts on the device.

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "common/clock.h"
#include "common/lanes/schedule.h"
#include "kernels/cuda/cuda_memory.h"
#include "services/worker/device/slot_table.h"
#include "services/worker/engine/expert_dispatch.h"

namespace moestro::cuda {

/// How long an expert takes on the CPU, by its number of rows: measured, with slow decay.
class HostCost {
 public:
  void add(int32_t rows, Nanos took);
  /// The time of about this many rows; 0: never tried, so it will be tried.
  Nanos of(int32_t rows) const;

 private:
  static constexpr size_t kClasses = 16;  ///< of 2^i rows and more
  std::array<double, kClasses> ns_{};
};

class HostExperts {
 public:
  /// All outlive it. `layouts`: of each MoE layer. `on_input`: choices have inputs of their own (RouterSpec::on_input).
  HostExperts(kernels::cuda::CudaOps& device, kernels::cuda::CudaMemory& memory, kernels::Ops& cpu,
              std::span<const ExpertLayout> layouts, kernels::GatedUnit gated, device::SlotTable& slots,
              engine::ExpertDispatch& experts, int64_t top_k, bool on_input, const Clock& clock);
  ~HostExperts();
  HostExperts(const HostExperts&) = delete;
  HostExperts& operator=(const HostExperts&) = delete;

  /// Chooses among missing experts, acquired but not requested, those that will be computed here: their weights are
  /// leased in host memory, and the device no longer needs them. Their input, h [rows, hidden], is being copied to the
  /// host in parallel with later work.
  std::span<const lanes::RoutedExpert> choose(engine::LayerPart at, std::span<const lanes::RoutedExpert> missing,
                                              const float* h, int64_t rows);
  /// Computes what was chosen, and queues its rows into expert_rows [rows, top_k, hidden]. Returns how many they were.
  size_t compute(float* expert_rows);
  struct Spoiled {
    int32_t expert;
    Status why;
  };
  /// Of those, experts whose weights were found wrong meanwhile: their rows must not be used.
  std::span<const Spoiled> spoiled() const { return spoiled_; }

 private:
  static constexpr int64_t kRowsMax =
      64;  ///< rows of a step; prompts have many tokens per expert, which the GPU computes faster
  void lease(std::span<const lanes::RoutedExpert> missing, const float* h, int64_t rows);
  bool copy_input(const float* h, int64_t rows);
  size_t compute_one(int32_t expert, const store::Lease& lease, float* expert_rows);

  kernels::cuda::CudaOps& device_;
  kernels::cuda::CudaMemory& memory_;
  kernels::Ops& cpu_;
  const std::span<const ExpertLayout> layouts_;
  const int64_t hidden_;
  const kernels::GatedUnit gated_;
  device::SlotTable& slots_;
  engine::ExpertDispatch& experts_;
  const int64_t top_k_;
  const bool on_input_;
  const int64_t inputs_of_row_;
  const Clock& clock_;
  HostCost cost_;
  kernels::cuda::Pinned<float> h_;
  std::vector<float> rows_;               ///< what the CPU makes, as [rows, top_k, hidden]
  std::vector<kernels::RoutedRow> input_rows_;  ///< scratch
  engine::LayerPart at_;                  ///< of what was chosen last
  std::vector<lanes::RoutedExpert> chosen_;
  std::vector<store::Lease> leases_;      ///< of those
  std::vector<Spoiled> spoiled_;
  std::vector<device::SlotTable::Missing> missing_;  ///< scratch
  MoestroCudaStream out_ = nullptr;
  MoestroCudaEvent computed_ = nullptr, arrived_ = nullptr;
};

}  // namespace moestro::cuda
