// libmoestro_cuda_emulated.so: the emulated kernels behind the plugin's three symbols, so that whole programs run with
// --device cuda on machines without a GPU (MOESTRO_CUDA_PLUGIN names it to them). Each call passes a gate: cards have a
// size, and devices fall off.

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>

#include "kernels/cuda/emulated/functions.h"
#include "tests/cuda_device/emulated_settings.h"

namespace moestro::test {
namespace {

using kernels::cuda::emulated::functions;

// Numbers of CUDA.
constexpr MoestroCudaResult kInvalidValue = 1, kMemoryAllocation = 2, kInvalidDevice = 101, kEccUncorrectable = 214,
                            kNotSupported = 801, kUnknown = 999;

const char* error_text(MoestroCudaResult result) {
  switch (result) {
    case kInvalidValue: return "invalid argument";
    case kInvalidDevice: return "invalid device ordinal";
    case kEccUncorrectable: return "uncorrectable ECC error encountered";
    case kNotSupported: return "operation not supported";
    case kUnknown: return "unknown error";
    default: return functions().error_text(result);
  }
}

/// 0, or what every call gives once the device has fallen off. `name`: of the function that is called.
MoestroCudaResult pass(const char* name) {
  static std::atomic<bool> fallen{false};
  static std::atomic<uint64_t> calls{0};
  const EmulatedCuda& cuda = emulated_cuda();
  if (!cuda.falls_after.empty() && cuda.falls_after == name && calls.fetch_add(1) >= cuda.falls_at) fallen.store(true);
  if (!cuda.fallen_file.empty() && ::access(cuda.fallen_file.c_str(), F_OK) == 0) fallen.store(true);
  return fallen.load() ? kUnknown : 0;
}

template <size_t kLength>
struct Name {
  constexpr Name(const char (&text)[kLength]) { std::copy_n(text, kLength, value); }  // NOLINT: implicit on purpose
  char value[kLength];
};

/// The same function behind the gate.
template <Name kName, auto kMember>
struct Gated;
template <Name kName, typename Table, typename... Arguments, MoestroCudaResult (*Table::*kMember)(Arguments...)>
struct Gated<kName, kMember> {
  static MoestroCudaResult call(Arguments... arguments) {
    if (const MoestroCudaResult off = pass(kName.value)) return off;
    if constexpr (std::is_same_v<Table, MoestroCudaOps>) return (functions().ops.*kMember)(arguments...);
    else return (functions().*kMember)(arguments...);
  }
};

/// What this process has allocated on which card.
struct Memory {
  std::mutex mutex;
  std::map<void*, std::pair<size_t, uint64_t>> allocations;
  std::map<size_t, uint64_t> used;
};
Memory memory;
thread_local size_t chosen = 0;

uint64_t free_of(size_t card) {
  const EmulatedCard& c = emulated_cuda().cards[card];
  const uint64_t gone = c.taken_bytes + memory.used[card];
  return c.total_bytes > gone ? c.total_bytes - gone : 0;
}

bool is_faulty(size_t card) { return std::ranges::find(emulated_cuda().faulty, card) != emulated_cuda().faulty.end(); }

MoestroCudaResult use_device(int32_t index) {
  if (const MoestroCudaResult off = pass("use_device")) return off;
  if (index < 0 || static_cast<size_t>(index) >= emulated_cuda().cards.size()) return kInvalidDevice;
  if (is_faulty(static_cast<size_t>(index))) return kEccUncorrectable;
  chosen = static_cast<size_t>(index);
  return functions().use_device(index);
}

MoestroCudaResult memory_info(uint64_t* free_bytes, uint64_t* total_bytes) {
  if (const MoestroCudaResult off = pass("memory_info")) return off;
  const std::lock_guard lock(memory.mutex);
  *free_bytes = free_of(chosen);
  *total_bytes = emulated_cuda().cards[chosen].total_bytes;
  return 0;
}

MoestroCudaResult allocate(uint64_t bytes, void** device) {
  if (const MoestroCudaResult off = pass("allocate")) return off;
  const std::lock_guard lock(memory.mutex);
  *device = nullptr;
  if (bytes > free_of(chosen)) return kMemoryAllocation;
  if (const MoestroCudaResult result = functions().allocate(bytes, device)) return result;
  memory.allocations[*device] = {chosen, bytes};
  memory.used[chosen] += bytes;
  return 0;
}

MoestroCudaResult release(void* device) {
  if (const MoestroCudaResult off = pass("release")) return off;
  if (device == nullptr) return 0;
  const std::lock_guard lock(memory.mutex);
  const auto found = memory.allocations.find(device);
  if (found == memory.allocations.end()) return kInvalidValue;
  memory.used[found->second.first] -= found->second.second;
  memory.allocations.erase(found);
  return functions().release(device);
}

MoestroCudaResult register_host(void* host, uint64_t bytes, int32_t read_only) {
  if (const MoestroCudaResult off = pass("register_host")) return off;
  if (emulated_cuda().refuse_register) return kNotSupported;
  return functions().register_host(host, bytes, read_only);
}

MoestroCudaResult elapsed(float* ms, MoestroCudaEvent begin, MoestroCudaEvent end) {
  if (const MoestroCudaResult off = pass("elapsed")) return off;
  const MoestroCudaResult result = functions().elapsed(ms, begin, end);
  *ms = std::max(*ms, static_cast<float>(emulated_cuda().slow_copies_ms));
  return result;
}

/// A function that the table has got since would go on on a device that has fallen off.
void check_all_gated(const MoestroCudaFunctions& gated) {
  constexpr size_t kCount = sizeof(MoestroCudaFunctions) / sizeof(void*);
  const void *ours[kCount], *theirs[kCount];
  std::memcpy(ours, &gated, sizeof gated);
  std::memcpy(theirs, &functions(), sizeof gated);
  for (size_t i = 0; i < kCount; ++i)
    if (ours[i] == theirs[i]) {
      std::fprintf(stderr, "the emulated CUDA plugin: function %zu of the table has no gate\n", i);
      std::abort();
    }
}

MoestroCudaFunctions gated_functions() {
  MoestroCudaFunctions f = functions();
  f.error_text = error_text;
  f.use_device = use_device, f.memory_info = memory_info, f.allocate = allocate, f.release = release,
  f.register_host = register_host, f.elapsed = elapsed;
#define GATE(name) f.name = Gated<#name, &MoestroCudaFunctions::name>::call
  GATE(start_early), GATE(allocate_pinned), GATE(release_pinned), GATE(unregister_host), GATE(make_stream),
      GATE(end_stream), GATE(wait_stream), GATE(make_event), GATE(end_event);
  GATE(record_event), GATE(query_event), GATE(wait_event), GATE(stream_waits), GATE(copy_in), GATE(copy_out),
      GATE(copy_within), GATE(fill);
  GATE(begin_capture), GATE(end_capture), GATE(launch_graph), GATE(end_graph), GATE(use_dense_library);
#undef GATE
#define GATE(name) f.ops.name = Gated<#name, &MoestroCudaOps::name>::call
  GATE(matmul), GATE(gather), GATE(norm), GATE(sum_squares), GATE(rope), GATE(silu_mul), GATE(exponentials),
      GATE(add_scaled), GATE(clamp), GATE(combine);
  GATE(kv_write), GATE(attention), GATE(router), GATE(sort_routes), GATE(experts), GATE(sample);
  GATE(matmul_group), GATE(residual), GATE(place_heads), GATE(route);
  GATE(delta), GATE(gated_norm), GATE(sigmoid_mul), GATE(scale_rows), GATE(latent_write), GATE(latent_attention);
#undef GATE
  check_all_gated(f);
  return f;
}

}  // namespace
}  // namespace moestro::test

