#pragma once
// A model as GGUF: one file, or the parts NAME-00001-of-0000N.gguf of a split one.

#include <filesystem>
#include <string>
#include <vector>

#include "store/pack/file.h"
#include "store/pack/gguf_header.h"

namespace moestro::store {

struct GgufModel {
  std::vector<File> files;
  std::vector<uint32_t> file_of;  ///< by tensor of `header`: index in `files`
  GgufHeader header;  ///< metadata of the first file, tensors of all
  std::string name;   ///< of the file, without its number and ".gguf"

  /// Opens all parts. Errors name the file: what parse_gguf_header finds, a part that is missing or belongs to another
  /// model, a tensor that is in two parts.
  static Result<GgufModel> open(const std::filesystem::path& file);
};

/// The file to open if `source` is one of GGUF, or a directory that holds one model as GGUF and no safetensors. Empty
/// if it is neither. kInvalidArgument for a directory with several.
Result<std::filesystem::path> find_gguf(const std::filesystem::path& source);

}  // namespace moestro::store
