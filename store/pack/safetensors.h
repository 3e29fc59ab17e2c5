#pragma once
// Reads the table of contents of a safetensors file: 8 bytes of header length, a JSON header, then the tensors' bytes
// back to back.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/dtype.h"
#include "common/status.h"
#include "store/pack/file.h"

namespace moestro::store {

class QuantisedMatrix;

/// A tensor in a checkpoint's file.
struct SourceTensor {
  std::string name;
  std::string format;          ///< as in the file: "BF16", "I64", ...
  std::optional<DType> dtype;  ///< absent if weights cannot be read from `format`
  std::vector<int64_t> shape;
  uint64_t offset = 0;  ///< in the file
  uint64_t bytes = 0;
  uint32_t file = 0;  ///< index in Checkpoint::files
  /// A matrix that several tensors are (quantised_matrix.h): offset and file mean nothing.
  std::shared_ptr<const QuantisedMatrix> matrix = nullptr;
};

/// "[2, 3]"
std::string shape_text(const std::vector<int64_t>& shape);

/// `header` is the JSON alone, the tensors' bytes are [data_start, file_size). Checks everything: unique names, known
/// formats, sizes that match the shapes, no overlap, no hole, nothing beyond the end. `where` names the file in errors.
Result<std::vector<SourceTensor>> parse_safetensors_header(std::string_view header, uint64_t data_start,
                                                           uint64_t file_size, const std::string& where);

Result<std::vector<SourceTensor>> read_safetensors_header(const File& file);

}  // namespace moestro::store
