#include "services/worker/engine/attention_chunks.h"

#include <algorithm>

namespace moestro::engine {

void cut_into_chunks(std::span<const kernels::AttentionSequence> sequences, int64_t chunk,
                     std::vector<kernels::AttentionSequence>& to) {
  to.clear();
  for (const kernels::AttentionSequence& s : sequences)
    for (int64_t done = 0; done < s.tokens;) {
      const int64_t position = s.first_position + done, begin = position - position % chunk;
      const int64_t count = std::min(s.tokens - done, begin + chunk - position);
      to.push_back({s.first_token + done, count, position - begin,
                    s.blocks.subspan(static_cast<size_t>(begin / kernels::kKvBlockTokens))});
      done += count;
    }
}

void attend_within_chunks(kernels::Ops& ops, int64_t chunk, kernels::AttentionShape shape,
                          std::span<const kernels::AttentionSequence> sequences, const float* q, const float* sink_q,
                          const kernels::KvView& cache, float* out, std::vector<kernels::AttentionSequence>& scratch) {
  if (chunk > 0) {
    cut_into_chunks(sequences, chunk, scratch);
    sequences = scratch;
    shape.view = kChunkView;
  }
  ops.attention(shape, sequences, q, sink_q, cache, out);
}

}  // namespace moestro::engine
