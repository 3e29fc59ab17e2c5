#pragma once
// The --mixed that a plan takes, by what was measured of the pack (pack_quality.h).

#include <functional>
#include <string>
#include <vector>

#include "common/dtype.h"
#include "services/cli/plan/pack_quality.h"

namespace moestro::cli {

struct MixedChoice {
  std::string mixed;     ///< for `moestro up --mixed`
  double loss = 0;       ///< of perplexity, with the fewest slots or wherever it was worst
  double low_share = 0, skipped_share = 0;  ///< with the fewest slots
  double saved = 0;      ///< of the bytes of all choices there, what low copies and skipping spare
};

/// Bytes of an expert in a precision; 0: the pack has none.
using ExpertBytes = std::function<uint64_t(DType)>;

/// `asked`: "auto", which takes what spares most among all settings that were measured, or one of them. Neither loses
/// more than `loss_max`. Only measurements with full copies in the precision `full` count. kInvalidArgument says which
/// setting would.
Result<MixedChoice> choose_mixed(const PackQuality& quality, const std::string& asked, double loss_max, DType full,
                                 const ExpertBytes& bytes);

}  // namespace moestro::cli
