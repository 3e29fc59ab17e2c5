#include "common/config/device_spec.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "common/config/units.h"

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

Status set_one(std::string_view setting, CudaDeviceSpec& device) {
  constexpr std::string_view kVram = "vram=", kDense = "dense=";
  if (setting.starts_with(kVram)) {
    if (device.vram_bytes != 0) return invalid_argument("vram= is given twice");
    auto vram = parse_size(setting.substr(kVram.size()));
    if (!vram.is_ok()) return vram.status().with_context("vram");
    if (*vram == 0)
      return invalid_argument("vram=0 leaves no memory to compute in; without vram= all that is free is used");
    device.vram_bytes = *vram;
    return Status::ok();
  }
  if (!setting.starts_with(kDense))
    return invalid_argument("'" + std::string(setting) + "' is not vram=SIZE, and not dense=counted or dense=N%");
  if (device.dense_in_turn) return invalid_argument("dense= is given twice");
  device.dense_in_turn = true;
  const std::string_view value = setting.substr(kDense.size());
  if (value == "counted") return Status::ok();
  const auto share = parse_share(value);
  if (!share.is_ok())
    return invalid_argument("dense: '" + std::string(value) + "' is neither counted nor " + share.status().message());
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
  while (!text.empty()) {
    text.remove_prefix(1);  // the comma
    const std::string_view one = text.substr(0, text.find(','));
    MOESTRO_RETURN_IF_ERROR(set_one(one, device));
    text.remove_prefix(one.size());
  }
  return device;
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

Status set_one(std::string_view key, std::string_view value, EmulatedDevice& device) {
  if (key == "vram") {
    MOESTRO_ASSIGN_OR_RETURN(device.vram_bytes, parse_size(value));
  } else if (key == "link") {
    MOESTRO_ASSIGN_OR_RETURN(device.link_bytes_per_s, parse_rate(value));
  } else if (key == "latency") {
    MOESTRO_ASSIGN_OR_RETURN(device.latency, parse_fine_duration(value));
  } else if (key == "compute") {
    MOESTRO_ASSIGN_OR_RETURN(device.compute, parse_fine_duration(value));
  } else if (key == "kv") {
    if (value != "counted" && value != "free")
      return invalid_argument("'" + std::string(value) + "' is neither counted nor free: whether the KV cache takes of "
                              "vram");
    device.counts_kv = value == "counted";
  } else if (key == "dense") {
    return set_dense(value, device);
  } else {
    return invalid_argument("'" + std::string(key) + "' is none of vram, link, latency, compute, kv and dense");
  }
  return Status::ok();
}

Result<EmulatedDevice> parse_emulated(std::string_view settings) {
  EmulatedDevice device;
  while (!settings.empty()) {
    const std::string_view one = settings.substr(0, settings.find(','));
    settings.remove_prefix(std::min(settings.size(), one.size() + 1));
    const size_t equals = one.find('=');
    if (equals == std::string_view::npos) return invalid_argument("'" + std::string(one) + "' is not KEY=VALUE");
    const std::string key(one.substr(0, equals));
    MOESTRO_RETURN_IF_ERROR(set_one(key, one.substr(equals + 1), device).with_context(key));
  }
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
