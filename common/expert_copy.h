#pragma once
// Which copy of an expert serves: the full one, or a low one of fewer bytes, or none.
//
// The rule is that of HOBBIT (2024): a token's chosen experts are sorted by gate weight, and the sum of the normalised
// weights before an expert says how little it matters. It decides only where the full copy is missing: a full copy that
// is there serves every want.

#include <cstdint>
#include <optional>
#include <span>

#include "common/dtype.h"

namespace moestro {

enum class Copy : uint8_t { kFull, kLow };

/// The least that a token can do with, in ascending order: of several tokens, the greatest want is that of all.
enum class Want : uint8_t { kNone, kLow, kFull };

struct MixedOptions {
  static constexpr double kShare = 0.03;
  DType low = DType::kInt4;  ///< of low copies
  double t1 = 0.6;           ///< up to this score an expert is wanted full
  double t2 = 1;             ///< up to this score it is wanted at least low; above it, it may be left out
  double share = kShare;     ///< of a device's memory for experts, for low copies
  double max_share = 1;      ///< of a request's choices, the part that low copies may serve, or none
};

/// What a token wants of its experts, whose gate weights are `weights`: `out` has as many. Without a usable sum (a
/// weight that is negative or not finite, or all are 0) all are wanted full.
void wants_of_token(std::span<const float> weights, const MixedOptions& options, std::span<Want> out);

/// The copy that serves, which may have to be brought. nullopt: none, the expert is left out.
constexpr std::optional<Copy> serving_copy(Want want, bool full_is_there, bool low_is_there) {
  if (full_is_there || want == Want::kFull) return Copy::kFull;
  if (low_is_there || want == Want::kLow) return Copy::kLow;
  return std::nullopt;
}

/// Choices (tokens x experts) of an answer, by the copy that they were computed with.
struct CopyCounts {
  uint64_t choices = 0;  ///< all of them; 0: they were not counted, as every one was full
  uint64_t low = 0, skipped = 0;

  /// The part that full copies did not serve.
  double not_full_share() const {
    return choices == 0 ? 0 : static_cast<double>(low + skipped) / static_cast<double>(choices);
  }
  /// Whether a plan, whose choices are its tokens times the experts of all layers, can have these.
  bool is_possible() const {
    constexpr uint64_t kChoicesMax = uint64_t{1} << 40;
    return choices <= kChoicesMax && low <= choices && skipped <= choices - low;
  }
  CopyCounts& operator+=(const CopyCounts& other) {
    choices += other.choices, low += other.low, skipped += other.skipped;
    return *this;
  }
  friend bool operator==(const CopyCounts&, const CopyCounts&) = default;
};

}  // namespace moestro
