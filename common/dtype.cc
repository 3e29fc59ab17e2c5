#include "common/dtype.h"

#include <string>

namespace moestro {

std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "f32";
    case DType::kBF16: return "bf16";
    case DType::kF16: return "f16";
    case DType::kInt8: return "int8";
    case DType::kInt4: return "int4";
    case DType::kBF16In12: return "bf16-12bit";
  }
  return "unknown";
}

Result<DType> parse_dtype(std::string_view name) {
  for (DType d : {DType::kF32, DType::kBF16, DType::kF16, DType::kInt8, DType::kInt4, DType::kBF16In12})
    if (dtype_name(d) == name) return d;
  return unsupported("precision '" + std::string(name) + "' is not one of f32, bf16, f16, int8, int4, bf16-12bit");
}

}  // namespace moestro
