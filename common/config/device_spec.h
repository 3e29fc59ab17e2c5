#pragma once
// What --device says: cpu | cuda[:INDEX][,vram=SIZE][,dense=counted|N%] | emulated:vram=SIZE,link=RATE[,latency=T]
// [,compute=T][,kv=counted][,dense=counted|N%]

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/status.h"

namespace moestro::config {

/// An emulated device: the CPU computes, but an expert must first be copied into a bounded memory over a link.
struct EmulatedDevice {
  uint64_t vram_bytes = 0;                 ///< for experts; used in whole experts
  bool counts_kv = false;  ///< the KV cache takes of vram_bytes, as of a GPU's memory; false: only what is in use of
                           ///< one whose home is host memory does
  bool counts_dense = false;  ///< dense weights take of vram_bytes too, and those of layers take turns there where not
                              ///< all have room; false: they lie in host memory, and cost the device nothing
  double dense_share = 1;     ///< of the layers' dense weights, the most that stays; below 1 only with counts_dense
  uint64_t link_bytes_per_s = 0;
  std::chrono::nanoseconds latency{0};     ///< of each copy, before its first byte
  std::chrono::nanoseconds compute{0};  ///< the least time of one expert and of one attention; if the CPU is faster, it
                                        ///< waits
};

/// A GPU, as CUDA counts them.
struct CudaDeviceSpec {
  uint32_t index = 0;
  bool any = true;  ///< no index was given: one worker takes the first usable GPU; several workers of a box are spread
                    ///< over all usable GPUs
  uint64_t vram_bytes = 0;  ///< the most that a worker takes of its memory; 0: what is free
  bool dense_in_turn = false;  ///< dense weights of layers take turns in its memory where not all have room
  double dense_share = 1;      ///< of the layers' dense weights, the most that stays; below 1 only with dense_in_turn
};

struct DeviceSpec {
  enum class Kind : uint8_t { kCpu, kCuda, kEmulated } kind = Kind::kCpu;
  CudaDeviceSpec cuda;
  EmulatedDevice emulated;
};

/// kInvalidArgument names the text, what is wrong with it, and the valid forms.
Result<DeviceSpec> parse_device(std::string_view text);

/// The text that parse_device reads back: "cuda:1,vram=40GiB".
std::string device_text(const CudaDeviceSpec& device);

}  // namespace moestro::config
