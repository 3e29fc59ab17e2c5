#include "services/worker/device/slot_memory.h"

#include <sys/mman.h>

#include <cstring>
#include <utility>

#include "common/config/units.h"

namespace moestro::device {

Result<SlotMemory> SlotMemory::create(int32_t slots, uint64_t slot_bytes, int32_t low_slots, uint64_t low_bytes) {
  const uint64_t bytes = static_cast<uint64_t>(slots) * slot_bytes + static_cast<uint64_t>(low_slots) * low_bytes;
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED)
    return exhausted("no memory for " + config::readable_size(bytes) +
                     " of the emulated device: give it less (vram=SIZE)");
  madvise(base, bytes, MADV_HUGEPAGE);  // nothing lost where there are none
  // Backed now, so that no copy pays for it later. Older kernels lack the call: the first copies then do pay.
  madvise(base, bytes, MADV_POPULATE_WRITE);
  return SlotMemory(Base(static_cast<std::byte*>(base), [bytes](std::byte* b) { munmap(b, bytes); }), slots, slot_bytes,
                    slot_bytes, low_bytes);
}

Result<SlotMemory> SlotMemory::on_device(const CudaSlots& device, int32_t slots, uint64_t slot_bytes,
                                         const char* what_for) {
  const uint64_t bytes = static_cast<uint64_t>(slots) * CudaSlots::slot_bytes(slot_bytes);
  void* base = nullptr;
  if (const MoestroCudaResult result = device.functions->allocate(bytes, &base); result != 0)
    return exhausted(words_of(device, "allocate", result) + ": it has no " + config::readable_size(bytes) +
                     " for " + what_for + " in one piece: give it less (vram=SIZE)");
  const auto free = [functions = device.functions](std::byte* b) { (void)functions->release(b); };
  return SlotMemory(Base(static_cast<std::byte*>(base), free), slots, slot_bytes, CudaSlots::slot_bytes(slot_bytes));
}

void SlotMemory::poison(uint32_t index) const { std::memset(slot(index), 0xff, slot_bytes(index)); }

}  // namespace moestro::device
