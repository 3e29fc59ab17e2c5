#include <dlfcn.h>

#include "kernels/cuda/dense_library.h"
#include "kernels/cuda/rounded_rows.h"

namespace moestro::kernels::cuda {
namespace {

// From cublasLt.h, cublas_api.h and library_types.h; they are the same in CUDA 12 and 13.
using Status = int;
constexpr int32_t kTranspose = 1, kF32 = 0, kBF16 = 14, kComputeF32 = 68;
constexpr int kTransposeA = 3, kEpilogue = 7, kBiasPointer = 8, kBiasType = 26;  // of a product
constexpr int kWorkspaceMax = 1, kAlignmentA = 5, kAlignmentD = 8;               // of preferences
constexpr uint32_t kWithBias = 4;
constexpr uint32_t kAlignment = 16;
struct Algorithm {
  uint64_t data[8];
};
struct Heuristic {
  Algorithm algorithm;
  size_t workspace_bytes;
  Status state;
  float waves;
  int reserved[4];
};

/// For fewer tokens the kernels of few_tokens.h and many_tokens.h are as fast.
constexpr int64_t kTokensMin = 65;

bool is_aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % kAlignment == 0; }

std::unique_ptr<DenseLibrary>& library() {
  static std::unique_ptr<DenseLibrary> the;
  return the;
}

}  // namespace

struct DenseLibrary::Functions {
  Status (*create)(void** handle);
  Status (*destroy)(void* handle);
  size_t (*version)();
  Status (*make_product)(void** product, int32_t compute, int32_t scale_type);
  Status (*set_product)(void* product, int attribute, const void* value, size_t bytes);
  Status (*end_product)(void* product);
  Status (*make_layout)(void** layout, int32_t type, uint64_t rows, uint64_t columns, int64_t stride);
  Status (*end_layout)(void* layout);
  Status (*make_preference)(void** preference);
  Status (*set_preference)(void* preference, int attribute, const void* value, size_t bytes);
  Status (*end_preference)(void* preference);
  Status (*choose)(void* handle, void* product, void* a, void* b, void* c, void* d, void* preference, int wanted,
                   Heuristic* found, int* count);
  Status (*multiply)(void* handle, void* product, const void* alpha, const void* a, void* a_layout, const void* b,
                     void* b_layout, const void* beta, const void* c, void* c_layout, void* d, void* d_layout,
                     const Algorithm* algorithm, void* workspace, size_t workspace_bytes, void* stream);

  bool find(void* of) {
    bool all = true;
    const auto one = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(::dlsym(of, name));
      all = all && function != nullptr;
    };
    one(create, "cublasLtCreate"), one(destroy, "cublasLtDestroy"), one(version, "cublasLtGetVersion");
    one(make_product, "cublasLtMatmulDescCreate"), one(set_product, "cublasLtMatmulDescSetAttribute");
    one(end_product, "cublasLtMatmulDescDestroy");
    one(make_layout, "cublasLtMatrixLayoutCreate"), one(end_layout, "cublasLtMatrixLayoutDestroy");
    one(make_preference, "cublasLtMatmulPreferenceCreate");
    one(set_preference, "cublasLtMatmulPreferenceSetAttribute");
    one(end_preference, "cublasLtMatmulPreferenceDestroy");
    one(choose, "cublasLtMatmulAlgoGetHeuristic"), one(multiply, "cublasLtMatmul");
    return all;
  }
};

