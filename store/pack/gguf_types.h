#pragma once
// The number formats of GGUF files, by their numbers.

#include <cstdint>
#include <optional>
#include <string>

#include "common/dtype.h"

namespace moestro::store {

struct GgufType {
  uint32_t number = 0;
  const char* name = "";
  int64_t columns = 1, bytes = 0;  ///< of a block
  std::optional<DType> dtype = std::nullopt;  ///< absent: nothing computes with it
};

/// Null if no such type is known.
const GgufType* gguf_type(uint32_t number);

/// "F32, F16, BF16, ...": those with a dtype.
std::string usable_gguf_types();

}  // namespace moestro::store
