#pragma once
// The emulated device's memory: one range of addresses that can be touched only while a kernel or a copy runs. A host
// that reads or writes device memory by itself, as a device forbids, ends with a line on stderr that says so.
//
// Any thread may call this. Each way in and out is one mprotect of the whole range. Memory that another thread's kernel
// or copy holds open at that moment is open for all, so such an access is found only most of the time.

#include <cstdint>
#include <functional>

namespace moestro::kernels::cuda::emulated {

/// Memory of the device, aligned to 256 bytes, all bytes 0xff (NaN). Null if there is no room.
void* allocate_device(uint64_t bytes);
/// That nothing was written behind the allocation is checked when the region is next opened. Null does nothing.
void release_device(void* memory);
bool is_device(const void* at);

/// Does `work`, which touches device memory and calls nothing of this, before anything else touches it.
void when_open(std::function<void()> work);

/// While one of these is there, device memory can be touched. They nest.
class DeviceAccess {
 public:
  DeviceAccess();
  ~DeviceAccess();
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;
};

}  // namespace moestro::kernels::cuda::emulated
