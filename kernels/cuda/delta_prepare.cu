// What goes into the recurrence of the gated delta rule: convolution and SiLU of q, k and v, unit length of q and k,
// their product, and the gates. A warp for each row and head.

#include "kernels/cuda/delta.h"
#include "kernels/cuda/reduce.h"

namespace moestro::kernels::cuda {
namespace {

constexpr unsigned kWarps = 4;
constexpr float kNormEps = 1e-6f;

__device__ float silu(float x) { return x / (1.0f + expf(-x)); }
__device__ float softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

/// A row of a sequence.
struct Place {
  int64_t row;
  int token;            ///< of the sequence's in this step
  const float* before;  ///< delta_before()
  bool in_chunks;
};

/// A channel of it after the convolution. `x`: the row's input; those of the rows before it are `stride` apart.
__device__ float convolved(const MoestroCudaDelta& a, const Place& p, const float* x, int64_t stride, int64_t channel) {
  const auto conv = static_cast<int>(a.conv);
  const float* const weight = a.conv_weight + channel * conv;
  float sum = 0.0f;
  for (int j = 0; j < conv; ++j) {
    const int back = conv - 1 - j;
    float input = 0.0f;
    if (back <= p.token) input = x[-back * stride];
    else if (p.before) input = p.before[(p.token + j) * delta_channels(a) + channel];
    sum = multiply_add(weight[j], input, sum);
  }
  return silu(sum);
}

/// This lane's numbers of a head of q or k, every 32nd of them.
template <typename Rows>
struct KeyPart {
  static constexpr int kCount = Rows::kKey / kWarp;
  float x[kCount];

  /// `input`: a.q or a.k, whose first channel among all is `first_channel`.
  __device__ KeyPart(const MoestroCudaDelta& a, const Place& p, const float* input, int64_t first_channel,
                     int64_t head) {
    const int64_t keys = delta_keys(a);
    MOESTRO_UNROLL
    for (int i = 0; i < kCount; ++i) {
      const int64_t d = lane_id() + i * kWarp, c = head * a.key_dim + d;
      x[i] = d < a.key_dim ? convolved(a, p, input + p.row * keys + c, keys, first_channel + c) : 0.0f;
    }
  }
  __device__ float dot(const KeyPart& other) const {
    float sum = 0.0f;
    MOESTRO_UNROLL
    for (int i = 0; i < kCount; ++i) sum = multiply_add(x[i], other.x[i], sum);
    return warp_sum(sum);
  }
  __device__ void to_length(float length) {
    const float scale = length / sqrtf(dot(*this) + kNormEps);
    MOESTRO_UNROLL
    for (int i = 0; i < kCount; ++i) x[i] *= scale;
  }
  __device__ void store(float* to) const {
    MOESTRO_UNROLL
    for (int i = 0; i < kCount; ++i) to[lane_id() + i * kWarp] = x[i];
  }
  __device__ void store_rounded(uint16_t* to) const {
    MOESTRO_UNROLL
    for (int i = 0; i < kCount; ++i) to[lane_id() + i * kWarp] = bf16_bits(x[i]);
  }
};

template <typename Rows>
__device__ void prepare_keys(const MoestroCudaDelta& a, const Place& p, int64_t head) {
  const DeltaRecord<Rows> record{a};
  KeyPart<Rows> q(a, p, a.q, 0, head), k(a, p, a.k, delta_keys(a), head);
  q.to_length(1.0f / sqrtf(static_cast<float>(a.key_dim)));
  k.to_length(1.0f);
  if (p.in_chunks) {
    q.store_rounded(record.rounded_q(p.row, head));
    k.store_rounded(record.rounded_k(p.row, head));
    return;
  }
  q.store(record.q(p.row, head));
  k.store(record.k(p.row, head));
  const float qk = q.dot(k);
  for (int h = lane_id(); h < a.value_heads; h += kWarp)
    if (delta_key_head(a, h) == head) record.gates(p.row, h)[record.kQk] = qk;
}

template <typename Rows>
__device__ void prepare_values(const MoestroCudaDelta& a, const Place& p, int64_t head) {
  const DeltaRecord<Rows> record{a};
  float* const v = record.v(p.row, head);
  const int64_t values = delta_values(a);
  for (int64_t d = lane_id(); d < record.value_floats(); d += kWarp) {
    const int64_t c = head * a.value_dim + d;
    v[d] = d < a.value_dim ? convolved(a, p, a.v + p.row * values + c, values, 2 * delta_keys(a) + c) : 0.0f;
  }
  if (lane_id() != 0) return;
  const int64_t at = p.row * a.value_heads + head;
  float* const gates = record.gates(p.row, head);
  const float log = -expf(a.a_log[head]) * softplus(a.a[at] + a.dt_bias[head]);
  gates[record.kDecay] = expf(log);
  gates[record.kLog] = log;
  gates[record.kRate] = 1.0f / (1.0f + expf(-a.b[at]));
}

template <typename Rows>
__global__ void __launch_bounds__(kWarps * kWarp, 9) delta_prepare_kernel(MoestroCudaDelta a) {
  const unsigned warp = blockIdx.x * kWarps + static_cast<unsigned>(warp_id()),
                 heads = static_cast<unsigned>(a.key_heads + a.value_heads);
  after_predecessors();
  let_next_begin();
  if (warp >= static_cast<unsigned>(a.row_count) * heads) return;
  const MoestroCudaDeltaRow row = a.rows[warp / heads];
  const MoestroCudaDeltaSequence sequence = a.sequences[row.sequence];
  const Place p{row.row, row.row - sequence.first_row, delta_before(a, sequence),
                sequence.chunks > 0};
  const int64_t head = warp % heads;
  if (head < a.key_heads)
    prepare_keys<Rows>(a, p, head);
  else
    prepare_values<Rows>(a, p, head - a.key_heads);
}

}  // namespace

int32_t delta_prepare(const MoestroCudaDelta& a, MoestroCudaStream stream) {
  const int64_t warps = a.row_count * (a.key_heads + a.value_heads);
  if (warps > INT32_MAX) return MOESTRO_CUDA_REFUSED;
  return with_delta_rows(a.key_dim, [&](auto rows) {
    return launch_early(delta_prepare_kernel<decltype(rows)>, dim3(static_cast<unsigned>(divided_up(warps, kWarps))),
                        dim3(kWarps * kWarp), 0, stream, a);
  });
}

}  // namespace moestro::kernels::cuda
