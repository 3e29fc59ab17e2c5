#include "store/pack/fit_int4.h"

#include <cstring>
#include <limits>

#include "common/float16.h"

// Compiled without contraction of products and sums (CMakeLists.txt), so that every instruction set rounds alike.
#define MOESTRO_LANES for (int64_t l = 0; l < kFitLanes; ++l)

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define MOESTRO_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define MOESTRO_CLONES
#endif

namespace moestro::store {
namespace {

constexpr int kRefinements = 4;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNoFraction =
    12582912.0f;  ///< 1.5 * 2^23: added to a small number, it leaves no room for a fraction; rounds to even

/// What the present numbers of all lanes are: value = q * scale + offset.
struct Trial {
  alignas(64) float scale[kFitLanes], offset[kFitLanes], inverse[kFitLanes];
  alignas(64) float error[kFitLanes];                    ///< sum of squares
  alignas(64) double sum_q[kFitLanes], sum_qq[kFitLanes], sum_qv[kFitLanes];
  alignas(64) float q[kQuantGroup][kFitLanes];
};

// A lane for each group; the compiler makes of them what registers there are.
typedef float Floats __attribute__((vector_size(4 * kFitLanes), may_alias));
typedef double Doubles __attribute__((vector_size(8 * kFitLanes), may_alias));
typedef int32_t Ints __attribute__((vector_size(4 * kFitLanes), may_alias));

inline Floats& all(float* lanes) { return *reinterpret_cast<Floats*>(lanes); }
inline const Floats& all(const float* lanes) { return *reinterpret_cast<const Floats*>(lanes); }
inline Doubles& all(double* lanes) { return *reinterpret_cast<Doubles*>(lanes); }
inline const Ints& all(const int32_t* lanes) { return *reinterpret_cast<const Ints*>(lanes); }

inline float as_bf16(float x) { return bf16_to_f32(f32_to_bf16(x)); }

/// Rounds to the nearest values that scale and offset, as they are stored, can say; error and sums of what came out.
MOESTRO_CLONES void round_groups(const Int4Fits& fits, float most_of_all, const float* scale, const float* offset,
                                 Trial& t) {
  MOESTRO_LANES {
    t.scale[l] = as_bf16(scale[l]);
    t.offset[l] = as_bf16(offset[l]);
    t.inverse[l] = t.scale[l] > 0 ? 1.0f / t.scale[l] : 0.0f;
  }
  const Floats step = all(t.scale), least = all(t.offset), inverse = all(t.inverse), zero = {};
  const Floats most = zero + most_of_all;
  Floats error = {};
  Doubles sum_q = {}, sum_qq = {}, sum_qv = {};
  for (int64_t i = 0; i < kQuantGroup; ++i) {
    const Floats value = all(fits.values[i]);
    Floats q = (value - least) * inverse;
    // Clamped before it is rounded: a step of next to nothing may make it as large as a float can be.
    q = q < zero ? zero : q;
    q = q > most ? most : q;
    q = (q + kNoFraction) - kNoFraction;
    all(t.q[i]) = q;
    const Floats miss = value - (q * step + least);
    error += miss * miss;
    const Doubles qi = __builtin_convertvector(q, Doubles);
    sum_q += qi;
    sum_qq += qi * qi;
    sum_qv += qi * __builtin_convertvector(value, Doubles);
  }
  all(t.error) = error;
  all(t.sum_q) = sum_q;
  all(t.sum_qq) = sum_qq;
  all(t.sum_qv) = sum_qv;
}

/// Keeps the trial of every lane that takes part and is better than the best so far.
MOESTRO_CLONES void keep_better(const Trial& t, const int32_t* active, float* best_error, Int4Fits& fits) {
  alignas(64) int32_t better[kFitLanes];
  int32_t found = 0;
  MOESTRO_LANES {
    better[l] = active[l] != 0 && (t.error[l] < best_error[l] || best_error[l] == kInfinity) ? -1 : 0;
    found |= better[l];
    if (better[l] == 0) continue;
    best_error[l] = t.error[l];
    fits.scale[l] = t.scale[l];
    fits.offset[l] = t.offset[l];
  }
  if (found == 0) return;
  const Ints mask = all(better);
  for (int64_t i = 0; i < kQuantGroup; ++i) all(fits.q[i]) = mask ? all(t.q[i]) : all(fits.q[i]);
}

/// Scale and offset of the least squared error for the present q. A lane whose q are all equal, which leaves its scale
/// free, takes part no longer.
void solve(const Trial& t, const double* sum_v, int32_t* active, float* scale, float* offset) {
  constexpr double kCount = kQuantGroup;
  MOESTRO_LANES {
    if (active[l] == 0) continue;
    const double spread = t.sum_qq[l] - t.sum_q[l] * t.sum_q[l] / kCount;
    const double slope = spread <= 0 ? 0 : (t.sum_qv[l] - t.sum_q[l] * sum_v[l] / kCount) / spread;
    active[l] = !(spread <= 0) && !(slope <= 0);
    if (active[l] == 0) continue;
    scale[l] = static_cast<float>(slope);
    // With the scale as it will be stored, the offset takes up its rounding.
    offset[l] = static_cast<float>((sum_v[l] - as_bf16(scale[l]) * t.sum_q[l]) / kCount);
  }
}

bool any(const int32_t* active) {
  int32_t found = 0;
  MOESTRO_LANES found |= active[l];
  return found != 0;
}

}  // namespace

void fit_int4(Int4Fits& fits, const FitRule& rule) {
  float low[kFitLanes], range[kFitLanes], best_error[kFitLanes];
  double sum_v[kFitLanes] = {};
  MOESTRO_LANES {
    float high = low[l] = fits.values[0][l];
    for (int64_t i = 0; i < kQuantGroup; ++i) {
      const float v = fits.values[i][l];
      low[l] = v < low[l] ? v : low[l];    // the first of equals, and below the last, which tells 0 from -0
      high = v >= high ? v : high;
      sum_v[l] += v;
    }
    range[l] = high - low[l];
    best_error[l] = kInfinity;
  }
  Trial trial;
  for (const float part : rule.starts) {
    float scale[kFitLanes], offset[kFitLanes];
    int32_t active[kFitLanes];
    MOESTRO_LANES {
      scale[l] = range[l] * part / rule.most;
      offset[l] = low[l] + range[l] * (1.0f - part) / 2.0f;
      active[l] = 1;
    }
    for (int i = 0; i <= kRefinements && any(active); ++i) {
      round_groups(fits, rule.most, scale, offset, trial);
      keep_better(trial, active, best_error, fits);
      solve(trial, sum_v, active, scale, offset);
    }
  }
}

}  // namespace moestro::store
