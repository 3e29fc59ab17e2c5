// The gated delta rule on the CPU: first the convolution, of ranges of channels; then the norms of q and k; then the
// recurrence. The columns of a head's state depend on q and k, but not on each other, so each thread takes some of them
// through all positions, with their part of the state in its own cache.

#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu_ops.h"

namespace moestro::kernels::cpu {
namespace {

constexpr int64_t kChannels = 512;  ///< of a unit of the convolution
constexpr int64_t kConvMax = 16;

float softplus(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }

}  // namespace

/// Of some channels of q, k or v of one sequence. `channel` is the first of them among all.
void CpuOps::delta_convolve(const DeltaShape& shape, const AttentionSequence& s, const DeltaInput& in,
                            const DeltaChannels& of, float* states, int thread) {
  const int64_t before = shape.conv - 1, floats = delta_state_floats(shape);
  float* const tail = scratch(thread).panel.at_least(kPanelFloats);
  float* const weights = tail + before * of.count;
  for (int64_t j = 0; j < before; ++j) {
    if (s.first_position == 0)
      std::fill_n(tail + j * of.count, of.count, 0.0f);
    else
      std::copy_n(states + floats * s.state + j * shape.channels() + of.channel, of.count, tail + j * of.count);
  }
  for (int64_t c = 0; c < of.count; ++c)
    for (int64_t j = 0; j < shape.conv; ++j)
      weights[j * of.count + c] = in.conv[(of.channel + c) * shape.conv + j];
  float* const x = of.x + s.first_token * of.stride;
  for (const StateWrite& w : s.states) {
    for (int64_t j = 0; j < before; ++j) {
      const int64_t t = w.tokens - s.first_position - before + j;
      std::copy_n(t >= 0 ? x + t * of.stride : tail + (t + before) * of.count, of.count,
                  states + floats * w.slot + j * shape.channels() + of.channel);
    }
  }
  kernels_.delta_conv({.x = x, .stride = of.stride, .tokens = s.tokens, .channels = of.count, .conv = shape.conv,
                       .weights = weights, .tail = tail});
}

/// Some columns of one head's state through the positions of one sequence.
void CpuOps::delta_recur(const DeltaShape& shape, const AttentionSequence& s, const DeltaInput& in, int64_t head,
                         int64_t column, float* states, float* out, int thread) {
  const int64_t width = std::min(kDeltaColumns, shape.value_dim - column), floats = delta_state_floats(shape);
  float* const state = scratch(thread).scores.at_least(shape.key_dim * kDeltaColumns);
  const auto in_slot = [&](uint32_t slot, int64_t row) {
    return states + floats * slot + shape.tail_floats() + (head * shape.key_dim + row) * shape.value_dim + column;
  };
  if (s.first_position == 0 || width < kDeltaColumns) std::fill_n(state, shape.key_dim * kDeltaColumns, 0.0f);
  for (int64_t r = 0; r < shape.key_dim && s.first_position > 0; ++r)
    std::copy_n(in_slot(s.state, r), width, state + r * kDeltaColumns);
  const int64_t key = shape.key_head(head) * shape.key_dim,
                value = head * shape.value_dim + column;
  int64_t done = 0;
  for (const StateWrite& w : s.states) {
    const int64_t row = s.first_token + done, end = w.tokens - s.first_position;
    kernels_.delta_scan({.state = state,
                         .tokens = end - done,
                         .key_dim = shape.key_dim,
                         .width = width,
                         .q = in.q + row * shape.keys() + key,
                         .k = in.k + row * shape.keys() + key,
                         .key_stride = shape.keys(),
                         .v = in.v + row * shape.values() + value,
                         .out = out + row * shape.values() + value,
                         .value_stride = shape.values(),
                         .decay = delta_decay_.at_least(0) + row * shape.value_heads + head,
                         .rate = delta_rate_.at_least(0) + row * shape.value_heads + head,
                         .gate_stride = shape.value_heads});
    done = end;
    for (int64_t r = 0; r < shape.key_dim; ++r)
      std::copy_n(state + r * kDeltaColumns, width, in_slot(w.slot, r));
  }
}

void CpuOps::gated_delta(const DeltaShape& shape, std::span<const AttentionSequence> sequences, const DeltaInput& in,
                         float* states, float* out) {
  MOESTRO_CHECK(shape.conv <= kConvMax && shape.value_heads % shape.key_heads == 0, "a shape of the gated delta rule");
  static_assert(2 * kConvMax * kChannels <= kPanelFloats);
  int64_t rows = 0, tokens = 0;
  for (const AttentionSequence& s : sequences) {
    MOESTRO_CHECK(s.tokens == 0 || (!s.states.empty() && s.states.back().tokens == s.first_position + s.tokens),
                  "a sequence's last state is after its last token");
    rows = std::max(rows, s.first_token + s.tokens);
    tokens += s.tokens;
  }
  for (ThreadScratch& s : thread_scratch_) s.scores.at_least(shape.key_dim * kDeltaColumns);
  float *const decay = delta_decay_.at_least(rows * shape.value_heads),
               *const rate = delta_rate_.at_least(rows * shape.value_heads);

  const int64_t q_parts = ceil_div(shape.keys(), kChannels), v_parts = ceil_div(shape.values(), kChannels),
                parts = 2 * q_parts + v_parts;
  const auto convolve = [&](int64_t unit, int thread) {
    const AttentionSequence& s = sequences[static_cast<size_t>(unit / parts)];
    const int64_t part = unit % parts, which = std::min<int64_t>(2, part / q_parts), first =
        (part - which * q_parts) * kChannels, all = which == 2 ? shape.values() : shape.keys();
    float* const x = which == 0 ? in.q : which == 1 ? in.k : in.v;
    const DeltaChannels of{x + first, all, which * shape.keys() + first, std::min(kChannels, all - first)};
    if (s.tokens > 0) delta_convolve(shape, s, in, of, states, thread);
  };
  run_units(static_cast<int64_t>(sequences.size()) * parts, tokens * shape.channels() * shape.conv, convolve);

  const auto count = static_cast<int64_t>(sequences.size());
  const auto prepare = [&](int64_t first, int64_t end, int) {
    int64_t before = 0;
    for (int64_t i = 0; i < count && before < end; ++i) {
      const AttentionSequence& s = sequences[static_cast<size_t>(i)];
      for (int64_t t = std::max<int64_t>(0, first - before); t < std::min(s.tokens, end - before); ++t) {
        const int64_t row = s.first_token + t;
        for (int64_t h = 0; h < shape.key_heads; ++h) {
          const auto unit = [&](float* x, float scale) {
            const float squares = kernels_.sum_squares(x, shape.key_dim);
            kernels_.scale_by(x, shape.key_dim, scale / std::sqrt(squares + kDeltaNormEps));
          };
          unit(in.q + row * shape.keys() + h * shape.key_dim, 1.0f / std::sqrt(static_cast<float>(shape.key_dim)));
          unit(in.k + row * shape.keys() + h * shape.key_dim, 1.0f);
        }
        for (int64_t h = 0; h < shape.value_heads; ++h) {
          const int64_t at = row * shape.value_heads + h;
          decay[at] = std::exp(-std::exp(in.a_log[h]) * softplus(in.a[at] + in.dt_bias[h]));
          rate[at] = 1.0f / (1.0f + std::exp(-in.b[at]));
        }
      }
      before += s.tokens;
    }
  };
  over_ranges(tokens, 1, tokens * (4 * shape.keys() + 64 * shape.value_heads), prepare);

  const int64_t strips = ceil_div(shape.value_dim, kDeltaColumns), of_sequence = shape.value_heads * strips;
  const auto recur = [&](int64_t unit, int thread) {
    const AttentionSequence& s = sequences[static_cast<size_t>(unit / of_sequence)];
    const int64_t head = unit % of_sequence / strips, column = unit % strips * kDeltaColumns;
    if (s.tokens > 0) delta_recur(shape, s, in, head, column, states, out, thread);
  };
  run_units(count * of_sequence, 4 * tokens * shape.values() * shape.key_dim, recur);
}

void CpuOps::sigmoid_mul(float* x, const float* gate, int64_t count) {
  over_ranges(count, 1024, 16 * count, [&](int64_t first, int64_t end, int) {
    kernels_.sigmoid_mul(x + first, gate + first, end - first);
  });
}

}  // namespace moestro::kernels::cpu
