#include "services/cli/bench/engine_limits.h"

#include <algorithm>
#include <set>

#include "services/cli/bench/step_cost.h"

namespace moestro::cli {
namespace {

using kernels::limits::DeviceLimits;
using kernels::limits::Limits;
using kernels::cpu::PeakLoop;

constexpr int64_t kGemmRows = 512, kGemmRowsMin = 8;  ///< with fewer rows, weights are streamed
constexpr int64_t kPartsOfStream =
    4;  ///< a stretch that limits are measured over between steps is this part of the memory

class HostLimits final : public EngineLimits {
 public:
  HostLimits(std::unique_ptr<Limits> limits, const model::ModelSpec& spec, const ExpertFormats& experts,
             int64_t step_tokens)
      : limits_(std::move(limits)), spec_(spec), experts_(experts), step_tokens_(step_tokens) {}

  std::vector<LimitKind> kinds() const override {
    std::vector<LimitKind> kinds{{"dram_read", "bytes/s", "a loop that only loads", "dram_read", {"of DRAM", "reads"}}};
    for (const DType d : streamed()) {
      const std::string name = "matvec_" + std::string(dtype_name(d));
      kinds.push_back(
          {name, "bytes/s", "matrix by vector, streamed", name, {d == DType::kBF16 ? "of bf16" : "of own", "matvec"}});
    }
    for (const PeakLoop& loop : limits_->loops()) {
      const std::string name = "peak_" + std::string(loop.name);
      kinds.push_back({name, "FLOP/s", std::string(loop.instruction) + " in registers", name, {}});
      if (name == "peak_f32") kinds.back().column = {"of f32", "peak"};
    }
    for (const int64_t n : gemm_rows_)
      kinds.push_back({gemm_name(n),
                       "FLOP/s",
                       "an expert's products with " + std::to_string(n) + " rows",
                       "gemm",
                       {"of best", "GEMM"}});
    return kinds;
  }
  int64_t bytes() const override { return limits_->bytes(); }

  void bandwidth(Sums& sums) override {
    const int64_t bytes = limits_->bytes() / kPartsOfStream;
    sums["dram_read"] += limits_->read(bytes);
    for (const DType d : streamed()) sums["matvec_" + std::string(dtype_name(d))] += limits_->matvec(d, bytes);
  }
  void arithmetic(const EngineCase& c, Sums& sums) override {
    for (const PeakLoop& loop : limits_->loops()) sums["peak_" + std::string(loop.name)] += limits_->peak(loop);
    const int64_t met = tokens_per_expert(spec_, c.prefill ? std::min(c.tokens, step_tokens_) : c.batch);
    for (const int64_t n : std::set{kGemmRows, std::max(met, kGemmRowsMin)}) {
      gemm_rows_.insert(n);
      sums[gemm_name(n)] += limits_->expert_gemm(experts_, spec_.moe().expert.hidden, spec_.moe().expert.ffn, n);
    }
  }

 private:
  std::set<DType> streamed() const { return {DType::kBF16, experts_.gate}; }
  static std::string gemm_name(int64_t rows) { return "gemm_" + std::to_string(rows); }

  std::unique_ptr<Limits> limits_;
  const model::ModelSpec& spec_;
  ExpertFormats experts_;
  int64_t step_tokens_;
  std::set<int64_t> gemm_rows_;
};

class CudaLimits final : public EngineLimits {
 public:
  CudaLimits(DeviceLimits& limits, bool deterministic) : limits_(limits), deterministic_(deterministic) {}

  std::vector<LimitKind> kinds() const override {
    const std::string product = "the plugin's product of " + std::to_string(limits_.rows()) + " rows";
    std::vector<LimitKind> kinds{
        {"device_copy",
         "bytes/s",
         "copies within device memory, bytes read and written",
         "device_memory",
         {"of device", "memory"}},
        {"device_fill", "bytes/s", "fills of device memory", "device_memory", {"of device", "memory"}},
        {"device_f32", "FLOP/s", product + ", f32", "device_f32", {"of f32", "product"}}};
    if (!deterministic_)
      kinds.push_back(
          {"device_bf16", "FLOP/s", product + ", bf16 on tensor cores", "device_bf16", {"of bf16", "product"}});
    return kinds;
  }
  int64_t bytes() const override { return static_cast<int64_t>(limits_.bytes()); }

  void bandwidth(Sums& sums) override {
    sums["device_copy"] += limits_.copy();
    sums["device_fill"] += limits_.fill();
  }
  void arithmetic(const EngineCase&, Sums& sums) override {
    sums["device_f32"] += limits_.product(DType::kF32);
    if (!deterministic_) sums["device_bf16"] += limits_.product(DType::kBF16);
  }
  Status status() const override { return limits_.status(); }

 private:
  DeviceLimits& limits_;
  const bool deterministic_;
};

}  // namespace

std::unique_ptr<EngineLimits> limits_of_host(std::unique_ptr<Limits> memory, const model::ModelSpec& spec,
                                             const ExpertFormats& experts, int64_t step_tokens) {
  return std::make_unique<HostLimits>(std::move(memory), spec, experts, step_tokens);
}
std::unique_ptr<EngineLimits> limits_of_device(DeviceLimits& device, bool deterministic) {
  return std::make_unique<CudaLimits>(device, deterministic);
}

}  // namespace moestro::cli
