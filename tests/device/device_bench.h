#pragma once
// An engine of a test model on an emulated device, or on a CUDA device.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/activation/history.h"
#include "services/worker/cuda/cuda_pass.h"
#include "services/worker/device/device_experts.h"
#include "services/worker/device/foresight.h"
#include "tests/device/virtual_time.h"
#include "tests/engine/engine_bench.h"
#include "tests/engine/late_source.h"

namespace moestro::device::testing {

struct DeviceBenchOptions {
  int32_t slots = 4;
  std::string cache = "lfru";
  std::string predictor = "none";
  const activation::HistoryView* history = nullptr;  ///< what the predictor knows of past requests
  uint64_t link_bytes_per_s = uint64_t{4} << 30;
  Nanos latency{0};
  uint32_t dense_places = 0;  ///< above 0: dense weights of layers take turns in so many places of the device
  bool half_of_dense = false;  ///< the same: only those of every other layer
  uint64_t chunk_bytes = 0;    ///< CUDA: as CudaSlots
  bool late_host = false;  ///< host memory has nothing at hand: experts arrive late, in random order
  engine::testing::LateSource::Options late = {};
  engine::testing::BenchOptions engine = {};
  const MoestroCudaFunctions* cuda =
      nullptr;  ///< not null: the engine computes on the first of these devices; link and latency are its own
  bool expects_all = false;                    ///< CUDA: layers are always queued ahead, whatever is missing
  bool graphs = true;                          ///< CUDA: as CudaParts
  VirtualTime* time = nullptr;                 ///< not null: the device has no other time, and a virtual link
  /// CUDA: the CPU computes what it can, or nothing; else what was measured says whether. Fast kernels of the CPU round
  /// in another way than those of a device.
  std::optional<bool> copies_seem_slow = std::nullopt;
};

/// Those of the fixtures that run on a GPU.
std::vector<engine::testing::Fixture> on_gpus(std::vector<engine::testing::Fixture> fixtures);
/// One for each way in which a GPU queues a layer: experts alone, a shared expert beside them, layers without experts
/// before them, latent attention, experts whose inputs are made for each choice, experts before attention, and layers
/// that keep states of sequences, one or several between two with experts. For tests of when something is queued, which
/// say nothing of a family.
std::vector<engine::testing::Fixture> one_of_each_gpu_layer();

class DeviceBench {
 public:
  DeviceBench(const engine::testing::Fixture& fixture, const DeviceBenchOptions& options);
  engine::testing::Bench& bench() { return *bench_; }
  DeviceExperts& device() { return *device_; }
  Foresight& foresight() { return *foresight_; }
  /// DeviceBenchOptions::late_host.
  engine::testing::LateSource* late_host() { return dynamic_cast<engine::testing::LateSource*>(host_.get()); }
  /// CUDA: experts that the CPU has computed.
  uint64_t computed_on_cpu() const { return patient_->lent(); }

 private:
  /// Says that copies take long.
  class Patient final : public SlotTable {
   public:
    Patient(SlotTable& slots, const DeviceBenchOptions& options) : slots_(slots), options_(options) {}
    void addresses(MoeLayerId layer, std::span<uint64_t> out) override { slots_.addresses(layer, out); }
    bool holds_all() const override { return slots_.holds_all(); }
    Status launched() override { return slots_.launched(); }
    void choose_for_cpu(std::span<Missing> missing) override {
      slots_.choose_for_cpu(missing);
      for (Missing& m : missing) m.on_cpu = options_.copies_seem_slow.value_or(m.on_cpu);
    }
    void lend() override { slots_.lend(); }
    void decided() override { slots_.decided(); }
    uint32_t dense_places() const override { return slots_.dense_places(); }
    void dense_read(uint32_t blob) override { slots_.dense_read(blob); }
    std::optional<store::Lease> lease_host(uint32_t blob) override {
      auto lease = slots_.lease_host(blob);
      lent_ += lease ? 1 : 0;
      return lease;
    }
    uint64_t lent() const { return lent_; }

   private:
    SlotTable& slots_;
    const DeviceBenchOptions& options_;
    uint64_t lent_ = 0;
  };
  CudaSlots open_cuda(uint64_t slot_bytes);

  SteadyClock clock_;
  DeviceBenchOptions options_;
  std::unique_ptr<kernels::cuda::CudaOps> cuda_ops_;
  std::unique_ptr<kernels::cuda::CudaMemory> cuda_memory_;
  std::unique_ptr<Patient> patient_;
  std::unique_ptr<store::BlobSource> host_;
  std::unique_ptr<kernels::Ops> host_ops_;  ///< of a host that attends
  DeviceExperts* device_ = nullptr;  ///< the bench owns it
  std::unique_ptr<engine::testing::Bench> bench_;
  std::unique_ptr<Foresight> foresight_;
};

}  // namespace moestro::device::testing
