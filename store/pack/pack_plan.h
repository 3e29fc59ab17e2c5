#pragma once
// The place of every byte of a pack, decided before the first byte is written: the manifest without checksums. The same
// checkpoint and options always give the same plan, so an interrupted run can resume.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/expert_layout.h"
#include "store/pack/checkpoint.h"
#include "store/pack/manifest.h"

namespace moestro::store {

struct PackPlanOptions {
  std::string model_name;
  std::vector<DType> experts;  ///< at least one; kMixed: every matrix as the checkpoint has it
  std::optional<DType> dense = std::nullopt;  ///< nullopt: every tensor as the checkpoint has it
  /// If `dense` is quantised: for embedding, router and vectors; otherwise the same as `dense`. nullopt: every tensor
  /// as the checkpoint has it.
  std::optional<DType> dense_rest = std::nullopt;
  uint64_t file_bytes_max = uint64_t{4} << 30;  ///< expert files are split here; a blob is never split
  /// The share of the bytes for each directory (shards.h). The slices of every blob are distributed, so that all drives
  /// read it at once.
  std::vector<uint32_t> shares = {1};
};

/// Where a blob comes from. Tensor i of the manifest is dense tensor i of the model description.
struct BlobOrigin {
  int64_t expert = -1;            ///< in ModelDescription::experts, or -1: dense
  std::vector<uint32_t> tensors;  ///< of a dense blob, in order
};

struct PackPlan {
  Manifest manifest;                 ///< checksums still 0
  std::vector<BlobOrigin> origins;   ///< one per blob
  std::vector<std::vector<ExpertLayout>> layouts;  ///< per expert precision, by MoE layer
  std::vector<uint64_t> file_bytes;  ///< one per file
  uint64_t total_bytes = 0;

  const ExpertLayout& layout(const Blob& expert) const;
};

PackPlan plan_pack(const Checkpoint& checkpoint, const PackPlanOptions& options);

}  // namespace moestro::store
