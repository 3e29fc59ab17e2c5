#include "services/worker/device/cuda_slots.h"

namespace moestro::device {

std::string words_of(const CudaSlots& device, const char* call, MoestroCudaResult result) {
  return "the device cuda:" + std::to_string(device.index) + ": " + call + ": " + device.functions->error_text(result);
}

Status fell_off(const CudaSlots& device, const char* call, MoestroCudaResult result) {
  if (result == 0) return Status::ok();
  return unavailable("the device cuda:" + std::to_string(device.index) + " has failed: " + call + ": " +
                     device.functions->error_text(result) + "; the worker ends");
}

}  // namespace moestro::device
