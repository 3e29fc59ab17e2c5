// A library in place of cuBLASLt, which computes on the CPU. What it is, the build says: FAKE_REFUSES: it has no kernel
// for anything; FAKE_STRANGER: it is another library.

#include <bit>
#include <cstdint>
#include <cstring>

#ifdef FAKE_STRANGER
extern "C" int32_t something_else() {
  return 1;
}
#else
namespace {

struct Layout {
  int32_t type;
  uint64_t rows, columns;
  int64_t stride;
};
struct Product {
  int32_t transposes = 0;
  uint32_t epilogue = 1;
  const float* bias = nullptr;
};
struct Preference {
  uint64_t workspace_bytes = 0;
};
struct Heuristic {
  uint64_t algorithm[8];
  size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};

int choices = 0, products = 0, made = 0;
float value(uint16_t bf16) {
  return std::bit_cast<float>(static_cast<uint32_t>(bf16) << 16);
}

}  // namespace

/// For tests: how often an algorithm was chosen, how many products it computed, and objects that exist.
extern "C" int fake_choices() {
  return choices;
}
extern "C" int fake_products() {
  return products;
}
extern "C" int fake_objects() {
  return made;
}

extern "C" int cublasLtCreate(void** handle) {
  return *handle = &made, ++made, 0;
}
extern "C" int cublasLtDestroy(void*) {
  return --made, 0;
}
extern "C" size_t cublasLtGetVersion() {
  return 120805;
}
extern "C" int cublasLtMatmulDescCreate(void** product, int compute, int scale) {
  *product = new Product;
  ++made;
  return compute == 68 && scale == 0 ? 0 : 7;
}
extern "C" int cublasLtMatmulDescSetAttribute(void* of, int attribute, const void* value, size_t bytes) {
  auto& product = *static_cast<Product*>(of);
  if (attribute == 3 && bytes == 4) std::memcpy(&product.transposes, value, bytes);
  else if (attribute == 7 && bytes == 4) std::memcpy(&product.epilogue, value, bytes);
  else if (attribute == 8 && bytes == 8) std::memcpy(&product.bias, value, bytes);
  else if (attribute != 26) return 7;
  return 0;
}
extern "C" int cublasLtMatmulDescDestroy(void* product) {
  delete static_cast<Product*>(product);
  return --made, 0;
}
extern "C" int cublasLtMatrixLayoutCreate(void** layout, int type, uint64_t rows, uint64_t columns, int64_t stride) {
  *layout = new Layout{type, rows, columns, stride};
  return ++made, 0;
}
extern "C" int cublasLtMatrixLayoutDestroy(void* layout) {
  delete static_cast<Layout*>(layout);
  return --made, 0;
}
extern "C" int cublasLtMatmulPreferenceCreate(void** preference) {
  *preference = new Preference;
  return ++made, 0;
}
extern "C" int cublasLtMatmulPreferenceSetAttribute(void* of, int attribute, const void* value, size_t bytes) {
  if (attribute == 1 && bytes == 8) std::memcpy(&static_cast<Preference*>(of)->workspace_bytes, value, bytes);
  else if (attribute < 5 || attribute > 8 || bytes != 4) return 7;
  return 0;
}
extern "C" int cublasLtMatmulPreferenceDestroy(void* preference) {
  delete static_cast<Preference*>(preference);
  return --made, 0;
}
extern "C" int cublasLtMatmulAlgoGetHeuristic(void*, void*, void* a, void* b, void*, void* d, void* preference, int,
                                              Heuristic* found, int* count) {
#ifdef FAKE_REFUSES
  return *count = 0, 15;
#endif
  const auto& w = *static_cast<Layout*>(a);
  *found = {};
  found->algorithm[3] = w.columns;
  found->workspace_bytes = static_cast<Preference*>(preference)->workspace_bytes;
  *count = w.type == 14 && static_cast<Layout*>(b)->type == 14 && static_cast<Layout*>(d)->type == 0;
  ++choices;
  return 0;
}
/// Columns first: d [rows, n] = a^T [rows, cols] * b [cols, n] + bias [rows].
extern "C" int cublasLtMatmul(void*, void* of, const void* alpha, const void* a, void* a_layout, const void* b,
                              void* b_layout, const void* beta, const void*, void*, void* d, void* d_layout,
                              const uint64_t* algorithm, void*, size_t, void*) {
  const auto& product = *static_cast<Product*>(of);
  const Layout &w = *static_cast<Layout*>(a_layout), &x = *static_cast<Layout*>(b_layout),
               &y = *static_cast<Layout*>(d_layout);
  float one = 0, zero = 1;
  std::memcpy(&one, alpha, sizeof one);
  std::memcpy(&zero, beta, sizeof zero);
  if (product.transposes != 1 || one != 1 || zero != 0 || algorithm[3] != w.columns || w.rows != x.rows ||
      y.rows != w.columns || y.columns != x.columns)
    return 7;
  if (w.rows == 968) return 15;  // for tests: a product that is refused when it is queued
  const auto *left = static_cast<const uint16_t*>(a), *right = static_cast<const uint16_t*>(b);
  for (uint64_t t = 0; t < y.columns; ++t)
    for (uint64_t r = 0; r < y.rows; ++r) {
      float sum = product.epilogue == 4 ? product.bias[r] : 0.0f;
      for (uint64_t k = 0; k < w.rows; ++k)
        sum += value(left[r * static_cast<uint64_t>(w.stride) + k]) *
               value(right[t * static_cast<uint64_t>(x.stride) + k]);
      static_cast<float*>(d)[t * static_cast<uint64_t>(y.stride) + r] = sum;
    }
  return ++products, 0;
}
#endif
