// The gated delta rule position by position, as the formula has it.

#include <cmath>
#include <vector>

#include "kernels/reference/reference_ops.h"

namespace moestro::kernels::reference {
namespace {

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double softplus(double x) { return x > 20.0 ? x : std::log1p(std::exp(x)); }

/// One sequence as it goes on: the last `conv` inputs of every channel, the oldest first, and the state of every head.
struct State {
  std::vector<std::vector<double>> inputs;
  std::vector<double> s;

  State(const DeltaShape& shape, const float* slot) {
    for (int64_t j = 0; j < shape.conv; ++j) {
      inputs.emplace_back(static_cast<size_t>(shape.channels()));
      for (int64_t c = 0; c < shape.channels() && j > 0 && slot != nullptr; ++c)
        inputs.back()[static_cast<size_t>(c)] = slot[(j - 1) * shape.channels() + c];
    }
    s.resize(static_cast<size_t>(shape.values() * shape.key_dim));
    for (size_t i = 0; i < s.size() && slot != nullptr; ++i) s[i] = slot[shape.tail_floats() + static_cast<int64_t>(i)];
  }
  void store(const DeltaShape& shape, float* slot) const {
    for (int64_t j = 1; j < shape.conv; ++j)
      for (int64_t c = 0; c < shape.channels(); ++c)
        slot[(j - 1) * shape.channels() + c] =
            static_cast<float>(inputs[static_cast<size_t>(j)][static_cast<size_t>(c)]);
    for (size_t i = 0; i < s.size(); ++i)
      slot[shape.tail_floats() + static_cast<int64_t>(i)] = static_cast<float>(s[i]);
  }
};

/// The next position's q, k and v after the convolution.
std::vector<double> convolved(const DeltaShape& shape, const DeltaInput& in, int64_t row, State& state) {
  state.inputs.erase(state.inputs.begin());
  state.inputs.emplace_back();
  for (int64_t c = 0; c < shape.keys(); ++c) state.inputs.back().push_back(in.q[row * shape.keys() + c]);
  for (int64_t c = 0; c < shape.keys(); ++c) state.inputs.back().push_back(in.k[row * shape.keys() + c]);
  for (int64_t c = 0; c < shape.values(); ++c) state.inputs.back().push_back(in.v[row * shape.values() + c]);
  std::vector<double> out;
  for (int64_t c = 0; c < shape.channels(); ++c) {
    double sum = 0.0;
    for (int64_t j = 0; j < shape.conv; ++j)
      sum += in.conv[c * shape.conv + j] * state.inputs[static_cast<size_t>(j)][static_cast<size_t>(c)];
    out.push_back(silu(sum));
  }
  return out;
}

/// One head's share of q or k, of length `scale`.
std::vector<double> unit(const std::vector<double>& x, int64_t first, int64_t dim, double scale) {
  std::vector<double> out(x.begin() + first, x.begin() + first + dim);
  double squares = kDeltaNormEps;
  for (const double value : out) squares += value * value;
  for (double& value : out) value *= scale / std::sqrt(squares);
  return out;
}

}  // namespace

void ReferenceOps::gated_delta(const DeltaShape& shape, std::span<const AttentionSequence> sequences,
                               const DeltaInput& in, float* states, float* out) {
  const int64_t floats = delta_state_floats(shape);
  const double scale = 1.0 / std::sqrt(static_cast<double>(shape.key_dim));
  for (const AttentionSequence& sequence : sequences) {
    State state(shape, sequence.first_position == 0 ? nullptr : states + floats * sequence.state);
    size_t written = 0;
    for (int64_t t = 0; t < sequence.tokens; ++t) {
      const int64_t row = sequence.first_token + t;
      const std::vector<double> x = convolved(shape, in, row, state);
      for (int64_t h = 0; h < shape.value_heads; ++h) {
        const int64_t of_key = shape.key_head(h) * shape.key_dim;
        const auto q = unit(x, of_key, shape.key_dim, scale),
                   k = unit(x, shape.keys() + of_key, shape.key_dim, 1.0);
        const double decay = std::exp(-std::exp(static_cast<double>(in.a_log[h])) *
                                      softplus(static_cast<double>(in.a[row * shape.value_heads + h]) + in.dt_bias[h]));
        const double rate = sigmoid(in.b[row * shape.value_heads + h]);
        for (int64_t d = 0; d < shape.value_dim; ++d) {
          const auto s = [&](int64_t i) -> double& {
            return state.s[static_cast<size_t>((h * shape.key_dim + i) * shape.value_dim + d)];
          };
          double held = 0.0, read = 0.0;
          for (int64_t i = 0; i < shape.key_dim; ++i) held += k[static_cast<size_t>(i)] * (s(i) *= decay);
          const double v = x[static_cast<size_t>(2 * shape.keys() + h * shape.value_dim + d)];
          for (int64_t i = 0; i < shape.key_dim; ++i) {
            s(i) += k[static_cast<size_t>(i)] * rate * (v - held);
            read += q[static_cast<size_t>(i)] * s(i);
          }
          out[(row * shape.value_heads + h) * shape.value_dim + d] = static_cast<float>(read);
        }
      }
      for (; written < sequence.states.size() &&
             sequence.states[written].tokens == sequence.first_position + t + 1; ++written)
        state.store(shape, states + floats * sequence.states[written].slot);
    }
  }
}

void ReferenceOps::sigmoid_mul(float* x, const float* gate, int64_t count) {
  for (int64_t i = 0; i < count; ++i) x[i] = static_cast<float>(x[i] * sigmoid(gate[i]));
}

}  // namespace moestro::kernels::reference