/// A kind of product with the library's own descriptions, and the algorithm for it.
struct DenseLibrary::Plan {
  explicit Plan(const Functions& f) : functions(f) {}
  ~Plan() {
    if (product != nullptr) (void)functions.end_product(product);
    for (void* layout : {a, b, d})
      if (layout != nullptr) (void)functions.end_layout(layout);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  /// Columns first there: y^T [rows, n] = w [rows, cols] * x^T [cols, n].
  bool describe(const DenseProduct& p) {
    const auto rows = static_cast<uint64_t>(p.rows), cols = static_cast<uint64_t>(p.cols),
               n = static_cast<uint64_t>(p.n);
    if (functions.make_product(&product, kComputeF32, kF32) != 0 ||
        functions.set_product(product, kTransposeA, &kTranspose, sizeof kTranspose) != 0 ||
        functions.make_layout(&a, kBF16, cols, rows, p.cols) != 0 ||
        functions.make_layout(&b, kBF16, cols, n, p.x_stride) != 0 ||
        functions.make_layout(&d, kF32, rows, n, p.rows) != 0)
      return false;
    return p.bias == nullptr ||
           (functions.set_product(product, kEpilogue, &kWithBias, sizeof kWithBias) == 0 &&
            functions.set_product(product, kBiasType, &kF32, sizeof kF32) == 0 && set_bias(p.bias));
  }
  bool set_bias(const float* bias) { return functions.set_product(product, kBiasPointer, &bias, sizeof bias) == 0; }

  /// The library's first choice.
  bool choose(void* handle, uint64_t workspace_bytes) {
    void* preference = nullptr;
    if (functions.make_preference(&preference) != 0) return false;
    bool fine = functions.set_preference(preference, kWorkspaceMax, &workspace_bytes, sizeof workspace_bytes) == 0;
    for (int of = kAlignmentA; of <= kAlignmentD; ++of)
      fine = fine && functions.set_preference(preference, of, &kAlignment, sizeof kAlignment) == 0;
    Heuristic found{};
    int count = 0;
    fine = fine && functions.choose(handle, product, a, b, d, d, preference, 1, &found, &count) == 0 && count == 1 &&
           found.state == 0 && found.workspace_bytes <= workspace_bytes;
    (void)functions.end_preference(preference);
    algorithm = found.algorithm;
    return fine;
  }

  const Functions& functions;
  void *product = nullptr, *a = nullptr, *b = nullptr, *d = nullptr;
  Algorithm algorithm{};
};

DenseLibrary::DenseLibrary(std::unique_ptr<Functions> functions) : functions_(std::move(functions)) {}

DenseLibrary::~DenseLibrary() {
  plans_.clear();
  if (handle_ != nullptr) (void)functions_->destroy(handle_);
}

std::unique_ptr<DenseLibrary> DenseLibrary::load(const std::vector<std::string>& names, std::string& text) {
  text.clear();
  for (const std::string& name : names) {
    const auto refuse = [&](const std::string& why) { text += (text.empty() ? "" : "; ") + why; };
    void* file = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed: CUDA does not survive it
    if (file == nullptr) {
      const char* error = ::dlerror();
      refuse(error == nullptr ? name : error);
      continue;
    }
    auto functions = std::make_unique<Functions>();
    if (!functions->find(file)) {
      refuse(name + " is not cuBLASLt of CUDA 12 or later");
      continue;
    }
    std::unique_ptr<DenseLibrary> made(new DenseLibrary(std::move(functions)));
    if (const Status status = made->functions_->create(&made->handle_); status != 0) {
      refuse(name + ": its status " + std::to_string(status));
      continue;
    }
    if (made->make_plan({nullptr, 4096, 256, 4096, 4096, nullptr, nullptr, nullptr, nullptr, 0}) == nullptr) {
      refuse(name + " has no kernel for this device");
      continue;
    }
    text = name + ", version " + std::to_string(made->functions_->version());
    return made;
  }
  return nullptr;
}

DenseLibrary::Shape DenseLibrary::shape_of(const DenseProduct& p) {
  return {p.n, p.rows, p.cols, p.x_stride, p.bias != nullptr, static_cast<int64_t>(p.workspace_bytes)};
}

std::unique_ptr<DenseLibrary::Plan> DenseLibrary::make_plan(const DenseProduct& product) const {
  auto plan = std::make_unique<Plan>(*functions_);
  const bool fine = plan->describe(product) && plan->choose(handle_, product.workspace_bytes);
  return fine ? std::move(plan) : nullptr;
}

bool DenseLibrary::takes(const DenseProduct& product) {
  const Shape shape = shape_of(product);
  auto found = plans_.find(shape);
  if (found == plans_.end()) {
    if (plans_.size() == kPlansMax) plans_.clear();
    found = plans_.emplace(shape, make_plan(product)).first;
  }
  return found->second != nullptr;
}

bool DenseLibrary::multiply(const DenseProduct& p, MoestroCudaStream stream) {
  if (!takes(p)) return false;
  std::unique_ptr<Plan>& plan = plans_.at(shape_of(p));
  const float one = 1.0f, zero = 0.0f;
  const bool fine = (p.bias == nullptr || plan->set_bias(p.bias)) &&
                    functions_->multiply(handle_, plan->product, &one, p.w, plan->a, p.x, plan->b, &zero, p.y, plan->d,
                                         p.y, plan->d, &plan->algorithm, p.workspace, p.workspace_bytes, stream) == 0;
  if (!fine) plan = nullptr;
  return fine;
}

void set_dense_library(std::unique_ptr<DenseLibrary> made) { library() = std::move(made); }

namespace {
__global__ void __launch_bounds__(kRoundThreads) round_kernel(MoestroCudaMatmul a) {
  round_rows(a.x, a.n, a.cols, false, blockIdx.x, a.rounded_x);
}
}  // namespace

MoestroCudaResult matmul_by_library(const MoestroCudaMatmul& a, MoestroCudaStream stream) {
  if (!library() || a.dtype != MOESTRO_CUDA_BF16 || a.n < kTokensMin || a.cols % 8 != 0) return MOESTRO_CUDA_REFUSED;
  if (!is_aligned(a.weight) || !is_aligned(a.y) || !is_aligned(a.bias) || !is_aligned(a.partial))
    return MOESTRO_CUDA_REFUSED;
  const int64_t blocks = rounding_blocks(a.n, a.cols);
  const DenseProduct product{a.rounded_x, rounded_columns(a.cols),
                             a.n,         a.rows,
                             a.cols,      static_cast<const uint16_t*>(a.weight),
                             a.bias,      a.y,
                             a.partial,   static_cast<uint64_t>(a.partial_bytes)};
  if (blocks * kRoundThreads > UINT32_MAX || !library()->takes(product)) return MOESTRO_CUDA_REFUSED;
  const MoestroCudaResult result =
      launch(round_kernel, dim3(static_cast<unsigned>(blocks)), dim3(kRoundThreads), 0, stream, a);
  if (result != 0) return result;
  // If it is refused, what has been rounded is rounded again, and nothing else was queued.
  return library()->multiply(product, stream) ? 0 : MOESTRO_CUDA_REFUSED;
}

}  // namespace moestro::kernels::cuda
