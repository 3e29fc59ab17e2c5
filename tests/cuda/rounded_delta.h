#pragma once
// The gated delta rule position by position in double, of q and k that are rounded to bf16: chunks on a device round
// nothing else that a state depends on.

#include <cmath>
#include <vector>

#include "common/float16.h"
#include "kernels/ops.h"

namespace moestro::kernels::test {

class RoundedDelta {
 public:
  /// `before`: all slots, as they were.
  RoundedDelta(const DeltaShape& shape, const DeltaInput& in, const std::vector<float>& before)
      : shape_(shape), in_(in), before_(before) {}

  /// Writes the sequence's rows of `out`, and what its slots have of heads' states, but not of inputs.
  void run(const AttentionSequence& sequence, float* states, float* out) {
    const int64_t floats = delta_state_floats(shape_), size = shape_.key_dim * shape_.value_dim;
    slot_ = sequence.first_position > 0 ? before_.data() + sequence.state * floats : nullptr;
    for (int64_t h = 0; h < shape_.value_heads; ++h) {
      const int64_t first = shape_.tail_floats() + h * size;
      s_.assign(static_cast<size_t>(size), 0.0);
      for (int64_t i = 0; i < size && slot_; ++i) s_[static_cast<size_t>(i)] = slot_[first + i];
      for (int64_t t = 0; t < sequence.tokens; ++t) {
        step({sequence.first_token + t, t}, h, out);
        for (const StateWrite& w : sequence.states) {
          if (w.tokens != sequence.first_position + t + 1) continue;
          for (int64_t i = 0; i < size; ++i)
            states[w.slot * floats + first + i] = static_cast<float>(s_[static_cast<size_t>(i)]);
        }
      }
    }
  }

 private:
  struct Place {
    int64_t row, token;
  };
  /// Number `at` of a row of `input`, which is channel number `channel`, after the convolution.
  double convolved(const float* input, int64_t width, Place p, int64_t at, int64_t channel) const {
    double sum = 0.0;
    for (int64_t j = 0; j < shape_.conv; ++j) {
      const int64_t back = shape_.conv - 1 - j;
      double x = 0.0;
      if (back <= p.token) x = input[(p.row - back) * width + at];
      else if (slot_) x = slot_[(p.token + j) * shape_.channels() + channel];
      sum += in_.conv[channel * shape_.conv + j] * x;
    }
    return sum / (1.0 + std::exp(-sum));
  }
  std::vector<double> key(const float* input, Place p, int64_t head, int64_t first_channel, double length) const {
    std::vector<double> x;
    double squares = kDeltaNormEps;
    for (int64_t i = head * shape_.key_dim; i < (head + 1) * shape_.key_dim; ++i) {
      x.push_back(convolved(input, shape_.keys(), p, i, first_channel + i));
      squares += x.back() * x.back();
    }
    for (double& value : x) value = bf16_to_f32(f32_to_bf16(static_cast<float>(value * length / std::sqrt(squares))));
    return x;
  }
  void step(Place p, int64_t h, float* out) {
    const int64_t head = shape_.key_head(h), gate = p.row * shape_.value_heads + h;
    const auto q = key(in_.q, p, head, 0, 1.0 / std::sqrt(static_cast<double>(shape_.key_dim))),
               k = key(in_.k, p, head, shape_.keys(), 1.0);
    const double of_gate = static_cast<double>(in_.a[gate]) + in_.dt_bias[h],
                 decay = std::exp(-std::exp(static_cast<double>(in_.a_log[h])) *
                                  (of_gate > 20.0 ? of_gate : std::log1p(std::exp(of_gate)))),
                 rate = 1.0 / (1.0 + std::exp(-static_cast<double>(in_.b[gate])));
    const auto keys = static_cast<size_t>(shape_.key_dim), values = static_cast<size_t>(shape_.value_dim);
    for (size_t d = 0; d < values; ++d) {
      const int64_t at = h * shape_.value_dim + static_cast<int64_t>(d);
      const double v = convolved(in_.v, shape_.values(), p, at, 2 * shape_.keys() + at);
      double held = 0.0, read = 0.0;
      for (size_t i = 0; i < keys; ++i) held += k[i] * (s_[i * values + d] *= decay);
      for (size_t i = 0; i < keys; ++i) read += q[i] * (s_[i * values + d] += k[i] * rate * (v - held));
      out[p.row * shape_.values() + at] = static_cast<float>(read);
    }
  }

  DeltaShape shape_;
  DeltaInput in_;
  const std::vector<float>& before_;
  const float* slot_ = nullptr;
  std::vector<double> s_;
};

}  // namespace moestro::kernels::test
