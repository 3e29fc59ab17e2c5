#pragma once
// What goes into a step of the gated delta rule, at random.

#include "tests/kernels/op_test_data.h"

namespace moestro::kernels::test {

struct DeltaInputs {
  std::vector<float> q, k, v, a, b, conv, a_log, dt_bias;
  DeltaInputs(const DeltaShape& s, int64_t n, Random& random)
      : q(random.normal(n * s.keys())),
        k(random.normal(n * s.keys())),
        v(random.normal(n * s.values())),
        a(random.normal(n * s.value_heads)),
        b(random.normal(n * s.value_heads)),
        conv(random.normal(s.channels() * s.conv)),
        a_log(random.normal(s.value_heads)),
        dt_bias(random.normal(s.value_heads)) {}
  DeltaInput view() {
    return {q.data(), k.data(), v.data(), a.data(), b.data(), conv.data(), a_log.data(), dt_bias.data()};
  }
};

}  // namespace moestro::kernels::test
