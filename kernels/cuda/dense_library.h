#pragma once
// cuBLASLt for dense products of many tokens with weights of bf16, where it is installed. It is loaded at run time: no
// build needs it, and without it the plugin uses kernels of its own. It chooses its kernels by the shape of a product,
// so sums depend on the number of tokens: never used for --deterministic.

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/plugin/op_abi.h"

namespace moestro::kernels::cuda {

/// y[n, rows] = x[n, cols] * w^T + bias. Rows of x are x_stride apart.
struct DenseProduct {
  const uint16_t* x;
  int64_t x_stride, n, rows, cols;
  const uint16_t* w;
  const float* bias;  ///< may be null
  float* y;
  void* workspace;
  uint64_t workspace_bytes;
};

/// Of the device that is selected when it is loaded. One thread.
class DenseLibrary {
 public:
  /// The first of `names` that can be loaded and has a kernel for this device; null: none, and `text` says why not.
  /// Otherwise `text` names the library.
  static std::unique_ptr<DenseLibrary> load(const std::vector<std::string>& names, std::string& text);
  ~DenseLibrary();
  DenseLibrary(const DenseLibrary&) = delete;
  DenseLibrary& operator=(const DenseLibrary&) = delete;

  /// Whether it computes such products, by its heuristic. The choice is kept, so that a product in a CUDA graph and one
  /// outside are the same; all are forgotten when there are kPlansMax.
  bool takes(const DenseProduct& product);
  /// Queues a product that it takes. False: it was refused, and its shape is not taken again.
  bool multiply(const DenseProduct& product, MoestroCudaStream stream);

 private:
  static constexpr size_t kPlansMax = 512;
  using Shape = std::array<int64_t, 6>;
  struct Functions;
  struct Plan;

  explicit DenseLibrary(std::unique_ptr<Functions> functions);
  static Shape shape_of(const DenseProduct& product);
  std::unique_ptr<Plan> make_plan(const DenseProduct& product) const;

  std::unique_ptr<Functions> functions_;
  void* handle_ = nullptr;
  std::map<Shape, std::unique_ptr<Plan>> plans_;  ///< null: it is refused
};

/// What matmul() uses; null: only kernels of its own.
void set_dense_library(std::unique_ptr<DenseLibrary> library);
/// matmul() by it. MOESTRO_CUDA_REFUSED: not one of its products.
MoestroCudaResult matmul_by_library(const MoestroCudaMatmul& arguments, MoestroCudaStream stream);

}  // namespace moestro::kernels::cuda
