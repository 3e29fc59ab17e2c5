#include "kernels/cpu/peak_loops.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string_view>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

// Sixteen accumulators hide the latency of any multiply-add of today on two units. They are sixteen variables, for
// compilers keep the elements of an array in memory. Each begins with another value, or equal ones would be computed
// once.
#define MOESTRO_EACH(F) F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9) F(10) F(11) F(12) F(13) F(14) F(15)

namespace moestro::kernels::cpu {
namespace {

constexpr double kAccumulators = 16;

float f32_plain(int64_t rounds) {
  const float a = 0.999f, b = 0.001f;
#define BEGIN(i) float s##i = i;
#define STEP(i) s##i = s##i * a + b;
#define SUM(i) +s##i
  MOESTRO_EACH(BEGIN)
  for (int64_t r = 0; r < rounds; ++r) {
    MOESTRO_EACH(STEP)
  }
  return 0 MOESTRO_EACH(SUM);
#undef BEGIN
#undef STEP
#undef SUM
}

constexpr PeakLoop kScalar[] = {{"f32", "multiply and add", 2 * kAccumulators, f32_plain}};

#if defined(__x86_64__)

// Functions carry their instruction set themselves: nothing else of this file may use it.
__attribute__((target("avx2,fma"))) float f32_avx2(int64_t rounds) {
  const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(0.001f);
#define BEGIN(i) __m256 s##i = _mm256_set1_ps(i);
#define STEP(i) s##i = _mm256_fmadd_ps(s##i, a, b);
#define SUM(i) +_mm256_cvtss_f32(s##i)
  // Sixteen registers in all: with a and b in two of them, twelve are left for sums.
  BEGIN(0) BEGIN(1) BEGIN(2) BEGIN(3) BEGIN(4) BEGIN(5) BEGIN(6) BEGIN(7) BEGIN(8) BEGIN(9) BEGIN(10) BEGIN(11)
  for (int64_t r = 0; r < rounds; ++r) {
    STEP(0) STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) STEP(6) STEP(7) STEP(8) STEP(9) STEP(10) STEP(11)
  }
  return 0 SUM(0) SUM(1) SUM(2) SUM(3) SUM(4) SUM(5) SUM(6) SUM(7) SUM(8) SUM(9) SUM(10) SUM(11);
#undef BEGIN
#undef STEP
#undef SUM
}

__attribute__((target("avx512f"))) float f32_avx512(int64_t rounds) {
  const __m512 a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(0.001f);
#define BEGIN(i) __m512 s##i = _mm512_set1_ps(i);
#define STEP(i) s##i = _mm512_fmadd_ps(s##i, a, b);
#define SUM(i) +_mm512_cvtss_f32(s##i)
  MOESTRO_EACH(BEGIN)
  for (int64_t r = 0; r < rounds; ++r) {
    MOESTRO_EACH(STEP)
  }
  return 0 MOESTRO_EACH(SUM);
#undef BEGIN
#undef STEP
}

__attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16"))) float bf16_pairs(int64_t rounds) {
  const __m512bh a = (__m512bh)_mm512_set1_epi32(0x3d803d80), b = a;  // 2^-4 everywhere
#define BEGIN(i) __m512 s##i = _mm512_set1_ps(i);
#define STEP(i) s##i = _mm512_dpbf16_ps(s##i, a, b);
  MOESTRO_EACH(BEGIN)
  for (int64_t r = 0; r < rounds; ++r) {
    MOESTRO_EACH(STEP)
  }
  return 0 MOESTRO_EACH(SUM);
#undef BEGIN
#undef STEP
#undef SUM
}

__attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni"))) float int8_fours(int64_t rounds) {
  const __m512i a = _mm512_set1_epi8(1), b = a;
