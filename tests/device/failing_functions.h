#pragma once
// A CUDA device that fails: the emulated functions, one of which fails from its n-th call on.

#include <array>
#include <atomic>
#include <climits>

#include "kernels/cuda/emulated/functions.h"

namespace moestro::device::testing {

/// Calls that a function still answers.
template <auto kFunction>
inline std::atomic<int> calls_left{INT_MAX};

template <auto kFunction>
struct Failing;
template <typename... A, MoestroCudaResult (*MoestroCudaFunctions::*kFunction)(A...)>
struct Failing<kFunction> {
  static MoestroCudaResult call(A... a) {
    if (calls_left<kFunction>.fetch_sub(1) <= 0) return calls_left<kFunction> = 0, 999;  // cudaErrorUnknown
    return (kernels::cuda::emulated::functions().*kFunction)(a...);
  }
  /// In `table`, for its calls behind the first `calls`.
  static void install(MoestroCudaFunctions& table, int calls) {
    calls_left<kFunction> = calls;
    table.*kFunction = &call;
  }
};

struct FailingFunction {
  const char* name;
  void (*install)(MoestroCudaFunctions& table, int calls);
};

#define MOESTRO_FAILING(name) FailingFunction{#name, &Failing<&MoestroCudaFunctions::name>::install}
/// All that copies of experts use, and copy_out.
inline const std::array kFailingFunctions = {
    MOESTRO_FAILING(use_device),      MOESTRO_FAILING(allocate),       MOESTRO_FAILING(release),
    MOESTRO_FAILING(allocate_pinned), MOESTRO_FAILING(release_pinned), MOESTRO_FAILING(register_host),
    MOESTRO_FAILING(unregister_host), MOESTRO_FAILING(make_stream),    MOESTRO_FAILING(end_stream),
    MOESTRO_FAILING(wait_stream),     MOESTRO_FAILING(make_event),     MOESTRO_FAILING(end_event),
    MOESTRO_FAILING(record_event),    MOESTRO_FAILING(query_event),    MOESTRO_FAILING(elapsed),
    MOESTRO_FAILING(stream_waits),    MOESTRO_FAILING(copy_in),        MOESTRO_FAILING(copy_out),
    MOESTRO_FAILING(fill),            MOESTRO_FAILING(wait_event)};
#undef MOESTRO_FAILING

}  // namespace moestro::device::testing
