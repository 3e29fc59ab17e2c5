#include <algorithm>

#include "common/check.h"
#include "kernels/ops.h"

namespace moestro::kernels {

bool is_kv_dtype(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kInt8;
}

namespace {
constexpr int64_t kLine = 64;
int64_t scales_bytes(int64_t vectors, DType dtype) {
  return dtype == DType::kInt8 ? vectors * kKvBlockTokens * static_cast<int64_t>(sizeof(float)) : 0;
}
}  // namespace

int64_t kv_scales_offset(const AttentionShape& shape, DType dtype) {
  return 2 * shape.kv_heads * kKvBlockTokens * shape.head_dim * dtype_bytes(dtype);
}

int64_t kv_block_bytes(const AttentionShape& shape, DType dtype) {
  return round_up(kv_scales_offset(shape, dtype) + scales_bytes(2 * shape.kv_heads, dtype), kLine);
}

int64_t latent_scales_offset(const LatentShape& shape, DType dtype) {
  return kKvBlockTokens * (shape.kv_rank + shape.rope_dim) * dtype_bytes(dtype);
}

int64_t latent_block_bytes(const LatentShape& shape, DType dtype) {
  return round_up(latent_scales_offset(shape, dtype) + scales_bytes(2, dtype), kLine);
}

int64_t delta_state_floats(const DeltaShape& shape) {
  return shape.tail_floats() + shape.values() * shape.key_dim;
}

void Ops::matmul_group(const float* x, int64_t n, std::span<const GroupProduct> products, Activations activations) {
  for (const GroupProduct& p : products) matmul(x, n, *p.weight, p.bias, p.y, activations);
}

void Ops::matmul_onto(const float* x, int64_t n, const Weight& w, const float* bias, float* product, float* y) {
  matmul(x, n, w, bias, product);
  add_scaled(product, nullptr, n, w.rows, y);
}

void Ops::relu(float* x, int64_t count) {
  for (int64_t i = 0; i < count; ++i) x[i] = x[i] < 0.0F ? 0.0F : x[i];
}

void Ops::scale_rows(const float* x, const float* factors, int64_t n, int64_t each, int64_t dim, float* y) {
  for (int64_t i = 0; i < n * each; ++i) {
    const float* from = x + i / each * dim;
    if (from != y + i * dim) std::copy_n(from, dim, y + i * dim);
    scale(y + i * dim, dim, factors[i]);
  }
}

// A backend that has them says so, and the engine asks before it loads such a model.
void Ops::latent_write(const LatentShape&, std::span<const AttentionSequence>, const float*, const float*, float,
                       const float*, const float*, const KvView&) {
  MOESTRO_CHECK(supports_latent(), "this backend has no latent attention");
}

void Ops::latent_attention(const LatentShape&, std::span<const AttentionSequence>, const float*, const float*,
                           const float*, const Weight&, const KvView&, float*) {
  MOESTRO_CHECK(supports_latent(), "this backend has no latent attention");
}

void Ops::place_heads(const AttentionShape&, std::span<const AttentionSequence>, const HeadsToPlace&, const KvView&) {
  MOESTRO_CHECK(false, "this backend has the separate operations only");
}

void Ops::norm_route(const RouteInput&, const RouterSpec&, int32_t*, float*) {
  MOESTRO_CHECK(false, "this backend has the separate operations only");
}

void Ops::gated_delta(const DeltaShape&, std::span<const AttentionSequence>, const DeltaInput&, float*, float*) {
  MOESTRO_CHECK(supports_delta(), "this backend has no gated delta rule");
}

void Ops::gated_norm(float* x, int64_t n, int64_t dim, const float* weight, float eps, float* gate) {
  rms_norm(x, n, dim, weight, eps, x);
  silu_mul(gate, x, n * dim);
}

void Ops::sigmoid_mul(float*, const float*, int64_t) {
  MOESTRO_CHECK(supports_delta(), "this backend has no gates");
}

}  // namespace moestro::kernels
