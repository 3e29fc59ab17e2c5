#include "kernels/cpu/isa.h"

#include <sched.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <fstream>
#include <set>
#include <string>

namespace moestro::kernels {

namespace {
#if defined(__x86_64__)
/// clang's __builtin_cpu_supports does not know this one by name.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & (1u << 29)) != 0;
}

/// Tiles of bf16 and of bytes.
bool processor_has_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24, kInt8 = 1u << 25, kAll = kBf16 | kTile | kInt8;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kAll) == kAll;
}

/// The system keeps tiles from switch to switch only for a process that it has granted them (Linux' arch_prctl, for all threads).
bool system_grants_amx() {
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;               // XFEATURE_XTILEDATA
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#endif

struct Detected {
  Isa best = Isa::kScalar;
  std::string_view amx_not_used = {};
};

Detected detect() {
#if defined(__x86_64__)
  // These ask for the operating system's support of the registers, too.
  __builtin_cpu_init();
  const bool avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  if (!avx2) return {Isa::kScalar};
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  if (!avx512) return {Isa::kAvx2};
  if (!__builtin_cpu_supports("avx512bf16") || !__builtin_cpu_supports("avx512vnni")) return {Isa::kAvx512};
  if (!processor_has_amx()) return {Isa::kAvx512Bf16Vnni};
  if (!system_grants_amx()) return {Isa::kAvx512Bf16Vnni, "the system does not grant its registers (Linux 5.16 or later does)"};
  if (!cpu::amx_multiplies_rightly()) return {Isa::kAvx512Bf16Vnni, "its products of whole numbers came out wrong"};
  return {Isa::kAvx512Amx};
#else
  return {};
#endif
}

const Detected& detected() {
  static const Detected once = detect();
  return once;
}
}  // namespace

Isa best_isa() { return detected().best; }
std::string_view amx_not_used() { return detected().amx_not_used; }

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return "scalar";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Bf16Vnni:
      return "avx512-bf16-vnni";
    case Isa::kAvx512Amx:
      return "avx512-amx";
  }
  return "unknown";
}

namespace cpu {

const KernelTable& kernel_table(Isa isa) {
  MOESTRO_CHECK(isa <= best_isa(), "the machine lacks these instructions");
#if defined(__x86_64__)
  switch (isa) {
    case Isa::kScalar:
      return kGenericKernels;
    case Isa::kAvx2:
      return kAvx2Kernels;
    case Isa::kAvx512:
      return kAvx512Kernels;
    case Isa::kAvx512Bf16Vnni:
      return kAvx512Bf16Kernels;
    case Isa::kAvx512Amx:
      return kAvx512AmxKernels;
  }
#endif
  return kGenericKernels;
}

int physical_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 1;
  std::set<std::string> cores;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (!CPU_ISSET(i, &allowed)) continue;
    std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(i) + "/topology/thread_siblings_list");
    std::string siblings;
    if (!std::getline(file, siblings)) siblings = std::to_string(i);
    cores.insert(siblings);
  }
  return std::max(1, static_cast<int>(cores.size()));
}

}  // namespace cpu
}  // namespace moestro::kernels
