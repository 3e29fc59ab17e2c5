#pragma once
// The limits of the machine that an engine runs on: the host, if the CPU computes, or a CUDA device.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/model/model_spec.h"
#include "kernels/limits/device_limits.h"
#include "kernels/limits/limits.h"
#include "services/cli/bench/engine_bench.h"

namespace moestro::cli {

class EngineLimits {
 public:
  using Sums = std::map<std::string, kernels::limits::Measured>;  ///< by LimitKind::name
  virtual ~EngineLimits() = default;

  /// The limits measured so far, in the order of the report.
  virtual std::vector<LimitKind> kinds() const = 0;
  virtual int64_t bytes() const = 0;  ///< of memory that is streamed
  virtual void bandwidth(Sums& sums) = 0;
  virtual void arithmetic(const EngineCase& c, Sums& sums) = 0;
  virtual Status status() const { return Status::ok(); }
};

/// The host's limits, with `memory`: products of an expert's shape with many rows, and with as many as it gets in a
/// step. `spec` outlives it.
std::unique_ptr<EngineLimits> limits_of_host(std::unique_ptr<kernels::limits::Limits> memory,
                                             const model::ModelSpec& spec, const ExpertFormats& experts,
                                             int64_t step_tokens);
/// A device's limits. `deterministic`: nothing runs on its tensor cores. `device` outlives it.
std::unique_ptr<EngineLimits> limits_of_device(kernels::limits::DeviceLimits& device, bool deterministic);

}  // namespace moestro::cli
