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
    case DType::kQ4_0: return "q4_0";
    case DType::kQ5_0: return "q5_0";
    case DType::kQ8_0: return "q8_0";
    case DType::kQ2K: return "q2_k";
    case DType::kQ3K: return "q3_k";
    case DType::kQ4K: return "q4_k";
    case DType::kQ5K: return "q5_k";
    case DType::kQ6K: return "q6_k";
    case DType::kIQ4NL: return "iq4_nl";
    case DType::kMXFP4: return "mxfp4";
    case DType::kMixed: return "mixed";
    case DType::kQ4_1: return "q4_1";
    case DType::kQ5_1: return "q5_1";
    case DType::kIQ4XS: return "iq4_xs";
    case DType::kFP8: return "fp8";
    case DType::kFP8G32: return "fp8_g32";
    case DType::kInt4G128: return "int4_g128";
    case DType::kInt4G64: return "int4_g64";
    case DType::kInt4G32: return "int4_g32";
    case DType::kNVFP4: return "nvfp4";
    case DType::kInt2: return "int2";
  }
  return "unknown";
}

Result<DType> parse_dtype(std::string_view name) {
  std::string names;
  for (size_t i = 0; i < kDTypes; ++i) {
    const std::string_view known = dtype_name(static_cast<DType>(i));
    if (known == name) return static_cast<DType>(i);
    names += (names.empty() ? "" : ", ") + std::string(known);
  }
  return unsupported("precision '" + std::string(name) + "' is not one of " + names);
}

}  // namespace moestro
