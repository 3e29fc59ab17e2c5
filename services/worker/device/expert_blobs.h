#pragma once
// The blobs of a pack's experts by layer and expert, at one precision.

#include <cstdint>
#include <vector>

#include "common/dtype.h"
#include "store/pack/manifest.h"

namespace moestro::device {

struct ExpertBlobs {
  int32_t layers = 0;   ///< MoE layers
  int32_t experts = 0;  ///< of a layer
  uint64_t bytes = 0;   ///< of one
  std::vector<uint32_t> blob_of;  ///< [layer * experts + expert] -> blob of the manifest

  /// kInvalidArgument: the pack has no experts of this precision.
  static Result<ExpertBlobs> of(const store::Manifest& manifest, DType precision);
};

}  // namespace moestro::device
