#include "store/pack/gguf_types.h"

#include <algorithm>
#include <iterator>

namespace moestro::store {
namespace {

// Numbers that are missing have been withdrawn from the format.
constexpr GgufType kTypes[] = {
    {0, "F32", 1, 4, DType::kF32},
    {1, "F16", 1, 2, DType::kF16},
    {2, "Q4_0", 32, 18, DType::kQ4_0},
    {3, "Q4_1", 32, 20, DType::kQ4_1},
    {6, "Q5_0", 32, 22, DType::kQ5_0},
    {7, "Q5_1", 32, 24, DType::kQ5_1},
    {8, "Q8_0", 32, 34, DType::kQ8_0},
    {9, "Q8_1", 32, 36},
    {10, "Q2_K", 256, 84, DType::kQ2K},
    {11, "Q3_K", 256, 110, DType::kQ3K},
    {12, "Q4_K", 256, 144, DType::kQ4K},
    {13, "Q5_K", 256, 176, DType::kQ5K},
    {14, "Q6_K", 256, 210, DType::kQ6K},
    {15, "Q8_K", 256, 292},
    {16, "IQ2_XXS", 256, 66},
    {17, "IQ2_XS", 256, 74},
    {18, "IQ3_XXS", 256, 98},
    {19, "IQ1_S", 256, 50},
    {20, "IQ4_NL", 32, 18, DType::kIQ4NL},
    {21, "IQ3_S", 256, 110},
    {22, "IQ2_S", 256, 82},
    {23, "IQ4_XS", 256, 136, DType::kIQ4XS},
    {24, "I8", 1, 1},
    {25, "I16", 1, 2},
    {26, "I32", 1, 4},
    {27, "I64", 1, 8},
    {28, "F64", 1, 8},
    {29, "IQ1_M", 256, 56},
    {30, "BF16", 1, 2, DType::kBF16},
    {34, "TQ1_0", 256, 54},
    {35, "TQ2_0", 256, 66},
    {39, "MXFP4", 32, 17, DType::kMXFP4},
    {40, "NVFP4", 64, 36},
    {41, "Q1_0", 128, 18},
};

constexpr bool sizes_agree() {
  return std::ranges::all_of(kTypes, [](const GgufType& t) {
    return !t.dtype || (block_shape(*t.dtype).columns == t.columns && block_shape(*t.dtype).bytes == t.bytes);
  });
}
static_assert(sizes_agree());

}  // namespace

const GgufType* gguf_type(uint32_t number) {
  const auto* found = std::ranges::find(kTypes, number, &GgufType::number);
  return found == std::end(kTypes) ? nullptr : found;
}

std::string usable_gguf_types() {
  std::string names;
  for (const GgufType& t : kTypes)
    if (t.dtype) names += (names.empty() ? "" : ", ") + std::string(t.name);
  return names;
}

}  // namespace moestro::store
