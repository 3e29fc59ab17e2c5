#include "services/cli/plan/plan_rates.h"

#include <chrono>
#include <fstream>
#include <memory>

#include "common/config/units.h"
#include "common/planner/sheet_rates.h"
#include "kernels/cpu/topology.h"
#include "kernels/ops.h"
#include "services/cli/common/output.h"
#include "services/cli/common/run_dir.h"
#include "services/cli/plan/measure_rates.h"
#include "services/cli/plan/rates_cache.h"

namespace moestro::cli {
namespace {

using Kind = config::DeviceSpec::Kind;

/// Kernels that reach the usual part of a data sheet's peaks.
planner::Rates rates_of_sheet(const PlannedModel& model, double memory_bytes_per_s, double flops) {
  return planner::roofline_rates(model.sizes, kReachedOfPeak * memory_bytes_per_s, kReachedOfPeak * flops);
}

Result<PlannedRates> rates_of_file(const PlanOptions& o, const PlannedModel& model, Kind device,
                                   const Hardware& hardware, bool drive_needed) {
  const HostHardware& host = hardware.host;
  const auto missing = [&](const char* key, const std::string& why) {
    return invalid_argument("--hardware " + o.hardware + ": " + key + " is missing; " + why);
  };
  PlannedRates planned;
  planned.source = o.hardware;
  if (device == Kind::kCuda) {
    planned.rates = rates_of_sheet(model, hardware.memory_bytes_per_s, hardware.flops);
    planned.rates.link_bytes_per_s = hardware.link_bytes_per_s;
    planned.rates.link_latency_s = hardware.link_latency_us * 1e-6;
    if (host.memory_bytes_per_s && host.flops) {
      planned.rates.host_bytes_per_s = kReachedOfPeak * *host.memory_bytes_per_s;
      planned.rates.host_operations_per_s = kReachedOfPeak * *host.flops;
    }
  } else {
    const std::string why = "--device " + o.device + " computes on the host";
    if (!host.memory_bytes_per_s) return missing("host.memory_gbps", why);
    if (!host.flops) return missing("host.tflops", why);
    planned.rates = rates_of_sheet(model, *host.memory_bytes_per_s, *host.flops);
  }
  planned.rates.drive_bytes_per_s = host.drive_bytes_per_s;
  if (drive_needed && !host.drive_bytes_per_s)
    return missing("host.drive_gbps",
                   "with as many sequences at once as fit, some experts are not in host memory and are read while it "
                   "runs. Add it, or pass --drive 5GB/s");
  return planned;
}

/// All that a measurement depends on.
std::string cache_key(const PlanOptions& o, const PlannedModel& model, int threads) {
  std::string cpu = "unknown CPU", line;
  std::ifstream info("/proc/cpuinfo");
  while (std::getline(info, line))
    if (line.starts_with("model name")) {
      cpu = line.substr(line.find(':') + 1);
      break;
    }
  const planner::Precisions& p = model.sizes.precisions;
  std::error_code error;
  const std::string place =
      model.manifest ? std::to_string(model.manifest->identity) + " in " +
                           std::filesystem::weakly_canonical(o.pack, error).string()
                     : "shape " + model.config_json + " in " + std::filesystem::current_path(error).string();
  return cpu + ", " + std::to_string(threads) + " threads, " + std::string(kernels::isa_name(kernels::best_isa())) +
         ", experts " + std::string(dtype_name(p.experts)) + ", dense " + std::string(dtype_name(p.dense)) + ", KV " +
         std::string(dtype_name(p.kv)) + ", " + place;
}

Result<planner::Rates> measure(const PlannedModel& model, int threads) {
  std::unique_ptr<Progress> progress;
  const auto begin = std::chrono::steady_clock::now();
  return measure_rates(model, threads, [&](uint64_t done, uint64_t total, const std::string& what) {
    if (!progress) progress = std::make_unique<Progress>("measuring this machine", total);
    progress->update(done, what, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  });
}

Result<PlannedRates> measured_rates(const PlanOptions& o, const PlannedModel& model, bool drive_needed) {
  const int threads = o.threads > 0 ? o.threads : kernels::cpu::Topology::of_process().cores();
  // Beside the states of clusters, whose names do not begin with a dot.
  std::filesystem::path directory = default_state_dir("rates");
  if (!directory.empty()) directory = directory.parent_path() / ".rates";
  const RatesCache cache(directory, cache_key(o, model, threads));
  std::optional<planner::Rates> rates = o.measure ? std::nullopt : cache.read();
  PlannedRates planned;
  planned.source = rates ? "measured earlier on this machine (" + cache.file().string() + "; --measure repeats it)"
                         : "measured on this machine";
  const bool drive = drive_needed && (!rates || !rates->drive_bytes_per_s);
  if (o.typical && (!rates || drive)) {
    const planner::Rates typical = planner::typical_rates(model.sizes, planner::Memories::Device::kHost, threads);
    planned.rates = rates.value_or(typical);
    if (drive) planned.rates.drive_bytes_per_s = typical.drive_bytes_per_s;
    planned.source = "typical of such machines; `moestro plan` measures this one";
    return planned;
  }
  if (o.measured_only && !rates) return not_found("the speed of this machine has not been measured");
  if (o.measured_only && drive) return not_found("the speed of the drive has not been measured");
  if (!rates || drive) {
    if (!rates) {
      MOESTRO_ASSIGN_OR_RETURN(rates, measure(model, threads));
    }
    if (drive) {
      MOESTRO_ASSIGN_OR_RETURN(rates->drive_bytes_per_s, measure_drive(o, model));
    }
    if (const Status written = cache.write(*rates); !written.is_ok()) note(written.message());
  }
  planned.rates = std::move(*rates);
  return planned;
}

}  // namespace

Result<PlannedRates> plan_rates(const PlanOptions& o, const PlannedModel& model, const PlannedMemory& memory,
                                const Hardware* hardware, bool drive_needed) {
  std::optional<double> drive;
  if (!o.drive.empty()) {
    const auto rate = config::parse_rate(o.drive);
    if (!rate.is_ok()) return rate.status().with_context("--drive " + o.drive);
    if (*rate == 0) return invalid_argument("--drive " + o.drive + ": a rate above 0, such as 5GB/s");
    drive = static_cast<double>(*rate);
  }
  auto planned = hardware != nullptr
                     ? rates_of_file(o, model, memory.device.kind, *hardware, drive_needed && !drive)
                     : measured_rates(o, model, drive_needed && !drive);
  if (!planned.is_ok()) return planned;
  if (memory.device.kind == Kind::kEmulated) {
    const config::EmulatedDevice& device = memory.device.emulated;
    planned->rates.link_bytes_per_s = static_cast<double>(device.link_bytes_per_s);
    planned->rates.link_latency_s = std::chrono::duration<double>(device.latency).count();
    planned->rates.floor_s = std::chrono::duration<double>(device.compute).count();
  }
  if (drive) {
    planned->rates.drive_bytes_per_s = drive;
    planned->source += "; the drive: --drive";
  }
  return planned;
}

}  // namespace moestro::cli
