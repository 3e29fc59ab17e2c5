#include "services/cli/plan/plan_quality.h"

#include "common/mixed_refusals.h"

namespace moestro::cli {
namespace {

constexpr double kLossMax = 0.1, kMixedLossMax = 0.01;

/// Bytes of an expert's blob, of those of the pack's first layer.
uint64_t blob_bytes(const store::Manifest& manifest, DType precision) {
  for (const store::Blob& blob : manifest.blobs)
    if (blob.kind != store::BlobKind::kDense && blob.precision == precision) return blob.length;
  return 0;
}

Status check_experts(const PlannedQuality& quality, DType experts, double loss_max) {
  if (!quality.experts_loss || *quality.experts_loss <= loss_max) return Status::ok();
  return invalid_argument("experts as " + std::string(dtype_name(experts)) + " raise perplexity by " +
                          percent_text(*quality.experts_loss) + " against " + quality.experts_against + ", as " +
                          kQualityFile + " of the pack says, more than --max-loss " + percent_text(loss_max) +
                          "; take another precision with --experts, or allow more with --max-loss");
}

}  // namespace

Result<PlannedQuality> plan_quality(const PlanOptions& o, const PlannedModel& model) {
  std::optional<double> given;
  if (!o.max_loss.empty()) {
    auto loss = parse_loss(o.max_loss);
    if (!loss.is_ok()) return loss.status().with_context("--max-loss");
    given = *loss;
  }
  const bool mixed = o.mixed != "off";
  if (!model.manifest) {
    if (mixed || given)
      return invalid_argument(std::string(mixed ? "--mixed" : "--max-loss") +
                              " goes by what was measured of a pack; give --model PACK");
    return PlannedQuality();
  }
  if (mixed && o.device.starts_with("cuda")) return mixed_on_a_gpu();
  if (mixed && o.schedule != "auto" && o.schedule != "layerwise")
    return invalid_argument("--mixed runs only with --schedule layerwise; leave out --schedule " + o.schedule);
  MOESTRO_ASSIGN_OR_RETURN(const PackQuality measured, read_pack_quality(o.pack, model.manifest->identity));
  PlannedQuality quality;
  if (const PackQuality::Precision* found = measured.find(dtype_name(model.experts)))
    quality.experts_loss = found->loss, quality.experts_against = found->against;
  MOESTRO_RETURN_IF_ERROR(check_experts(quality, model.experts, given.value_or(kLossMax)));
  if (!mixed) return quality;
  auto choice = choose_mixed(measured, o.mixed, given.value_or(kMixedLossMax), model.experts,
                             [&](DType precision) { return blob_bytes(*model.manifest, precision); });
  if (!choice.is_ok()) return choice.status().with_context("--mixed");
  quality.mixed = std::move(*choice);
  return quality;
}

}  // namespace moestro::cli
