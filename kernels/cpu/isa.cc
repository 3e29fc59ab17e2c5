#include "kernels/cpu/isa.h"

#include <sched.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <array>
#include <bitset>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/peak_loops.h"

namespace moestro::kernels {

namespace {
#if defined(__x86_64__)
/// clang's __builtin_cpu_supports does not know this one by name.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & (1u << 29)) != 0;
}

/// AVX-VNNI: dot products of bytes for 256 bits.
bool processor_has_avx_vnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & (1u << 4)) != 0;
}

/// Tiles of bf16 and of bytes.
bool processor_has_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24, kInt8 = 1u << 25, kAll = kBf16 | kTile | kInt8;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kAll) == kAll;
}

/// The system keeps tiles from switch to switch only for a process that it has granted them (Linux' arch_prctl, for all
/// threads).
bool system_grants_amx() {
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;               // XFEATURE_XTILEDATA
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#endif

using Isas = std::bitset<std::size(kIsas)>;

struct Detected {
  Isas isas;                      ///< those that have kernels in this program, too
  Isa fastest = Isa::kScalar;     ///< of the machine, with kernels or without
  std::string_view amx_not_used = {};
};

constexpr size_t index_of(Isa isa) { return static_cast<size_t>(isa); }

/// Whether this program has kernels for it: for all, or for the machine that it was compiled on.
constexpr bool compiled(Isa isa) {
  constexpr Isa kCompiled[] = {Isa::kScalar, MOESTRO_COMPILED_ISAS};
  return std::find(std::begin(kCompiled), std::end(kCompiled), isa) != std::end(kCompiled);
}

Detected detect() {
  Detected found;
  found.isas.set(index_of(Isa::kScalar));
#if defined(__x86_64__)
  const auto add = [&](Isa isa, bool has) {
    found.isas.set(index_of(isa), has && compiled(isa));
    if (has) found.fastest = isa;
    return has;
  };
  // These ask for the operating system's support of the registers, too.
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  const bool vnni = avx512 && __builtin_cpu_supports("avx512vnni");
  add(Isa::kAvx2, avx2);
  add(Isa::kAvx2Vnni, avx2 && processor_has_avx_vnni());
  add(Isa::kAvx512, avx512);
  add(Isa::kAvx512Vnni, vnni);
  if (!add(Isa::kAvx512Bf16Vnni, vnni && __builtin_cpu_supports("avx512bf16")) || !processor_has_amx()) return found;
  if (!system_grants_amx()) {
    found.amx_not_used = "the system does not grant its registers (Linux 5.16 or later does)";
    return found;
  }
  bool multiplies_rightly = true;  // unless it is tried
  if constexpr (compiled(Isa::kAvx512Amx)) multiplies_rightly = cpu::amx_multiplies_rightly();
  if (!add(Isa::kAvx512Amx, multiplies_rightly))
    found.amx_not_used = "its products of whole numbers came out wrong";
#endif
  return found;
}

const Detected& detected() {
  static const Detected once = detect();
  return once;
}
}  // namespace

bool has_isa(Isa isa) { return detected().isas.test(index_of(isa)); }

Isa best_isa() {
  return *std::find_if(std::rbegin(kIsas), std::rend(kIsas), has_isa);  // the first one is on every machine
}

Isa fastest_isa_of_machine() { return detected().fastest; }

std::string_view amx_not_used() { return detected().amx_not_used; }

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return "scalar";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx2Vnni:
      return "avx2-vnni";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Vnni:
      return "avx512-vnni";
    case Isa::kAvx512Bf16Vnni:
      return "avx512-bf16-vnni";
    case Isa::kAvx512Amx:
      return "avx512-amx";
  }
  return "unknown";
}

std::string_view product_instructions(Isa isa, DType weights, bool deterministic) {
  constexpr std::string_view kBf16OrExact = "AVX-512 BF16, AVX-512";  // few tokens, many
  const DType computed = computed_as(weights);
  const bool blocks =
      is_blocks(weights) && cpu::kernel_table(isa).rounded_blocks[block_index(weights)].round != nullptr;
  const bool fp8 = weights == DType::kFP8 || weights == DType::kFP8G32;
  const bool bf16 = computed == DType::kBF16 || (fp8 && blocks),
             bytes = computed == DType::kInt8 || computed == DType::kInt4 || (blocks && !fp8);
  const bool rounds = !deterministic && (bf16 || bytes);
  switch (isa) {
    case Isa::kScalar:
      return "scalar";
    case Isa::kAvx2:
      return "AVX2";
    case Isa::kAvx2Vnni:
      return rounds && bytes ? "AVX-VNNI" : "AVX2";
    case Isa::kAvx512:
      return rounds && bytes && computed != DType::kInt8 ? "AVX2" : "AVX-512";
    case Isa::kAvx512Vnni:
      return rounds && bytes ? "AVX-512 VNNI" : "AVX-512";
    case Isa::kAvx512Bf16Vnni:
      return !rounds ? "AVX-512" : !bf16 ? "AVX-512 VNNI" : cpu::bf16_pairs_pay() ? "AVX-512 BF16" : kBf16OrExact;
    case Isa::kAvx512Amx:
      return !rounds  ? "AVX-512"
             : blocks ? (!bf16 ? "AVX-512 VNNI" : cpu::bf16_pairs_pay() ? "AVX-512 BF16" : kBf16OrExact)
             : bf16   ? "AMX, AVX-512 BF16"
                      : "AMX, AVX-512 VNNI";
  }
  return "unknown";
}

