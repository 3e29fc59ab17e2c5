#include "store/pack/manifest.h"

#include <algorithm>
#include <tuple>

#include "common/model/tensor_names.h"
#include "store/pack/manifest_check.h"

namespace moestro::store {

// Blobs stand in one order: dense ones, then experts by precision (as listed), MoE layer and number. check_manifest
// sees to it.
Result<uint32_t> Manifest::expert_blob(MoeLayerId layer, ExpertId expert, DType precision) const {
  const auto listed = std::find(expert_precisions.begin(), expert_precisions.end(), precision);
  const auto wanted = std::tuple(BlobKind::kExpert, listed - expert_precisions.begin(), layer, expert);
  const auto key = [this](const Blob& b) {
    const auto rank =
        std::find(expert_precisions.begin(), expert_precisions.end(), b.precision) - expert_precisions.begin();
    return std::tuple(b.kind, b.kind == BlobKind::kExpert ? rank : 0, b.moe_layer, b.expert);
  };
  const auto it = std::lower_bound(blobs.begin(), blobs.end(), wanted,
                                   [&](const Blob& b, const auto& w) { return key(b) < w; });
  if (listed == expert_precisions.end() || it == blobs.end() || key(*it) != wanted)
    return not_found("no expert " + std::to_string(expert.value) + " of MoE layer " + std::to_string(layer.value) +
                     " as " + std::string(dtype_name(precision)) + " in pack '" + model_name + "'");
  return static_cast<uint32_t>(it - blobs.begin());
}

Result<std::vector<ExpertLayout>> Manifest::expert_layouts(const model::ExpertSpec& expert, DType precision) const {
  std::vector<ExpertFormats> formats = expert_formats;
  const size_t layers = blobs.empty() ? 1 : size_t{blobs.back().moe_layer.value} + 1;
  if (precision != DType::kMixed) formats.assign(layers, precision);
  std::vector<ExpertLayout> layouts;
  for (const ExpertFormats& f : formats) {
    if ((expert.is_gated() && expert.hidden % block_shape(f.gate).columns != 0) ||
        expert.hidden % block_shape(f.up).columns != 0 ||
        expert.ffn % block_shape(f.down).columns != 0)
      return corrupt("manifest: rows of the experts are not whole blocks of their format");
    layouts.emplace_back(expert.hidden, expert.ffn, f, expert.bias, expert.is_gated());
  }
  return layouts;
}

std::optional<uint64_t> tokenizer_of(const Manifest& manifest) {
  const auto found = std::ranges::find(manifest.copied, "tokenizer.json", &CopiedFile::name);
  return found == manifest.copied.end() ? std::nullopt : std::optional(found->xxh3_64);
}

std::vector<uint32_t> dense_layers(const Manifest& manifest) {
  std::vector<bool> of_layer(manifest.blobs.size(), false), of_none(manifest.blobs.size(), false);
  for (const PackedTensor& t : manifest.tensors) (model::layer_of_tensor(t.name) ? of_layer : of_none)[t.blob] = true;
  std::vector<uint32_t> layers;
  for (uint32_t blob = 0; blob < manifest.blobs.size(); ++blob)
    if (of_layer[blob] && !of_none[blob]) layers.push_back(blob);
  return layers;
}

std::string blob_label(const Manifest& manifest, uint32_t blob) {
  const Blob& b = manifest.blobs[blob];
  if (b.kind == BlobKind::kExpert)
    return "expert " + std::to_string(b.expert.value) + " of MoE layer " + std::to_string(b.moe_layer.value) + " (" +
           std::string(dtype_name(b.precision)) + ")";
  for (const PackedTensor& t : manifest.tensors)
    if (t.blob == blob) return "dense weights from " + t.name;
  return "dense weights, blob " + std::to_string(blob);
}

}  // namespace moestro::store
