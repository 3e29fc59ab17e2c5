#include "services/cli/plan/mixed_choice.h"

#include <algorithm>

#include "common/config/mixed_spec.h"

namespace moestro::cli {
namespace {

/// The measurements of one setting, with all numbers of slots.
Result<MixedChoice> summary_of(const PackQuality& quality, const std::string& mixed, DType full,
                               const ExpertBytes& bytes) {
  MOESTRO_ASSIGN_OR_RETURN(const auto options, config::parse_mixed(mixed));
  if (!options) return invalid_argument("'off' is no setting that was measured");
  const uint64_t low_bytes = bytes(options->low), full_bytes = bytes(full);
  if (low_bytes == 0)
    return invalid_argument("the pack has no experts as " + std::string(dtype_name(options->low)));
  if (low_bytes >= full_bytes)
    return invalid_argument("experts as " + std::string(dtype_name(options->low)) + " are not smaller than as " +
                            std::string(dtype_name(full)));
  MixedChoice choice{.mixed = mixed};
  const PackQuality::Mixed* fewest = nullptr;
  for (const PackQuality::Mixed& m : quality.mixed) {
    if (m.mixed != mixed || m.full != dtype_name(full)) continue;
    choice.loss = fewest == nullptr ? m.loss : std::max(choice.loss, m.loss);
    if (fewest == nullptr || m.slots < fewest->slots) fewest = &m;
  }
  if (fewest == nullptr)
    return invalid_argument("what it costs with experts as " + std::string(dtype_name(full)) +
                            " was not measured of this pack; scripts/measure_quality.py PACK --keep --precisions " +
                            std::string(dtype_name(full)) + " --mixed " + mixed + " does");
  choice.low_share = fewest->low_share, choice.skipped_share = fewest->skipped_share;
  choice.saved = fewest->skipped_share +
                 fewest->low_share * (1 - static_cast<double>(low_bytes) / static_cast<double>(full_bytes));
  return choice;
}

}  // namespace

Result<MixedChoice> choose_mixed(const PackQuality& quality, const std::string& asked, double loss_max, DType full,
                                 const ExpertBytes& bytes) {
  if (asked != "auto") {
    MOESTRO_ASSIGN_OR_RETURN(MixedChoice choice, summary_of(quality, asked, full, bytes));
    if (choice.loss <= loss_max) return choice;
    return invalid_argument(asked + " raises perplexity by " + percent_text(choice.loss) + ", more than --max-loss " +
                            percent_text(loss_max));
  }
  if (quality.mixed.empty())
    return invalid_argument("auto takes what was measured of the pack, and nothing was; scripts/measure_quality.py "
                            "PACK --keep --mixed LOW does");
  std::optional<MixedChoice> best, mildest;
  for (const PackQuality::Mixed& m : quality.mixed) {
    auto choice = summary_of(quality, m.mixed, full, bytes);
    if (!choice.is_ok()) continue;  // of a precision that another choice of --experts is
    if (!mildest || choice->loss < mildest->loss) mildest = *choice;
    if (choice->loss <= loss_max && (!best || choice->saved > best->saved)) best = std::move(*choice);
  }
  if (best) return std::move(*best);
  if (!mildest) return invalid_argument("auto: no setting that was measured goes with experts as " +
                                        std::string(dtype_name(full)));
  return invalid_argument("auto: every setting that was measured raises perplexity by more than " +
                          percent_text(loss_max) + "; the least is " + percent_text(mildest->loss) + ", with " +
                          mildest->mixed);
}

}  // namespace moestro::cli
