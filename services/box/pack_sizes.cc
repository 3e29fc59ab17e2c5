#include "services/box/pack_sizes.h"

#include <algorithm>

namespace moestro::box {
namespace {

/// Of the matrices of attention, which are in every layer.
DType dense_of(const store::Manifest& manifest) {
  for (const store::PackedTensor& t : manifest.tensors)
    if (t.name.ends_with(".attn.o.weight")) return t.dtype;
  return DType::kBF16;
}

}  // namespace

Result<planner::ModelSizes> pack_sizes(const store::Manifest& manifest, const model::ModelDescription& description,
                                       DType experts, DType kv) {
  const DType computed = experts == DType::kMixed ? manifest.expert_formats.front().gate : experts;
  MOESTRO_ASSIGN_OR_RETURN(planner::ModelSizes sizes,
                           planner::model_sizes(description, {computed, dense_of(manifest), kv}));
  sizes.dense_bytes = sizes.expert_bytes = 0;
  sizes.dense_layer_bytes.clear();
  for (const uint32_t blob : store::dense_layers(manifest))
    sizes.dense_layer_bytes.push_back(manifest.blobs[blob].length);
  for (const store::Blob& blob : manifest.blobs)
    if (blob.kind == store::BlobKind::kDense)
      sizes.dense_bytes += blob.length;
    else if (blob.precision == experts)
      sizes.expert_bytes = std::max(sizes.expert_bytes, blob.length);
  return sizes;
}

}  // namespace moestro::box
