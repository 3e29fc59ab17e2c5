#pragma once
// Checks that all numbers in a pack are finite. A checksum cannot find bytes that were already wrong when it was
// computed.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/expert_layout.h"
#include "store/pack/manifest.h"

namespace moestro::store {

class BlobNumbers {
 public:
  /// Finds the places of values and group parameters from the pack's own config and tensors. `manifest`, as open_pack()
  /// gives it, must outlive this.
  static Result<BlobNumbers> of(const Manifest& manifest);

  /// Checks [offset, offset + bytes) of a blob; a piece begins and ends on 4 bytes. kCorrupt names the first value or
  /// group that is not finite. Padding is ignored. Any thread.
  Status check(uint32_t blob, uint64_t offset, std::span<const std::byte> bytes) const;

 private:
  enum class Kind { kValues, kGroupParameters, kBlocks, kExponentsOfCodes, kExponentsOfExceptions };
  struct Region {
    uint64_t offset = 0, length = 0;
    DType dtype = DType::kF32;
    Kind kind = Kind::kValues;
    const char* what = "";
  };
  explicit BlobNumbers(const Manifest& manifest) : manifest_(&manifest), dense_(manifest.blobs.size()) {}
  void add_tensor(const PackedTensor& tensor);
  static void add_matrix(std::vector<Region>& to, DType dtype, int64_t values, int64_t parameters, int64_t rows,
                         int64_t cols, const char* what);
  static std::vector<Region> expert_regions(const ExpertLayout& layout);
  const std::vector<Region>& regions_of(uint32_t blob) const;
  Status check_region(uint32_t blob, const Region& region, uint64_t at, std::span<const std::byte> bytes) const;

  const Manifest* manifest_;
  std::vector<std::vector<Region>> dense_;    ///< by blob
  /// By DType and MoE layer.
  std::vector<std::vector<std::vector<Region>>> experts_;
};

}  // namespace moestro::store
