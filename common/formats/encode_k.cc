// Blocks of 256 whose groups have scales of 6 or 8 bits. Each group is fitted alone; its scale and minimum become small
// whole numbers of two f16; then these and the f16 are improved in turn, with what they are as stored.

#include <cmath>

#include "common/formats/encode_parts.h"
#include "common/formats/fit.h"

namespace moestro::formats {
namespace {

constexpr int kRounds = 2;

int whole(float x, float inverse, int least, int most) {
  return static_cast<int>(
      round_even(std::clamp(x * inverse, static_cast<float>(least), static_cast<float>(most))));
}

/// (d s) q - (dmin m): a block of q4_k or q5_k before it is packed.
class AffineBlock {
 public:
  AffineBlock(const float* x, RoundAffine round, float most) : round_(round) {
    lanes_.load(x, kGroup, kLanes);
    const AffineFit fit = fit_affine(lanes_, round, most);
    d_ = as_f16(*std::max_element(fit.scale, fit.scale + kLanes) / kSixBits);
    dmin_ = as_f16(*std::max_element(fit.minimum, fit.minimum + kLanes) / kSixBits);
    const float inverse = inverse_of(d_), inverse_min = inverse_of(dmin_);
    for (int64_t g = 0; g < kLanes; ++g) {
      s_[g] = whole(fit.scale[g], inverse, 0, kSixBits);
      m_[g] = whole(fit.minimum[g], inverse_min, 0, kSixBits);
    }
    for (int i = 0; i < kRounds; ++i) {
      improve_groups();
      improve_block(x);
    }
    improve_groups();
  }

  void write(const float* x, uint8_t* b, int high_bits_at, int most) const {
    put_f16(b, d_);
    put_f16(b + 2, dmin_);
    for (int g = 0; g < 4; ++g) {
      b[4 + g] = static_cast<uint8_t>(s_[g] | s_[g + 4] >> 4 << 6);
      b[8 + g] = static_cast<uint8_t>(m_[g] | m_[g + 4] >> 4 << 6);
      b[12 + g] = static_cast<uint8_t>((s_[g + 4] & 15) | (m_[g + 4] & 15) << 4);
    }
    constexpr int kHighBytes = 32, kHeader = 16;
    uint8_t* nibbles = b + kHeader + (high_bits_at > 0 ? kHighBytes : 0);
    for (int c = 0; c < 256; ++c) {
      const int g = c / 32;
      const float scale = d_ * static_cast<float>(s_[g]), minimum = dmin_ * static_cast<float>(m_[g]);
      const int q = whole(x[c] + minimum, inverse_of(scale), 0, most);
      nibbles[c / 64 * 32 + c % 32] |= static_cast<uint8_t>(c % 64 < 32 ? q & 15 : (q & 15) << 4);
      if (high_bits_at > 0) b[high_bits_at + c % 32] |= static_cast<uint8_t>(q >> 4 << g);
    }
  }

 private:
  static constexpr int64_t kGroup = 32;
  static constexpr int kSixBits = 63;

  void try_groups(const int* s, const int* m, LaneSums& sums) const {
    float scale[kLanes], minimum[kLanes];
    for (int64_t g = 0; g < kLanes; ++g) {
      scale[g] = d_ * static_cast<float>(s[g]);
      minimum[g] = dmin_ * static_cast<float>(m[g]);
    }
    round_(lanes_, scale, minimum, sums);
  }

  /// Scale and minimum of each group, of those next to the present ones.
  void improve_groups() {
    int s[kLanes], m[kLanes], best_s[kLanes], best_m[kLanes];
    float least[kLanes];
    LaneSums sums;
    try_groups(s_, m_, sums);
    for (int64_t g = 0; g < kLanes; ++g) least[g] = sums.error[g], best_s[g] = s_[g], best_m[g] = m_[g];
    for (int ds = -1; ds <= 1; ++ds)
      for (int dm = -1; dm <= 1; ++dm) {
        if (ds == 0 && dm == 0) continue;
        for (int64_t g = 0; g < kLanes; ++g) {
          s[g] = std::clamp(s_[g] + ds, 0, kSixBits);
          m[g] = std::clamp(m_[g] + dm, 0, kSixBits);
        }
        try_groups(s, m, sums);
        for (int64_t g = 0; g < kLanes; ++g)
          if (sums.error[g] < least[g]) least[g] = sums.error[g], best_s[g] = s[g], best_m[g] = m[g];
      }
    std::copy(best_s, best_s + kLanes, s_);
    std::copy(best_m, best_m + kLanes, m_);
  }

  /// d and dmin by least squares, with the present q, s and m; kept if rounding to f16 leaves them better.
  void improve_block(const float* x) {
    LaneSums sums;
    try_groups(s_, m_, sums);
    double before = 0, xs = 0, xm = 0, ss = 0, sm = 0, mm = 0;
    for (int64_t g = 0; g < kLanes; ++g) {
      double sum = 0;
      for (int64_t i = 0; i < kGroup; ++i) sum += x[g * kGroup + i];
      const double s = s_[g], m = m_[g];
      before += sums.error[g];
      xs += s * sums.qx[g], ss += s * s * sums.qq[g];
      xm += m * sum, mm += m * m * kGroup, sm += s * m * sums.q[g];
    }
    // x ~ d (s q) - dmin m
    const double determinant = ss * mm - sm * sm;
    const float old_d = d_, old_dmin = dmin_;
    if (mm > 0 && determinant > 1e-9 * ss * mm) {
      d_ = as_f16(static_cast<float>((xs * mm - xm * sm) / determinant));
      dmin_ = as_f16(static_cast<float>((xs * sm - xm * ss) / determinant));
    } else if (ss > 0) {
      d_ = as_f16(static_cast<float>((xs + dmin_ * sm) / ss));
    }
    double after = 0;
    try_groups(s_, m_, sums);
    for (int64_t g = 0; g < kLanes; ++g) after += sums.error[g];
    if (!(after < before) || d_ < 0 || dmin_ < 0) d_ = old_d, dmin_ = old_dmin;
  }

