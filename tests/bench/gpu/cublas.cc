#include "tests/bench/gpu/cublas.h"

#include <dlfcn.h>

#include <vector>

namespace moestro::bench {
namespace {

// From cublas_api.h and library_types.h; they have not changed since CUDA 11.
using Handle = void*;
constexpr int kNoTranspose = 0, kTranspose = 1, kBF16 = 14, kComputeF32 = 68, kDefaultAlgorithm = -1;
using Create = int (*)(Handle*);
using SetStream = int (*)(Handle, void* stream);
using GemmEx = int (*)(Handle, int transpose_a, int transpose_b, int m, int n, int k, const void* alpha, const void* a,
                       int a_type, int lda, const void* b, int b_type, int ldb, const void* beta, void* c, int c_type,
                       int ldc, int compute, int algorithm);

template <typename Function>
Function symbol(void* library, const char* name) {
  return reinterpret_cast<Function>(::dlsym(library, name));
}

Status checked(const char* call, int result) {
  return result == 0 ? Status::ok() : unavailable(std::string(call) + ": cuBLAS's status " + std::to_string(result));
}

}  // namespace

Result<Cublas> load_cublas(const std::string& path) {
  const std::vector<std::string> names =
      path.empty() ? std::vector<std::string>{"libcublas.so.13", "libcublas.so.12"} : std::vector<std::string>{path};
  std::string why;
  for (const std::string& name : names) {
    void* library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* error = ::dlerror();
      why += (why.empty() ? "" : "; ") + std::string(error == nullptr ? name : error);
      continue;
    }
    const auto create = symbol<Create>(library, "cublasCreate_v2");
    const auto set_stream = symbol<SetStream>(library, "cublasSetStream_v2");
    const auto gemm = symbol<GemmEx>(library, "cublasGemmEx");
    if (create == nullptr || set_stream == nullptr || gemm == nullptr) return unsupported(name + " is not cuBLAS");
    Handle handle = nullptr;
    MOESTRO_RETURN_IF_ERROR(checked("cublasCreate", create(&handle)));
    // Columns first there: y^T [rows, n] = weight [rows, cols] * x^T [cols, n].
    const auto product = [=](const void* x, const void* weight, void* y, int64_t n, int64_t rows, int64_t cols,
                             MoestroCudaStream stream) -> Status {
      const float one = 1.0f, zero = 0.0f;
      MOESTRO_RETURN_IF_ERROR(checked("cublasSetStream", set_stream(handle, stream)));
      return checked("cublasGemmEx", gemm(handle, kTranspose, kNoTranspose, static_cast<int>(rows), static_cast<int>(n),
                                          static_cast<int>(cols), &one, weight, kBF16, static_cast<int>(cols), x, kBF16,
                                          static_cast<int>(cols), &zero, y, kBF16, static_cast<int>(rows), kComputeF32,
                                          kDefaultAlgorithm));
    };
    return Cublas{product, "cuBLAS (" + name + ")"};
  }
  return unsupported(why);
}

}  // namespace moestro::bench