std::string instructions_by_precision(Isa isa, bool deterministic) {
  std::vector<std::pair<std::string_view, std::string>> kinds;  // few: a map would lose their order
  for (const DType weights : {DType::kF32, DType::kBF16, DType::kF16, DType::kInt8, DType::kInt4}) {
    const std::string_view instructions = product_instructions(isa, weights, deterministic);
    auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const auto& k) { return k.first == instructions; });
    if (kind == kinds.end()) kind = kinds.insert(kinds.end(), {instructions, ""});
    kind->second += (kind->second.empty() ? "" : ", ") + std::string(dtype_name(weights));
  }
  std::string text;
  for (const auto& [instructions, precisions] : kinds)
    text += (text.empty() ? "" : ", ") + std::string(instructions) + " (" + precisions + ")";
  return text;
}

namespace cpu {

namespace {
size_t index_of(DType dtype) { return static_cast<size_t>(dtype); }

#if defined(__x86_64__)
KernelTable with(KernelTable table, const ByteProducts& part) {
  table.rounded[index_of(DType::kInt8)] = part.int8;
  table.rounded[index_of(DType::kInt4)] = part.int4;
  std::copy(std::begin(part.blocks), std::end(part.blocks), std::begin(table.rounded_blocks));
  return table;
}
/// Exact products of int8 with 512 bits should be no slower than those of bytes with 256.
KernelTable without_int8(KernelTable table) {
  table.rounded[index_of(DType::kInt8)] = {};
  return table;
}
/// Where dot products of bf16 do not pay: tokens from which exact products are faster, measured. bf16 in 12 bits would
/// gain from 12 on, but gives what bf16 does. FP8 with a scale for 32 columns is widened more slowly than with one for
/// 128.
constexpr int64_t kExactBf16From = 24, kExactFp8From = 12, kExactFp8G32From = 24;
KernelTable with(KernelTable table, const Bf16Products& part) {
  table.to_bf16 = part.to_bf16;
  RoundedProduct& bf16 = table.rounded[index_of(DType::kBF16)] = part.bf16;
  table.product_in_12_bits = part.in_12_bits;
  if (bf16_pairs_pay()) table.latent_rounded = part.latent;
  else bf16.exact_from = kExactBf16From;
  return table;
}
/// Not every processor with dot products of bf16 has lookups in 128 bytes.
KernelTable with(KernelTable table, const Fp8Products& part) {
  if (!__builtin_cpu_supports("avx512vbmi")) return table;
  RoundedProduct &fp8 = table.rounded_blocks[block_index(DType::kFP8)] = part.fp8,
                 &fp8_g32 = table.rounded_blocks[block_index(DType::kFP8G32)] = part.fp8_g32;
  if (!bf16_pairs_pay()) fp8.exact_from = kExactFp8From, fp8_g32.exact_from = kExactFp8G32From;
  return table;
}
#endif
}  // namespace

KernelTable with(KernelTable table, const TileProducts& part) {
  RoundedProduct& bf16 = table.rounded[index_of(DType::kBF16)];
  bf16.product.many = part.bf16;
  bf16.exact_from = RoundedProduct::kNever;
  table.rounded[index_of(DType::kInt8)].product.many = part.int8;
  table.rounded[index_of(DType::kInt4)].product.many = part.int4;
  table.product_in_12_bits.many = part.bf16_in_12_bits;
  return table;
}

#if defined(__x86_64__)
namespace {
/// What is not compiled must not be named: a set without kernels has those of any machine, and nobody asks for it.
KernelTable composed(Isa isa) {
  if constexpr (compiled(Isa::kAvx2))
    if (isa == Isa::kAvx2) return with(kAvx2Kernels, kAvx2ByteProducts);
  if constexpr (compiled(Isa::kAvx2Vnni))
    if (isa == Isa::kAvx2Vnni) return with(kAvx2Kernels, kAvx2VnniProducts);
  if constexpr (compiled(Isa::kAvx512))
    if (isa == Isa::kAvx512) return without_int8(with(kAvx512Kernels, kAvx2ByteProducts));
  if constexpr (compiled(Isa::kAvx512Vnni))
    if (isa == Isa::kAvx512Vnni) return with(kAvx512Kernels, kAvx512VnniProducts);
  if constexpr (compiled(Isa::kAvx512Bf16Vnni))
    if (isa == Isa::kAvx512Bf16Vnni)
      return with(with(composed(Isa::kAvx512Vnni), kAvx512Bf16Products), kAvx512Fp8Products);
  if constexpr (compiled(Isa::kAvx512Amx))
    if (isa == Isa::kAvx512Amx) return with(composed(Isa::kAvx512Bf16Vnni), kAmxProducts);
  return kGenericKernels;
}
}  // namespace
#endif

const KernelTable& kernel_table(Isa isa) {
  MOESTRO_CHECK(has_isa(isa), "the machine lacks these instructions, or this program kernels for them");
#if defined(__x86_64__)
  static const auto tables = [] {
    std::array<KernelTable, std::size(kIsas)> all;
    for (const Isa one : kIsas) all[kernels::index_of(one)] = composed(one);
    return all;
  }();
  return tables[kernels::index_of(isa)];
#else
  return kGenericKernels;
#endif
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
