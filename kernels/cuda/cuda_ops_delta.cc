// CudaOps: the gated delta rule, and gates.

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "common/check.h"
#include "kernels/cuda/cuda_ops.h"

namespace moestro::kernels::cuda {
namespace {

static_assert(kDeltaNormEps == 1e-6f, "kernels have it as a constant");

/// Fewer rows of a sequence take less time one after another than in chunks, by estimates (docs/decisions/0065).
constexpr int64_t kChunkedRows = 128;
/// Chunks of n rows that workspaces have room for: sequences begin and end within chunks, and keep a state or two.
constexpr int64_t chunks_most(int64_t n) { return 3 * n / MOESTRO_CUDA_DELTA_CHUNK; }

int64_t prepared_bytes(const DeltaShape& shape, int64_t n) {
  const int64_t of_keys = shape.key_heads * 2 * MOESTRO_CUDA_DELTA_KEY_MAX,
                of_values = shape.value_heads * (round_up(shape.value_dim, MOESTRO_CUDA_DELTA_STRIP) + 4);
  return n * (of_keys + of_values) * static_cast<int64_t>(sizeof(float));
}

/// Adds the chunks of a sequence: cut at positions that are multiples of a chunk, wherever the step begins, and where a
/// state is kept. None if it is short, or if so many states are kept that chunks would not pay.
void add_chunks(const AttentionSequence& s, MoestroCudaDeltaSequence& sequence,
                std::vector<MoestroCudaDeltaChunk>& chunks) {
  if (s.tokens < kChunkedRows) return;
  const auto first = static_cast<int64_t>(chunks.size()), end = s.first_position + s.tokens;
  auto write = s.states.begin();
  for (int64_t at = s.first_position; at < end;) {
    while (write->tokens <= at) ++write;
    const int64_t border = (at / MOESTRO_CUDA_DELTA_CHUNK + 1) * MOESTRO_CUDA_DELTA_CHUNK,
                  next = std::min<int64_t>(border, write->tokens);
    chunks.push_back({static_cast<int32_t>(s.first_token + at - s.first_position), static_cast<int32_t>(next - at)});
    at = next;
  }
  const auto count = static_cast<int64_t>(chunks.size()) - first;
  if (count > chunks_most(s.tokens)) {
    chunks.resize(static_cast<size_t>(first));
    return;
  }
  sequence.first_chunk = static_cast<int32_t>(first), sequence.chunks = static_cast<int32_t>(count);
}

}  // namespace

bool asks_for_delta_chunks() {
  const char* asked = std::getenv("MOESTRO_CUDA_DELTA_CHUNKS");
  return asked != nullptr && std::string_view(asked) == "1";
}

bool CudaOps::computes_delta(const DeltaShape& shape) {
  return shape.key_dim <= MOESTRO_CUDA_DELTA_KEY_MAX && shape.conv <= MOESTRO_CUDA_DELTA_CONV_MAX;
}

int64_t CudaOps::delta_bytes(const DeltaShape& shape, int64_t n, bool in_chunks) {
  const int64_t chunks = in_chunks ? chunks_most(n) : 0;
  return prepared_bytes(shape, n) + chunks * shape.value_heads * MOESTRO_CUDA_DELTA_CHUNK_BYTES;
}

CudaOps::DeltaStep CudaOps::send_states(std::span<const AttentionSequence> sequences) {
  enum Kind { kSingle, kPrompt, kChunked };
  delta_sequences_.clear(), delta_writes_.clear(), delta_rows_.clear(), delta_chunks_.clear();
  int64_t counts[3] = {};
  int32_t kept = 0;
  for (const Kind kind : {kSingle, kPrompt, kChunked}) {
    for (const AttentionSequence& s : sequences) {
      if (s.tokens == 0 || (s.tokens == 1) != (kind == kSingle)) continue;
      MOESTRO_CHECK(!s.states.empty() && s.states.back().tokens == s.first_position + s.tokens,
                    "a sequence's last state is after its last token");
      MoestroCudaDeltaSequence one{};
      const size_t chunks = delta_chunks_.size();
      if (delta_in_chunks_) add_chunks(s, one, delta_chunks_);
      if ((one.chunks > 0) != (kind == kChunked)) {
        delta_chunks_.resize(chunks);
        continue;
      }
      const bool reads = s.first_position > 0;
      const bool in_place = reads && std::ranges::find(s.states, s.state, &StateWrite::slot) != s.states.end();
      const auto sequence = static_cast<int32_t>(delta_sequences_.size());
      one.first_row = static_cast<int32_t>(s.first_token), one.tokens = static_cast<int32_t>(s.tokens);
      one.state = reads ? static_cast<int32_t>(s.state) : -1;
      one.first_write = static_cast<int32_t>(delta_writes_.size()), one.writes = static_cast<int32_t>(s.states.size());
      one.kept = in_place ? kept++ : -1;
      delta_sequences_.push_back(one);
      for (const StateWrite& w : s.states)
        delta_writes_.push_back({static_cast<int32_t>(w.tokens - s.first_position), static_cast<int32_t>(w.slot)});
      for (int64_t i = 0; i < s.tokens; ++i)
        delta_rows_.push_back({static_cast<int32_t>(s.first_token + i), sequence});
      ++counts[kind];
    }
  }
  return {.sequences = sent_sequences_.of(std::span<const MoestroCudaDeltaSequence>(delta_sequences_)),
          .writes = sent_writes_.of(std::span<const MoestroCudaDeltaWrite>(delta_writes_)),
          .rows = sent_rows_.of(std::span<const MoestroCudaDeltaRow>(delta_rows_)),
          .chunks = sent_chunks_.of(std::span<const MoestroCudaDeltaChunk>(delta_chunks_)),
          .singles = counts[kSingle], .prompts = counts[kPrompt], .chunked = counts[kChunked]};
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
  a.sequences = step.sequences, a.singles = step.singles, a.prompts = step.prompts, a.chunked = step.chunked;
  a.writes = step.writes;
  a.rows = step.rows, a.row_count = static_cast<int64_t>(delta_rows_.size());
  a.states = states, a.out = out;
  const int64_t bytes = delta_bytes(shape, rows, delta_in_chunks_);
  auto* const room = static_cast<std::byte*>(prepared_.at_least(static_cast<uint64_t>(bytes)));
  if (!fine()) return;
  a.prepared = reinterpret_cast<float*>(room);
  a.chunks = step.chunks, a.chunk_count = static_cast<int64_t>(delta_chunks_.size());
  a.chunk_tiles = room + prepared_bytes(shape, rows);
  a.kept = kept_.states, a.again = kept_.again;
  queue_.note("gated_delta", ops().delta(&a, queue_.stream));
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
