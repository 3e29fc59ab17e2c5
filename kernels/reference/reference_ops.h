#pragma once
// The plain loops behind the same interface: one thread, double accumulation. Products take eight rows side by side.

#include <array>
#include <vector>

#include "kernels/ops.h"

namespace moestro::kernels::reference {

/// Element i of a run of weights of `dtype` (f32, bf16 or f16) as a number.
double value_at(const void* data, DType dtype, int64_t i);
/// Element [row, col], also of quantised weights.
double weight_at(const Weight& w, int64_t row, int64_t col);
/// All of them, row by row: the same, and what is read once for a block, or for the matrix, is read once.
std::vector<double> numbers_of(const Weight& w);

/// Eight vectors side by side. Their dot products with another do not wait for each other, and each is added up in the
/// order of its own components.
using Eight = std::array<double, 8>;
/// Of up to eight rows of x, [rows][dim]; the others are zeros.
std::vector<Eight> side_by_side(const float* x, int64_t rows, int64_t dim);
/// `sums` plus the dot products with `weights`.
inline Eight add_products(Eight sums, const std::vector<Eight>& columns, const double* weights) {
  for (const Eight& column : columns) {
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += column[i] * *weights;
    ++weights;
  }
  return sums;
}
double silu(double x);

class ReferenceOps final : public Ops {
 public:
  const OpsOptions& options() const override { return options_; }
  bool supports(DType) const override { return true; }
  void matmul(const float* x, int64_t n, const Weight& w, const float* bias, float* y,
              Activations activations) override;
  void gather_rows(const Weight& table, std::span<const int32_t> ids, float* y) override;
  void rms_norm(const float* x, int64_t n, int64_t dim, const float* weight, float eps, float* y) override;
  void layer_norm(const float* x, int64_t n, int64_t dim, const float* weight, const float* bias, float eps,
                  float* y) override;
  void sum_squares(const float* x, int64_t n, int64_t dim, float* sums) override;
  void rope(float* x, int64_t n, int64_t heads, int64_t head_dim, int64_t rotary_dim, const float* cos,
            const float* sin) override;
  void kv_write(const AttentionShape& shape, std::span<const AttentionSequence> sequences, const float* k,
                const float* v, const KvView& cache) override;
  void attention(const AttentionShape& shape, std::span<const AttentionSequence> sequences, const float* q,
                 const float* sink_q, const KvView& cache, float* out) override;
  bool supports_latent() const override { return true; }
  void latent_write(const LatentShape& shape, std::span<const AttentionSequence> sequences, const float* kv,
                    const float* norm, float eps, const float* cos, const float* sin, const KvView& cache) override;
  void latent_attention(const LatentShape& shape, std::span<const AttentionSequence> sequences, const float* q,
                        const float* cos, const float* sin, const Weight& kv_b, const KvView& cache,
                        float* out) override;
  bool supports_delta() const override { return true; }
  void gated_delta(const DeltaShape& shape, std::span<const AttentionSequence> sequences, const DeltaInput& in,
                   float* states, float* out) override;
  void sigmoid_mul(float* x, const float* gate, int64_t count) override;
  void router_top_k(const float* logits, int64_t n, const RouterSpec& spec, int32_t* ids,
                    float* weights) override;
  void expert_ffn(const ExpertLayout& layout, const std::byte* blob, const float* x,
                  std::span<const RoutedRow> rows, int64_t top_k, float* out, const GatedUnit& unit) override;
  void combine(const float* rows, const float* weights, int64_t n, int64_t top_k, int64_t hidden,
               float* y) override;
  void silu_mul(float* gate, const float* up, int64_t count) override;
  bool supports_encoders() const override { return true; }
  void exponentials(const float* x, int64_t count, float shift, float factor, float* y) override;
  void add_scaled(const float* x, const float* logit, int64_t n, int64_t dim, float* y) override;
  void scale(float* x, int64_t count, float factor) override;
  void clamp(float* x, int64_t count, float limit) override;

 private:
  OpsOptions options_{.threads = 1, .deterministic = true, .isa = Isa::kScalar};
};

}  // namespace moestro::kernels::reference
