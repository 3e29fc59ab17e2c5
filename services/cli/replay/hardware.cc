#include "services/cli/replay/hardware.h"

#include <algorithm>

#include "common/config/yaml_file.h"

namespace moestro::cli {
namespace {

Nanos nanos(double seconds) { return Nanos(static_cast<int64_t>(seconds * 1e9)); }

std::optional<double> times(std::optional<double> figure, double unit) {
  return figure ? std::optional(*figure * unit) : std::nullopt;
}

/// The keys of a file, as they are written.
struct HardwareKeys {
  std::string name, source, host_source;
  std::optional<config::Bytes> memory, host_memory;
  std::optional<double> bandwidth, tflops, link, latency, host_bandwidth, host_tflops, drive;

  void add_device(config::Schema& schema) {
    schema.section("device", "A device and its link to host memory");
    schema.add({.key = "device.name", .field = &name, .help = "what it is called"});
    schema.add({.key = "device.source", .field = &source, .help = "where the figures are from"});
    schema.add({.key = "device.memory", .field = &memory, .min = 1 << 20, .help = "its own memory"});
    schema.add(
        {.key = "device.memory_gbps", .field = &bandwidth, .help = "bandwidth of its memory, 10^9 bytes a second"});
    schema.add({.key = "device.tflops", .field = &tflops, .help = "16-bit products, dense, 10^12 operations a second"});
    schema.add(
        {.key = "device.link_gbps", .field = &link, .help = "host to device, 10^9 bytes a second, as copies reach it"});
    schema.add({.key = "device.link_latency_us", .field = &latency, .help = "of a copy"});
  }
  void add_host(config::Schema& schema) {
    schema.section("host", "The machine around it");
    schema.add({.key = "host.source", .field = &host_source, .help = "where the figures are from"});
    schema.add({.key = "host.memory", .field = &host_memory, .min = 1 << 20, .help = "its memory"});
    schema.add(
        {.key = "host.memory_gbps", .field = &host_bandwidth, .help = "bandwidth of it, 10^9 bytes a second"});
    schema.add({.key = "host.tflops", .field = &host_tflops, .help = "the CPU's products, 10^12 operations a second"});
    schema.add({.key = "host.drive_gbps", .field = &drive, .help = "reads of the drive, 10^9 bytes a second"});
  }
  bool has_device() const { return memory || bandwidth || tflops || link; }
};

}  // namespace

Result<Hardware> read_hardware(const std::filesystem::path& path, bool device) {
  Hardware hardware;
  HardwareKeys keys;
  config::Schema schema;
  keys.add_device(schema);
  keys.add_host(schema);
  MOESTRO_RETURN_IF_ERROR(config::load_yaml_file(path, schema));
  const auto missing = [&](const char* key) {
    return invalid_argument(path.string() + ": device." + key + " is missing");
  };
  if (device || keys.has_device()) {
    if (!keys.memory) return missing("memory");
    if (!keys.bandwidth) return missing("memory_gbps");
    if (!keys.tflops) return missing("tflops");
    if (!keys.link) return missing("link_gbps");
    hardware.memory_bytes = keys.memory->value, hardware.memory_bytes_per_s = *keys.bandwidth * 1e9,
    hardware.flops = *keys.tflops * 1e12;
    hardware.link_bytes_per_s = *keys.link * 1e9;
    hardware.link_latency_us = keys.latency.value_or(hardware.link_latency_us);
  }
  hardware.name = keys.name.empty() ? path.stem().string() : keys.name;
  if (keys.host_memory) hardware.host.memory_bytes = keys.host_memory->value;
  hardware.host.memory_bytes_per_s = times(keys.host_bandwidth, 1e9);
  hardware.host.flops = times(keys.host_tflops, 1e12);
  hardware.host.drive_bytes_per_s = times(keys.drive, 1e9);
  return hardware;
}

tier::ReplayTimes times_on(const Hardware& hardware, const ModelCost& model) {
  const auto reading = [&](uint64_t bytes) {
    return static_cast<double>(bytes) / (kReachedOfPeak * hardware.memory_bytes_per_s);
  };
  const auto token = [&](uint64_t bytes) {
    return 2 * static_cast<double>(bytes) / model.bytes_per_weight / (kReachedOfPeak * hardware.flops);
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
