#pragma once
// The header of a GGUF file, version 3: "GGUF", u32 version, u64 count of tensors, u64 count of metadata entries; the
// entries (key, u32 kind, value); the tensors (name, dimensions, type, offset); padding; the tensors' bytes. All of it
// little-endian. Strings are a u64 length and UTF-8.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/status.h"
#include "store/pack/gguf_types.h"

namespace moestro::store {

/// Numbers are widened; whole ones above 2^63 are refused when the file is read.
using GgufValue = std::variant<int64_t, double, bool, std::string, std::vector<int64_t>, std::vector<double>,
                               std::vector<bool>, std::vector<std::string>>;

struct GgufTensor {
  std::string name;
  const GgufType* type = nullptr;
  std::vector<int64_t> shape;  ///< rows first: the reverse of the file's order
  uint64_t offset = 0;         ///< in the file
  uint64_t bytes = 0;
};

/// Metadata by key. The getters give kInvalidArgument, which names the key, for a value of another kind.
class GgufMetadata {
 public:
  std::map<std::string, GgufValue, std::less<>> values;

  bool has(std::string_view key) const { return values.contains(key); }
  Result<std::optional<int64_t>> integer(std::string_view key) const;
  Result<std::optional<double>> number(std::string_view key) const;  ///< a whole one, too
  Result<std::optional<bool>> flag(std::string_view key) const;
  Result<std::optional<std::string>> text(std::string_view key) const;
  /// Null if absent.
  Result<const std::vector<std::string>*> texts(std::string_view key) const;
  Result<const std::vector<int64_t>*> integers(std::string_view key) const;
  Result<const std::vector<double>*> numbers(std::string_view key) const;
};

struct GgufHeader {
  GgufMetadata metadata;
  std::vector<GgufTensor> tensors;
};

struct GgufParse {
  GgufHeader header;
  bool needs_more = false;  ///< `bytes` ended before the header did; the file goes on
};

/// `bytes` are the first ones of a file of `file_size`. Checks everything: counts and lengths within the file, unique
/// names, known types, dimensions of whole blocks, alignment, no overlap, no hole, nothing beyond the end. `where`
/// names the file in errors.
Result<GgufParse> parse_gguf_header(std::span<const std::byte> bytes, uint64_t file_size, const std::string& where);

}  // namespace moestro::store
