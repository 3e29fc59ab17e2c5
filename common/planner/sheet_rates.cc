#include "common/planner/sheet_rates.h"

#include <algorithm>

namespace moestro::planner {
namespace {

constexpr double kCpuThreadBytes = 10e9, kCpuBytesMost = 60e9, kCpuThreadOperations = 100e9;
constexpr double kGpuBytes = 600e9, kGpuOperations = 60e12, kLinkBytes = 12e9, kLinkLatency = 10e-6;
constexpr double kDriveBytes = 500e6;

double bytes_per_parameter(DType dtype, int64_t cols) {
  return static_cast<double>(row_bytes(dtype, cols) + parameter_bytes(dtype, cols)) / static_cast<double>(cols);
}

}  // namespace

Rates roofline_rates(const ModelSizes& sizes, double bytes_per_s, double operations_per_s) {
  const auto curve = [&](double bytes) { return ProductCurve::roofline(bytes, bytes_per_s, operations_per_s); };
  Rates rates;
  rates.dense = curve(bytes_per_parameter(sizes.precisions.dense, sizes.hidden));
  rates.router = curve(bytes_per_parameter(DType::kF32, sizes.hidden));
  rates.experts = curve(static_cast<double>(sizes.expert_bytes) / sizes.expert_parameters);
  rates.kv_bytes_per_s = bytes_per_s, rates.attention_operations_per_s = operations_per_s;
  rates.float_s = 2 * sizeof(float) / bytes_per_s;
  return rates;
}

Rates typical_rates(const ModelSizes& sizes, Memories::Device device, int threads) {
  const double cores = std::max(1, threads);
  const bool gpu = device == Memories::Device::kWhole;
  Rates rates =
      gpu ? roofline_rates(sizes, kGpuBytes, kGpuOperations)
          : roofline_rates(sizes, std::min(kCpuBytesMost, cores * kCpuThreadBytes), cores * kCpuThreadOperations);
  if (gpu) rates.link_bytes_per_s = kLinkBytes, rates.link_latency_s = kLinkLatency;
  rates.drive_bytes_per_s = kDriveBytes;
  return rates;
}

}  // namespace moestro::planner
