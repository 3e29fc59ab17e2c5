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

/// Tiles of bf16 and of bytes: in the machine, kept by the system from switch to switch, granted to this process (Linux' arch_prctl, for all of
/// its threads), and right.
bool has_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24, kInt8 = 1u << 25;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & (kBf16 | kTile | kInt8)) != (kBf16 | kTile | kInt8)) return false;
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;               // XFEATURE_XTILEDATA
  if (::syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0) return false;
  return cpu::amx_multiplies_rightly();
}
#endif

Isa detect() {
#if defined(__x86_64__)
  // These ask for the operating system's support of the registers, too.
  __builtin_cpu_init();
  const bool avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  if (!avx2) return Isa::kScalar;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  if (!avx512) return Isa::kAvx2;
  if (__builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni"))
    return has_amx() ? Isa::kAvx512Amx : Isa::kAvx512Bf16Vnni;
  return Isa::kAvx512;
#else
  return Isa::kScalar;
#endif
}
}  // namespace

Isa best_isa() {
  static const Isa best = detect();
  return best;
}

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
