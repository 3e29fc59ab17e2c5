#include "services/worker/device/expert_blobs.h"

#include <algorithm>

namespace moestro::device {

Result<ExpertBlobs> ExpertBlobs::of(const store::Manifest& manifest, DType precision) {
  ExpertBlobs found;
  for (const store::Blob& blob : manifest.blobs) {
    if (blob.kind != store::BlobKind::kExpert || blob.precision != precision) continue;
    found.layers = std::max(found.layers, static_cast<int32_t>(blob.moe_layer.value) + 1);
    found.experts = std::max(found.experts, static_cast<int32_t>(blob.expert.value) + 1);
    found.bytes = std::max(found.bytes, blob.length);
  }
  if (found.bytes == 0)
    return invalid_argument("the pack of '" + manifest.model_name + "' has no experts as " +
                            std::string(dtype_name(precision)) + "; `moestro pack --experts` adds them to a new pack");
  for (int32_t layer = 0; layer < found.layers; ++layer)
    for (int32_t expert = 0; expert < found.experts; ++expert) {
      MOESTRO_ASSIGN_OR_RETURN(const uint32_t blob,
                               manifest.expert_blob(MoeLayerId(static_cast<uint32_t>(layer)),
                                                    ExpertId(static_cast<uint32_t>(expert)), precision));
      found.blob_of.push_back(blob);
    }
  return found;
}

}  // namespace moestro::device
