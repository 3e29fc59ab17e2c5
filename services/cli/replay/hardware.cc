#include "services/cli/replay/hardware.h"

#include <algorithm>

#include "common/config/yaml_file.h"

namespace moestro::cli {
namespace {

constexpr double kReached = 0.8;  ///< of the peaks on a data sheet, by kernels that stream weights

Nanos nanos(double seconds) { return Nanos(static_cast<int64_t>(seconds * 1e9)); }

}  // namespace

Result<Hardware> read_hardware(const std::filesystem::path& path) {
  Hardware hardware;
  std::string source;
  std::optional<config::Bytes> memory;
  std::optional<double> bandwidth, tflops, link, latency = hardware.link_latency_us;
  config::Schema schema;
  schema.section("device", "A device and its link to host memory");
  schema.add({.key = "device.name", .field = &hardware.name, .help = "what it is called"});
  schema.add({.key = "device.source", .field = &source, .help = "where the figures are from"});
  schema.add({.key = "device.memory", .field = &memory, .min = 1 << 20, .help = "its own memory"});
  schema.add(
      {.key = "device.memory_gbps", .field = &bandwidth, .help = "bandwidth of its memory, 10^9 bytes a second"});
  schema.add({.key = "device.tflops", .field = &tflops, .help = "16-bit products, dense, 10^12 operations a second"});
  schema.add(
      {.key = "device.link_gbps", .field = &link, .help = "host to device, 10^9 bytes a second, as copies reach it"});
  schema.add({.key = "device.link_latency_us", .field = &latency, .help = "of a copy"});
  MOESTRO_RETURN_IF_ERROR(config::load_yaml_file(path, schema));
  const auto missing = [&](const char* key) {
    return invalid_argument(path.string() + ": device." + key + " is missing");
  };
  if (!memory) return missing("memory");
  if (!bandwidth) return missing("memory_gbps");
  if (!tflops) return missing("tflops");
  if (!link) return missing("link_gbps");
  hardware.memory_bytes = memory->value, hardware.memory_bytes_per_s = *bandwidth * 1e9,
  hardware.flops = *tflops * 1e12;
  hardware.link_bytes_per_s = *link * 1e9, hardware.link_latency_us = latency.value_or(0);
  if (hardware.name.empty()) hardware.name = path.stem().string();
  return hardware;
}

tier::ReplayTimes times_on(const Hardware& hardware, const ModelCost& model) {
  const auto reading = [&](uint64_t bytes) {
    return static_cast<double>(bytes) / (kReached * hardware.memory_bytes_per_s);
  };
  const auto token = [&](uint64_t bytes) {
    return 2 * static_cast<double>(bytes) / model.bytes_per_weight / (kReached * hardware.flops);
  };
  tier::ReplayTimes times;
  times.expert = nanos(std::max(reading(model.expert_bytes), token(model.expert_bytes)));
  times.expert_token = nanos(token(model.expert_bytes));
  times.attention = nanos(std::max(reading(model.attention_bytes), token(model.attention_bytes)));
  times.attention_token = nanos(token(model.attention_bytes));
  times.link_bytes_per_s = hardware.link_bytes_per_s;
  times.link_latency = nanos(hardware.link_latency_us * 1e-6);
  return times;
}

}  // namespace moestro::cli
