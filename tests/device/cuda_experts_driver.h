#pragma once
// Does what an engine does with experts on a CUDA device: routes layers, leases, queues work that reads the slots,
// calls launched(), and releases. The work copies the slot to a separate place, so that each use shows afterwards what
// it read.

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "common/check.h"
#include "services/worker/device/device_experts.h"
#include "tests/device/poisoned_source.h"

namespace moestro::device::testing {

struct DriverOptions {
  uint32_t layers = 4, experts = 8, slots = 6;
  uint64_t bytes = 4096, chunk_bytes = 1024;
  int late_host = 30;         ///< percent of blobs that host memory does not have at once
  int32_t late_compute = 0;   ///< queries, as emulated::make_streams_late
  int32_t late_copies = 0;
  uint32_t seed = 1;
};

class CudaExpertsDriver {
 public:
  CudaExpertsDriver(const MoestroCudaFunctions& cuda, const DriverOptions& options, void (*make_streams_late)(int32_t))
      : options_(options), cuda_(cuda), make_late_(make_streams_late), random_(options.seed),
        host_(plain_manifest(options.layers, options.experts, options.bytes), options.seed, options.late_host) {
    MOESTRO_CHECK(cuda_.use_device(0) == 0, "a device");
    make_late_(options.late_compute);
    MOESTRO_CHECK(cuda_.make_stream(0, &compute_) == 0, "a stream");
    make_late_(options.late_copies);
  }
  ~CudaExpertsDriver() {
    experts_.reset();
    make_late_(0);
    (void)cuda_.wait_stream(compute_);
    (void)cuda_.end_stream(compute_);
    for (const Use& use : uses_) (void)cuda_.release_pinned(use.read);
  }

  /// `functions`: what the experts call, in which something may fail.
  Status make(const MoestroCudaFunctions& functions) {
    const CudaSlots slots{&functions, 0, compute_, options_.slots * options_.bytes, options_.chunk_bytes};
    MOESTRO_ASSIGN_OR_RETURN(
        experts_, DeviceExperts::create(
                      host_, {.cuda = slots, .precision = DType::kF32, .cache = "lru", .poison_slots = true}, clock_));
    return Status::ok();
  }

  Status steps(int count) {
    for (int i = 0; i < count; ++i) MOESTRO_RETURN_IF_ERROR(step());
    return Status::ok();
  }
  /// A layer's work is queued, and then the step is given up before anybody was told.
  Status abandoned_step() {
    experts_->begin_step(next_plan(), false);
    std::vector<store::Lease> leases;
    MOESTRO_RETURN_IF_ERROR(lease(0, leases));
    MOESTRO_RETURN_IF_ERROR(read(leases));
    experts_->cancel_fetches();
    return Status::ok();
  }
  /// Finishes the compute stream's work and returns how many uses read something other than their expert.
  int wrong() {
    MOESTRO_CHECK(cuda_.wait_stream(compute_) == 0, "the end of the work");
    int wrong = 0;
    for (const auto& use : uses_)
      wrong += std::ranges::any_of(std::span(static_cast<const std::byte*>(use.read), options_.bytes),
                                   [&](std::byte b) { return b != PoisonedSource::byte_of(use.blob); });
    return wrong;
  }
  size_t uses() const { return uses_.size(); }
  DeviceExperts& experts() { return *experts_; }
  PoisonedSource& host() { return host_; }
  void let_go() { experts_.reset(); }
  MoestroCudaStream compute() const { return compute_; }

  /// The experts that a layer names, leased.
  Status lease(uint32_t layer, std::vector<store::Lease>& leases) {
    std::vector<store::Need> needs;
    for (uint32_t e = 0; e < options_.experts; ++e)
      if (random_() % 4 == 0 && needs.size() < options_.slots / 2) needs.push_back({layer * options_.experts + e});
    experts_->need({MoeLayerId(layer), needs});
    std::vector<uint32_t> missing;
    for (const store::Need& n : needs) {
      if (auto hit = experts_->try_pin(n.blob)) leases.push_back(std::move(*hit));
      else missing.push_back(n.blob);
    }
    if (missing.empty()) return Status::ok();
    MOESTRO_RETURN_IF_ERROR(experts_->fetch(missing, {plan_, MoeLayerId(layer)}));
    for (size_t i = 0; i < missing.size(); ++i) {
      auto arrived = experts_->next_arrival(std::chrono::seconds(60));
      if (!arrived) return arrived.status();
      leases.push_back(std::move(*arrived));
    }
    return Status::ok();
  }
  /// Queues work that reads what is leased.
  Status read(std::span<const store::Lease> leases) {
    for (const store::Lease& lease : leases) {
      Use& use = uses_.emplace_back(Use{lease.blob()});
      if (cuda_.allocate_pinned(options_.bytes, &use.read) != 0 ||
          cuda_.copy_out(use.read, lease.data(), options_.bytes, compute_) != 0)
        return internal_error("a kernel");
    }
    return Status::ok();
  }

 private:
  struct Use {
    uint32_t blob = 0;
    void* read = nullptr;  ///< pinned: a copy to other memory is waited for
  };
  PlanId next_plan() { return plan_ = PlanId(plan_.value + 1); }
  void foresee(int32_t layer) {
    prediction::Forecast forecast(static_cast<int32_t>(options_.layers), static_cast<int32_t>(options_.experts));
    for (uint32_t l = 0; l < options_.layers; ++l)
      for (float& p : forecast.row(static_cast<int32_t>(l)))
        if (random_() % 4 == 0) p = 0.9F;
    experts_->forecast(layer, forecast);
  }
  Status step() {
    experts_->begin_step(next_plan(), false);
    foresee(-1);
    for (uint32_t layer = 0; layer < options_.layers; ++layer) {
      std::vector<store::Lease> leases;
      MOESTRO_RETURN_IF_ERROR(lease(layer, leases));
      MOESTRO_RETURN_IF_ERROR(read(leases));
      MOESTRO_RETURN_IF_ERROR(experts_->launched());
      leases.clear();
      foresee(static_cast<int32_t>(layer));
    }
    return Status::ok();
  }

  const DriverOptions options_;
  const MoestroCudaFunctions& cuda_;
  void (*const make_late_)(int32_t);
  std::mt19937 random_;
  SteadyClock clock_;
  PoisonedSource host_;
  MoestroCudaStream compute_ = nullptr;
  PlanId plan_;
  std::vector<Use> uses_;
  std::unique_ptr<DeviceExperts> experts_;
};

}  // namespace moestro::device::testing
