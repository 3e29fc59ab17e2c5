// cuBLASLt for dense products of many tokens: how it is loaded, and which products it gets. A library that computes on
// the CPU stands for it.

#include "kernels/cuda/dense_library.h"

#include <dlfcn.h>
#include <gmock/gmock.h>

#include "kernels/cuda/emulator/device_region.h"
#include "tests/cuda/cuda_under_test.h"
#include "tests/kernels/op_test_data.h"

namespace moestro::kernels::test {
namespace {

using cuda::DenseLibrary;
using ::testing::HasSubstr;

int asked(const char* name) {
  void* library = ::dlopen(FAKE_CUBLAS_LT, RTLD_NOW | RTLD_NOLOAD);
  MOESTRO_CHECK(library != nullptr, "it has been loaded");
  const auto function = reinterpret_cast<int (*)()>(::dlsym(library, name));
  return function();
}

TEST(DenseLibrary, IsTheFirstThatCanBeUsed) {
  std::string text;
  EXPECT_EQ(DenseLibrary::load({"libmoestro_nowhere.so.7", FAKE_CUBLAS_LT_STRANGER, FAKE_CUBLAS_LT_REFUSING}, text),
            nullptr);
  EXPECT_THAT(text, HasSubstr("libmoestro_nowhere.so.7"));
  EXPECT_THAT(text, HasSubstr(" is not cuBLASLt of CUDA 12 or later; "));
  EXPECT_THAT(text, HasSubstr(" has no kernel for this device"));
  EXPECT_NE(DenseLibrary::load({FAKE_CUBLAS_LT_REFUSING, FAKE_CUBLAS_LT}, text), nullptr);
  EXPECT_EQ(text, FAKE_CUBLAS_LT ", version 120805");
  EXPECT_EQ(asked("fake_objects"), 0) << "all is given back";
}

TEST(DenseLibrary, TheEmulatedDeviceHasNone) {
  char text[64];
  EXPECT_EQ(functions_under_test().use_dense_library(1, text, sizeof text), MOESTRO_CUDA_REFUSED);
  EXPECT_STREQ(text, "an emulated device has none");
  EXPECT_EQ(functions_under_test().use_dense_library(0, text, sizeof text), 0);
}

class ProductsByLibrary : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    cuda::set_dense_library(DenseLibrary::load({FAKE_CUBLAS_LT}, text));
    products_ = asked("fake_products");
  }
  void TearDown() override { cuda::set_dense_library(nullptr); }

  /// The largest difference from the reference on rounded numbers.
  float product(HostFacingOps& ops, int64_t n, int64_t rows, int64_t cols, bool with_bias, DType dtype = DType::kBF16) {
    auto x = random_.normal(n * cols);
    const auto w = random_.normal(rows * cols), bias = random_.normal(rows);
    std::vector<uint16_t> stored;
    for (const float f : w) stored.push_back(dtype == DType::kBF16 ? f32_to_bf16(f) : f32_to_f16(f));
    std::vector<float> y(static_cast<size_t>(n * rows), NAN);
    ops.matmul(x.data(), n, {stored.data(), dtype, rows, cols, nullptr}, with_bias ? bias.data() : nullptr, y.data(),
               Activations::kRounded);
    for (float& f : x) f = bf16_to_f32(f32_to_bf16(f));
    float worst = 0;
    for (int64_t t = 0; t < n; ++t)
      for (int64_t r = 0; r < rows; ++r) {
        double sum = with_bias ? bias[static_cast<size_t>(r)] : 0;
        for (int64_t k = 0; k < cols; ++k) {
          const uint16_t bits = stored[static_cast<size_t>(r * cols + k)];
          sum += static_cast<double>(x[static_cast<size_t>(t * cols + k)]) *
                 (dtype == DType::kBF16 ? bf16_to_f32(bits) : f16_to_f32(bits));
        }
        worst = std::max(worst, std::abs(y[static_cast<size_t>(t * rows + r)] - static_cast<float>(sum)));
      }
    return worst;
  }
  /// How many it has computed since the last call.
  int computed() { return asked("fake_products") - std::exchange(products_, asked("fake_products")); }

  Random random_;
  int products_ = 0;
  cuda::emulated::DeviceAccess library_computes_on_the_host_;
};

TEST_F(ProductsByLibrary, AreThoseOfManyTokensWithBf16) {
  const auto ops = cuda_ops(false), deterministic = cuda_ops(true);
  for (const bool with_bias : {false, true}) {
    EXPECT_LT(product(*ops, 65, 24, 72, with_bias), 1e-3f);
    EXPECT_EQ(computed(), 1);
  }
  const int choices = asked("fake_choices");
  EXPECT_LT(product(*ops, 65, 24, 72, true), 1e-3f);
  EXPECT_EQ(computed(), 1);
  EXPECT_EQ(asked("fake_choices"), choices) << "the choice is kept";

  EXPECT_LT(product(*ops, 64, 24, 72, true), 0.1f);  // few
  EXPECT_LT(product(*ops, 65, 24, 71, true), 0.1f);  // rows that are not aligned
  EXPECT_LT(product(*deterministic, 65, 24, 72, true), 0.3f);
  EXPECT_EQ(computed(), 0);
}

TEST_F(ProductsByLibrary, AreComputedByOtherKernelsWhereItRefuses) {
  const auto ops = cuda_ops(false);
  EXPECT_LT(product(*ops, 66, 8, 968, true), 0.1f);
  EXPECT_EQ(computed(), 0);
  const int choices = asked("fake_choices");
  EXPECT_LT(product(*ops, 66, 8, 968, true), 0.1f);
  EXPECT_EQ(asked("fake_choices"), choices) << "it is not asked again";
  EXPECT_LT(product(*ops, 66, 8, 72, true), 1e-3f) << "others are still its";
  EXPECT_EQ(computed(), 1);
}

}  // namespace
}  // namespace moestro::kernels::test