#define BEGIN(i) __m512i s##i = _mm512_set1_epi32(i);
#define STEP(i) s##i = _mm512_dpbusd_epi32(s##i, a, b);
#define SUM(i) +static_cast<float>(_mm512_cvtsi512_si32(s##i))
  MOESTRO_EACH(BEGIN)
  for (int64_t r = 0; r < rounds; ++r) {
    MOESTRO_EACH(STEP)
  }
  return 0 MOESTRO_EACH(SUM);
#undef BEGIN
#undef STEP
#undef SUM
}

__attribute__((target("avx2,avxvnni"))) float int8_fours_256(int64_t rounds) {
  const __m256i a = _mm256_set1_epi8(1), b = a;
#define BEGIN(i) __m256i s##i = _mm256_set1_epi32(i);
#define STEP(i) s##i = _mm256_dpbusd_avx_epi32(s##i, a, b);
#define SUM(i) +static_cast<float>(_mm256_cvtsi256_si32(s##i))
  BEGIN(0) BEGIN(1) BEGIN(2) BEGIN(3) BEGIN(4) BEGIN(5) BEGIN(6) BEGIN(7) BEGIN(8) BEGIN(9) BEGIN(10) BEGIN(11)
  for (int64_t r = 0; r < rounds; ++r) {
    STEP(0) STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) STEP(6) STEP(7) STEP(8) STEP(9) STEP(10) STEP(11)
  }
  return 0 SUM(0) SUM(1) SUM(2) SUM(3) SUM(4) SUM(5) SUM(6) SUM(7) SUM(8) SUM(9) SUM(10) SUM(11);
#undef BEGIN
#undef STEP
#undef SUM
}

constexpr PeakLoop kAvx2Loops[] = {{"f32", "vfmadd, 256 bits", 2 * 8 * 12, f32_avx2},
                                   {"int8", "vpdpbusd, 256 bits", 2 * 32 * 12, int8_fours_256}};
constexpr PeakLoop kAvx512Loops[] = {{"f32", "vfmadd", 2 * 16 * kAccumulators, f32_avx512},
                                     {"int8", "vpdpbusd", 2 * 64 * kAccumulators, int8_fours},
                                     {"bf16", "vdpbf16ps", 2 * 32 * kAccumulators, bf16_pairs}};
#endif

/// Operations a second, of the fastest of a few short runs: whoever else ran meanwhile was not there in all of them.
double rate(const PeakLoop& loop) {
  constexpr int64_t kRounds = 1000;  // 3 to 12 us
  constexpr int kRuns = 8;
  double least = HUGE_VAL;
  for (int run = 0; run < kRuns; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    const float sum = loop.run(kRounds);
    asm volatile("" : : "r"(sum));
    least = std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return loop.operations * kRounds / least;
}

}  // namespace

bool bf16_pairs_pay() {
  // What panels reach of both: measured on a Xeon of the fifth generation, 82 of 86 GFLOP/s and 113 of 175.
  constexpr double kOfF32 = 0.65, kOfBf16 = 0.95;
  static const bool pay = [] {
    if (!has_isa(Isa::kAvx512Bf16Vnni)) return true;
    double f32 = 0, bf16 = 0;
    for (const PeakLoop& loop : peak_loops(Isa::kAvx512Bf16Vnni)) {
      if (std::string_view(loop.name) == "f32") f32 = rate(loop);
      if (std::string_view(loop.name) == "bf16") bf16 = rate(loop);
    }
    return bf16 * kOfBf16 > f32 * kOfF32;
  }();
  return pay;
}

std::span<const PeakLoop> peak_loops(Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::kScalar:
      return kScalar;
    case Isa::kAvx2:
      return std::span(kAvx2Loops).first(1);
    case Isa::kAvx2Vnni:
      return kAvx2Loops;
    case Isa::kAvx512:
      return std::span(kAvx512Loops).first(1);
    case Isa::kAvx512Vnni:
      return std::span(kAvx512Loops).first(2);
    case Isa::kAvx512Bf16Vnni:
    case Isa::kAvx512Amx:
      return kAvx512Loops;
  }
#endif
  (void)isa;
  return kScalar;
}

}  // namespace moestro::kernels::cpu