using namespace moestro::test;

#define MOESTRO_EXPORTED extern "C" __attribute__((visibility("default")))

MOESTRO_EXPORTED int32_t moestro_cuda_plugin_version() { return MOESTRO_CUDA_PLUGIN_VERSION; }

MOESTRO_EXPORTED int32_t moestro_cuda_probe(MoestroCudaDevice* devices, int32_t devices_max, char* error,
                                            int32_t error_bytes) {
  const EmulatedCuda& cuda = emulated_cuda();
  const char* words = cuda.no_driver       ? "CUDA driver version is insufficient for CUDA runtime version"
                      : pass("probe") != 0 ? error_text(kUnknown)
                                           : nullptr;
  if (words != nullptr) {
    std::snprintf(error, static_cast<size_t>(error_bytes), "%s", words);
    return -1;
  }
  const auto count = std::min(static_cast<int32_t>(cuda.cards.size()), devices_max);
  for (int32_t i = 0; i < count; ++i) {
    const EmulatedCard& card = cuda.cards[static_cast<size_t>(i)];
    MoestroCudaDevice& out = devices[i];
    std::memset(&out, 0, sizeof out);
    std::snprintf(out.name, sizeof out.name, "%s", card.name.c_str());
    std::snprintf(out.pci, sizeof out.pci, "%s", card.pci.c_str());
    out.major = card.major, out.minor = card.minor;
    out.total_bytes = card.total_bytes;
    out.free_bytes = card.total_bytes - std::min(card.total_bytes, card.taken_bytes);
    if (is_faulty(static_cast<size_t>(i)))
      std::snprintf(out.failed, sizeof out.failed, "%s", error_text(kEccUncorrectable));
  }
  return static_cast<int32_t>(cuda.cards.size());
}

MOESTRO_EXPORTED const MoestroCudaFunctions* moestro_cuda_functions() {
  static const MoestroCudaFunctions table = gated_functions();
  return &table;
}
