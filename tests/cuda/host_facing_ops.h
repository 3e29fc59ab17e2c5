#pragma once
// CudaOps for tests with operands in host memory: each operation gets device copies of exactly the bytes that it may
// access, and its output is copied back.

#include <memory>
#include <vector>

#include "kernels/cuda/cuda_ops.h"

namespace moestro::kernels::test {

class HostFacingOps final : public Ops {
 public:
  HostFacingOps(const MoestroCudaFunctions& functions, bool deterministic);
  ~HostFacingOps() override;

  const OpsOptions& options() const override { return ops_->options(); }
  bool supports(DType weight) const override { return ops_->supports(weight); }
  void matmul(const float* x, int64_t n, const Weight& w, const float* bias, float* y,
              Activations activations) override;
  void matmul_group(const float* x, int64_t n, std::span<const GroupProduct> products,
                    Activations activations) override;
  void matmul_onto(const float* x, int64_t n, const Weight& w, const float* bias, float* product, float* y) override;
  bool fuses(const Weight& router) const override { return ops_->fuses(router); }
  void place_heads(const AttentionShape& shape, std::span<const AttentionSequence> sequences, const HeadsToPlace& heads,
                   const KvView& cache) override;
  void norm_route(const RouteInput& in, const RouterSpec& spec, int32_t* ids, float* weights) override;
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
  void router_top_k(const float* logits, int64_t n, const RouterSpec& spec, int32_t* ids, float* weights) override;
  void expert_ffn(const ExpertLayout& layout, const std::byte* blob, const float* x, std::span<const RoutedRow> rows,
                  int64_t top_k, float* out, const GatedUnit& unit) override;
  void combine(const float* rows, const float* weights, int64_t n, int64_t top_k, int64_t hidden, float* y) override;
  void silu_mul(float* gate, const float* up, int64_t count) override;
  void exponentials(const float* x, int64_t count, float shift, float factor, float* y) override;
  void add_scaled(const float* x, const float* logit, int64_t n, int64_t dim, float* y) override;
  void scale(float* x, int64_t count, float factor) override;
  void scale_rows(const float* x, const float* factors, int64_t n, int64_t each, int64_t dim, float* y) override;
  void clamp(float* x, int64_t count, float limit) override;
  bool supports_delta() const override { return true; }
  void gated_delta(const DeltaShape& shape, std::span<const AttentionSequence> sequences, const DeltaInput& in,
                   float* states, float* out) override;
  void gated_norm(float* x, int64_t n, int64_t dim, const float* weight, float eps, float* gate) override;
  void sigmoid_mul(float* x, const float* gate, int64_t count) override;
  bool supports_latent() const override { return ops_->supports_latent(); }
  void latent_write(const LatentShape& shape, std::span<const AttentionSequence> sequences, const float* kv,
                    const float* norm, float eps, const float* cos, const float* sin, const KvView& cache) override;
  void latent_attention(const LatentShape& shape, std::span<const AttentionSequence> sequences, const float* q,
                        const float* cos, const float* sin, const Weight& kv_b, const KvView& cache,
                        float* out) override;

  // Those that an Ops does not have, as CudaOps; pointers to the host's memory.
  /// blobs[e]: of expert e; empty: it is missing. `work.slots` is not read.
  void experts(const cuda::LayerExperts& work, std::span<const std::vector<std::byte>> blobs);
  /// norm_route(), then experts(), which does not sort where that has sorted.
  void route_and_compute(const RouteInput& in, const RouterSpec& spec, int32_t* ids, float* weights,
                         cuda::LayerExperts work, std::span<const std::vector<std::byte>> blobs);
  void residual(const MoestroCudaResidual& work);
  void guard(float* x, int64_t n, int64_t dim, int32_t layer, int32_t* bad_layer);
  void sample(const float* logits, int64_t n, int64_t vocabulary, std::span<const MoestroCudaSampling> how,
              int32_t* ids);
  void sort_routes(const MoestroCudaSortRoutes& work);
  /// `kept`: as CudaOps::KeptStates, of `kept_floats` numbers.
  void gated_delta_keeping(const DeltaShape& shape, std::span<const AttentionSequence> sequences, const DeltaInput& in,
                           float* states, float* out, cuda::CudaOps::KeptStates kept, int64_t kept_floats);

 private:
  struct Operand {
    void* device;
    void* host;  ///< to copy back to; null: it was only read
    uint64_t bytes;
  };
  void* copy(const void* host, void* back, uint64_t bytes);
  /// On the device, and null where it is null.
  template <typename T>
  const T* in(const T* host, int64_t count) {
    return static_cast<const T*>(copy(host, nullptr, static_cast<uint64_t>(count) * sizeof(T)));
  }
  template <typename T>
  T* back(T* host, int64_t count) {
    return static_cast<T*>(copy(host, host, static_cast<uint64_t>(count) * sizeof(T)));
  }
  Weight weight(const Weight& w);
  /// The operands of norm_route() on the device.
  struct OnDevice {
    Weight router;
    RouterSpec spec;
    int32_t* ids;
    float *weights, *normed;
  };
  OnDevice queue_route(const RouteInput& in, const RouterSpec& spec, int32_t* ids, float* weights);
  void queue_experts(const cuda::LayerExperts& work, std::span<const std::vector<std::byte>> blobs);
  KvView cache(const AttentionShape& shape, const KvView& view);
  KvView cache(const LatentShape& shape, const KvView& view);
  /// Waits, and copies the output back.
  void finish();
  void check(MoestroCudaResult result) const;

  const MoestroCudaFunctions& functions_;
  std::unique_ptr<cuda::CudaOps> ops_;
  std::vector<Operand> operands_;
};

}  // namespace moestro::kernels::test
