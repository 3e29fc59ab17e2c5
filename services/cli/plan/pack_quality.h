#pragma once
// What a pack's precisions and low copies cost in quality, as measured: PACK/quality.json, which
// `scripts/measure_quality.py --keep` writes.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/status.h"

namespace moestro::cli {

struct PackQuality {
  struct Precision {
    std::string name;
    double loss = 0;        ///< growth of perplexity against `against`: 0.01 is 1 %
    std::string against{};  ///< the first precision of the same run
  };
  struct Mixed {
    std::string mixed;  ///< as --mixed
    double slots = 0;   ///< percent of the full experts that the device had room for
    double low_share = 0, skipped_share = 0, loss = 0;  ///< loss: against the full copies alone
    std::string full{};                                 ///< precision of the full copies
  };
  std::vector<Precision> precisions;
  std::vector<Mixed> mixed;

  /// Of experts of one precision; null: not measured.
  const Precision* find(std::string_view precision) const;
};

inline constexpr const char* kQualityFile = "quality.json";

/// Without the file: nothing is measured. kCorrupt: it is not what is written there. kInvalidArgument: it is of another
/// version of the pack than that of this identity.
Result<PackQuality> read_pack_quality(const std::filesystem::path& pack, uint64_t identity);

/// "1%" or "0.01". kInvalidArgument: neither, or below 0, or not finite.
Result<double> parse_loss(std::string_view text);
/// "+0.35 %".
std::string loss_text(double loss);
/// "0.35 %".
std::string percent_text(double share);

}  // namespace moestro::cli
