// CudaOps: the gated delta rule, and gates.

#include <algorithm>

#include "common/check.h"
#include "kernels/cuda/cuda_ops.h"

namespace moestro::kernels::cuda {
namespace {

static_assert(kDeltaNormEps == 1e-6f, "kernels have it as a constant");

}  // namespace

bool CudaOps::computes_delta(const DeltaShape& shape) {
  return shape.key_dim <= MOESTRO_CUDA_DELTA_KEY_MAX && shape.conv <= MOESTRO_CUDA_DELTA_CONV_MAX;
}

int64_t CudaOps::delta_bytes(const DeltaShape& shape, int64_t n) {
  const int64_t of_keys = shape.key_heads * 2 * MOESTRO_CUDA_DELTA_KEY_MAX,
                of_values = shape.value_heads * (round_up(shape.value_dim, MOESTRO_CUDA_DELTA_STRIP) + 4);
  return n * (of_keys + of_values) * static_cast<int64_t>(sizeof(float));
}

CudaOps::DeltaStep CudaOps::send_states(std::span<const AttentionSequence> sequences) {
  delta_sequences_.clear(), delta_writes_.clear(), delta_rows_.clear();
  DeltaStep step;
  int32_t kept = 0;
  for (const bool single : {true, false}) {
    for (const AttentionSequence& s : sequences) {
      if (s.tokens == 0 || (s.tokens == 1) != single) continue;
      MOESTRO_CHECK(!s.states.empty() && s.states.back().tokens == s.first_position + s.tokens,
                    "a sequence's last state is after its last token");
      const bool reads = s.first_position > 0;
      const bool in_place = reads && std::ranges::find(s.states, s.state, &StateWrite::slot) != s.states.end();
      const auto sequence = static_cast<int32_t>(delta_sequences_.size());
      delta_sequences_.push_back({static_cast<int32_t>(s.first_token), static_cast<int32_t>(s.tokens),
                                  reads ? static_cast<int32_t>(s.state) : -1,
                                  static_cast<int32_t>(delta_writes_.size()), static_cast<int32_t>(s.states.size()),
                                  in_place ? kept++ : -1});
      for (const StateWrite& w : s.states)
        delta_writes_.push_back({static_cast<int32_t>(w.tokens - s.first_position), static_cast<int32_t>(w.slot)});
      for (int64_t i = 0; i < s.tokens; ++i)
        delta_rows_.push_back({static_cast<int32_t>(s.first_token + i), sequence});
      ++(single ? step.singles : step.prompts);
    }
  }
  step.sequences = sent_sequences_.of(std::span<const MoestroCudaDeltaSequence>(delta_sequences_));
  step.writes = sent_writes_.of(std::span<const MoestroCudaDeltaWrite>(delta_writes_));
  step.rows = sent_rows_.of(std::span<const MoestroCudaDeltaRow>(delta_rows_));
  return step;
}

void CudaOps::gated_delta(const DeltaShape& shape, std::span<const AttentionSequence> sequences, const DeltaInput& in,
                          float* states, float* out) {
  MOESTRO_CHECK(computes_delta(shape) && shape.value_heads % shape.key_heads == 0, "a shape of the gated delta rule");
  const DeltaStep step = send_states(sequences);
  if (delta_rows_.empty()) return;
  int64_t rows = 0;
  for (const MoestroCudaDeltaRow& r : delta_rows_) rows = std::max<int64_t>(rows, r.row + 1);
  MoestroCudaDelta a{};
  a.key_heads = shape.key_heads, a.value_heads = shape.value_heads;
  a.key_dim = shape.key_dim, a.value_dim = shape.value_dim, a.conv = shape.conv;
  a.in_turn = shape.in_turn;
  a.q = in.q, a.k = in.k, a.v = in.v, a.a = in.a, a.b = in.b;
  a.conv_weight = in.conv, a.a_log = in.a_log, a.dt_bias = in.dt_bias;
  a.sequences = step.sequences, a.singles = step.singles, a.prompts = step.prompts;
  a.writes = step.writes;
  a.rows = step.rows, a.row_count = static_cast<int64_t>(delta_rows_.size());
  a.states = states, a.out = out;
  a.prepared = static_cast<float*>(prepared_.at_least(static_cast<uint64_t>(delta_bytes(shape, rows))));
  a.kept = kept_.states, a.again = kept_.again;
  if (fine()) queue_.note("gated_delta", ops().delta(&a, queue_.stream));
}

void CudaOps::gated_norm(float* x, int64_t n, int64_t dim, const float* weight, float eps, float* gate) {
  const MoestroCudaGatedNorm a{x, n, dim, weight, eps, gate};
  if (fine() && n > 0) queue_.note("gated_norm", ops().gated_norm(&a, queue_.stream));
}

void CudaOps::sigmoid_mul(float* x, const float* gate, int64_t count) {
  const MoestroCudaSigmoidMul a{x, gate, count};
  if (fine()) queue_.note("sigmoid_mul", ops().sigmoid_mul(&a, queue_.stream));
}

}  // namespace moestro::kernels::cuda
