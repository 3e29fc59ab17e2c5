#include "common/config/device_spec.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "common/config/units.h"
#include "common/settings.h"

namespace moestro::config {
namespace {

constexpr std::string_view kForms =
    "cpu, cuda[:INDEX][,vram=SIZE][,dense=counted|N%], or emulated:vram=SIZE,link=RATE[,latency=T][,compute=T]"
    "[,kv=counted][,dense=counted|N%]";

Status not_a_device(std::string_view text) {
  return invalid_argument("'" + std::string(text) + "' is no device; there are " + std::string(kForms));
}

Result<uint32_t> parse_index(std::string_view text) {
  uint32_t index = 0;
  const auto [stopped, error] = std::from_chars(text.data(), text.data() + text.size(), index);
  if (error != std::errc{} || stopped != text.data() + text.size())
    return invalid_argument("'" + std::string(text) + "' is not the number of a device, as in cuda:0");
  return index;
}

/// "25%": 0.25
Result<double> parse_share(std::string_view text) {
  uint32_t percent = 0;
  const std::string_view number = text.substr(0, text.empty() ? 0 : text.size() - 1);
  const auto [stopped, error] = std::from_chars(number.data(), number.data() + number.size(), percent);
  if (!text.ends_with('%') || error != std::errc{} || stopped != number.data() + number.size() || percent > 100)
    return invalid_argument("a share from 0% to 100%: of the layers' dense weights, the most that stays in vram");
  return percent / 100.0;
}

/// `value` to a field, as `parse` reads it.
template <typename T>
auto into(T& field, Result<T> (*parse)(std::string_view)) {
  return [&field, parse](std::string_view value) -> Status {
    MOESTRO_ASSIGN_OR_RETURN(field, parse(value));
    return Status::ok();
  };
}

Status set_vram(std::string_view value, CudaDeviceSpec& device) {
  MOESTRO_ASSIGN_OR_RETURN(device.vram_bytes, parse_size(value));
  if (device.vram_bytes == 0)
    return invalid_argument("0 leaves no memory to compute in; without vram= all that is free is used");
  return Status::ok();
}

Status set_dense(std::string_view value, CudaDeviceSpec& device) {
  device.dense_in_turn = true;
  if (value == "counted") return Status::ok();
  const auto share = parse_share(value);
  if (!share.is_ok())
    return invalid_argument("'" + std::string(value) + "' is neither counted nor " + share.status().message());
  device.dense_share = *share;
  return Status::ok();
}

/// `text` is what follows "cuda".
Result<CudaDeviceSpec> parse_cuda(std::string_view text) {
  CudaDeviceSpec device;
  if (text.starts_with(':')) {
    const std::string_view index = text.substr(1, text.find(',') - 1);
    MOESTRO_ASSIGN_OR_RETURN(device.index, parse_index(index));
    device.any = false;
    text.remove_prefix(1 + index.size());
  }
  if (text.empty()) return device;
  const Setting settings[] = {{"vram", [&](std::string_view value) { return set_vram(value, device); }},
                              {"dense", [&](std::string_view value) { return set_dense(value, device); }}};
  MOESTRO_RETURN_IF_ERROR(
      read_settings(text.substr(1), settings, "not vram=SIZE, and not dense=counted or dense=N%"));
  return device;
}

Status set_kv(std::string_view value, EmulatedDevice& device) {
  if (value != "counted" && value != "free")
    return invalid_argument("'" + std::string(value) + "' is neither counted nor free: whether the KV cache takes of "
                            "vram");
  device.counts_kv = value == "counted";
  return Status::ok();
}

Status set_dense(std::string_view value, EmulatedDevice& device) {
  device.counts_dense = value != "free";
  if (value == "counted" || value == "free") return Status::ok();
  const auto share = parse_share(value);
  if (!share.is_ok())
    return invalid_argument("'" + std::string(value) + "' is neither counted nor free, nor " +
                            share.status().message());
  device.dense_share = *share;
  return Status::ok();
}

Result<EmulatedDevice> parse_emulated(std::string_view text) {
  EmulatedDevice device;
  const Setting settings[] = {{"vram", into(device.vram_bytes, parse_size)},
                              {"link", into(device.link_bytes_per_s, parse_rate)},
                              {"latency", into(device.latency, parse_fine_duration)},
                              {"compute", into(device.compute, parse_fine_duration)},
                              {"kv", [&](std::string_view value) { return set_kv(value, device); }},
                              {"dense", [&](std::string_view value) { return set_dense(value, device); }}};
  if (!text.empty())
    MOESTRO_RETURN_IF_ERROR(read_settings(
        text, settings, "none of vram=SIZE, link=RATE, latency=T, compute=T, kv=counted, dense=counted and dense=N%"));
  if (device.vram_bytes == 0) return invalid_argument("vram=SIZE is missing: how much of the experts the device holds");
  if (device.link_bytes_per_s == 0)
    return invalid_argument("link=RATE is missing: bytes a second from host memory, as 16GB/s");
  return device;
}

}  // namespace

Result<DeviceSpec> parse_device(std::string_view text) {
  DeviceSpec spec;
  if (text == "cpu") return spec;
  const std::string_view kind = text.substr(0, text.find_first_of(":,"));
  const std::string_view rest = text.substr(kind.size());
  if (kind == "cuda") {
    spec.kind = DeviceSpec::Kind::kCuda;
    auto device = parse_cuda(rest);
    if (!device.is_ok()) return device.status().with_context("'" + std::string(text) + "'");
    spec.cuda = *device;
    return spec;
  }
  if (kind == "emulated" && !rest.starts_with(',')) {
    spec.kind = DeviceSpec::Kind::kEmulated;
    auto device = parse_emulated(rest.substr(std::min<size_t>(1, rest.size())));
    if (!device.is_ok()) return device.status().with_context("'" + std::string(text) + "'");
    spec.emulated = *device;
    return spec;
  }
  return not_a_device(text);
}

std::string device_text(const CudaDeviceSpec& device) {
  std::string text = device.any ? "cuda" : "cuda:" + std::to_string(device.index);
  if (device.vram_bytes != 0) text += ",vram=" + format_size(device.vram_bytes);
  if (device.dense_share < 1) text += ",dense=" + std::to_string(std::lround(100 * device.dense_share)) + "%";
  else if (device.dense_in_turn) text += ",dense=counted";
  return text;
}

}  // namespace moestro::config