  RoundAffine round_;
  Lanes lanes_;
  float d_ = 0, dmin_ = 0;
  int s_[kLanes] = {}, m_[kLanes] = {};
};

/// (d s) q, s of 8 bits for 16 columns.
class SixBitBlock {
 public:
  explicit SixBitBlock(const float* x) {
    float scales[kGroups], extreme = 0;
    for (int h = 0; h < kHalves; ++h) {
      lanes_[h].load(x + h * kLanes * kGroup, kGroup, kLanes);
      const ScaleFit fit = fit_scales(lanes_[h], kSigned6Bits, [](float scale) { return scale; });
      std::copy(fit.scale, fit.scale + kLanes, scales + h * kLanes);
    }
    for (const float scale : scales)
      if (std::fabs(scale) > std::fabs(extreme)) extreme = scale;
    d_ = as_f16(extreme / kLeast);
    for (int g = 0; g < kGroups; ++g) s_[g] = whole(scales[g], inverse_of(d_), kLeast, kMost);
    for (int i = 0; i < kRounds; ++i) {
      improve_groups();
      improve_block();
    }
    improve_groups();
  }

  void write(const float* x, uint8_t* b) const {
    for (int c = 0; c < 256; ++c) {
      const float scale = d_ * static_cast<float>(s_[c / 16]);
      const int q = whole(x[c], inverse_of(scale), -32, 31) + 32;
      b[c / 128 * 64 + c % 64] |= static_cast<uint8_t>(c % 128 < 64 ? q & 15 : (q & 15) << 4);
      b[128 + c / 128 * 32 + c % 32] |= static_cast<uint8_t>(q >> 4 << c % 128 / 32 * 2);
    }
    for (int g = 0; g < kGroups; ++g) b[192 + g] = static_cast<uint8_t>(s_[g]);
    put_f16(b + 208, d_);
  }

 private:
  static constexpr int64_t kGroup = 16;
  static constexpr int kGroups = 16, kHalves = 2, kLeast = -128, kMost = 127;

  void try_groups(const int* s, int half, LaneSums& sums) const {
    float scale[kLanes];
    for (int64_t l = 0; l < kLanes; ++l) scale[l] = d_ * static_cast<float>(s[half * kLanes + l]);
    kSigned6Bits.round(lanes_[half], scale, sums);
  }

  void improve_groups() {
    int s[kGroups], best[kGroups];
    float least[kGroups];
    LaneSums sums;
    for (const int step : {0, -1, 1}) {
      for (int g = 0; g < kGroups; ++g) s[g] = std::clamp(s_[g] + step, kLeast, kMost);
      for (int h = 0; h < kHalves; ++h) {
        try_groups(s, h, sums);
        for (int64_t l = 0; l < kLanes; ++l)
          if (const int64_t g = h * kLanes + l; step == 0 || sums.error[l] < least[g])
            least[g] = sums.error[l], best[g] = s[g];
      }
    }
    std::copy(best, best + kGroups, s_);
  }

  double error() const {
    LaneSums sums;
    double all = 0;
    for (int h = 0; h < kHalves; ++h) {
      try_groups(s_, h, sums);
      for (int64_t l = 0; l < kLanes; ++l) all += sums.error[l];
    }
    return all;
  }

  void improve_block() {
    LaneSums sums;
    double before = 0, xs = 0, ss = 0;
    for (int h = 0; h < kHalves; ++h) {
      try_groups(s_, h, sums);
      for (int64_t l = 0; l < kLanes; ++l) {
        const double s = s_[h * kLanes + l];
        before += sums.error[l], xs += s * sums.qx[l], ss += s * s * sums.qq[l];
      }
    }
    if (!(ss > 0)) return;
    const float old = d_;
    d_ = as_f16(static_cast<float>(xs / ss));
    if (!(error() < before)) d_ = old;
  }

  Lanes lanes_[kHalves];
  float d_ = 0;
  int s_[kGroups] = {};
};

}  // namespace

void encode_q4_k(const float* x, uint8_t* b) {
  constexpr int kBytes = 144;
  std::memset(b, 0, kBytes);
  AffineBlock(x, round_to_4_bits, 15.0f).write(x, b, 0, 15);
}

void encode_q5_k(const float* x, uint8_t* b) {
  constexpr int kBytes = 176;
  std::memset(b, 0, kBytes);
  AffineBlock(x, round_to_5_bits, 31.0f).write(x, b, 16, 31);
}

void encode_q6_k(const float* x, uint8_t* b) {
  constexpr int kBytes = 210;
  std::memset(b, 0, kBytes);
  SixBitBlock(x).write(x, b);
}

}  // namespace moestro::formats
