#pragma once
// The functions under test, with counters of the calls of the engine's thread. Some calls can be made to fail.

#include "tests/cuda/cuda_under_test.h"

namespace moestro::kernels::test {

inline const MoestroCudaFunctions& the_real_ones() {
  static const MoestroCudaFunctions& functions = functions_under_test();
  return functions;
}

/// For this thread, because links call the same functions from their own threads.
struct Spied {
  uint64_t operations = 0;    ///< by themselves; those that go into graphs are not counted
  uint64_t graphs = 0, captures = 0, graphs_ended = 0;
  uint64_t copies_in = 0, allocations = 0;
  uint64_t waits = 0;         ///< for events that were not reached yet
  uint64_t work_behind_waits = 0;  ///< operations and graphs queued by a host that has waited since mark()
  bool capturing = false, has_waited = false;
  // What calls give, in place of what they do:
  MoestroCudaResult begin_capture = 0, end_capture = 0, launch_graph = 0;
  MoestroCudaResult in_capture = 0;  ///< operations within one

  /// A step begins.
  void mark() { has_waited = false, work_behind_waits = 0; }
  void work(uint64_t& counted) {
    ++counted;
    work_behind_waits += has_waited ? 1 : 0;
  }
};
inline thread_local Spied spied;

template <auto kMember>
struct SpiedOperation;
template <typename Arguments, MoestroCudaResult (*MoestroCudaOps::*kMember)(const Arguments*, MoestroCudaStream)>
struct SpiedOperation<kMember> {
  static MoestroCudaResult call(const Arguments* arguments, MoestroCudaStream stream) {
    if (spied.capturing && spied.in_capture != 0) return spied.in_capture;
    if (!spied.capturing) spied.work(spied.operations);
    return (the_real_ones().ops.*kMember)(arguments, stream);
  }
};

inline void spy_on_graphs(MoestroCudaFunctions& f) {
  f.begin_capture = [](MoestroCudaStream stream) {
    if (spied.begin_capture != 0) return spied.begin_capture;
    ++spied.captures;
    spied.capturing = true;
    return the_real_ones().begin_capture(stream);
  };
  f.end_capture = [](MoestroCudaStream stream, MoestroCudaGraph* graph) -> MoestroCudaResult {
    spied.capturing = false;
    const MoestroCudaResult result = the_real_ones().end_capture(stream, graph);
    if (result != 0 || spied.end_capture == 0) return result;
    (void)the_real_ones().end_graph(*graph);
    return spied.end_capture;
  };
  f.launch_graph = [](MoestroCudaGraph graph, MoestroCudaStream stream) {
    if (spied.launch_graph != 0) return spied.launch_graph;
    spied.work(spied.graphs);
    return the_real_ones().launch_graph(graph, stream);
  };
  f.end_graph = [](MoestroCudaGraph graph) {
    ++spied.graphs_ended;
    return the_real_ones().end_graph(graph);
  };
}

/// The table; what was counted before is forgotten.
inline const MoestroCudaFunctions& spied_functions() {
  spied = {};
  static const MoestroCudaFunctions table = [] {
    MoestroCudaFunctions f = the_real_ones();
    spy_on_graphs(f);
    f.copy_in = [](void* to, const void* from, uint64_t bytes, MoestroCudaStream stream) {
      ++spied.copies_in;
      return the_real_ones().copy_in(to, from, bytes, stream);
    };
    f.allocate = [](uint64_t bytes, void** memory) {
      ++spied.allocations;
      return the_real_ones().allocate(bytes, memory);
    };
    f.wait_event = [](MoestroCudaEvent event) {
      if (the_real_ones().query_event(event) == MOESTRO_CUDA_NOT_READY) ++spied.waits, spied.has_waited = true;
      return the_real_ones().wait_event(event);
    };
    f.wait_stream = [](MoestroCudaStream stream) {
      ++spied.waits, spied.has_waited = true;
      return the_real_ones().wait_stream(stream);
    };
#define MOESTRO_SPY(name) f.ops.name = SpiedOperation<&MoestroCudaOps::name>::call
    MOESTRO_SPY(matmul), MOESTRO_SPY(gather), MOESTRO_SPY(norm), MOESTRO_SPY(sum_squares), MOESTRO_SPY(rope),
        MOESTRO_SPY(silu_mul), MOESTRO_SPY(exponentials);
    MOESTRO_SPY(add_scaled), MOESTRO_SPY(clamp), MOESTRO_SPY(combine), MOESTRO_SPY(kv_write), MOESTRO_SPY(attention),
        MOESTRO_SPY(router), MOESTRO_SPY(sort_routes);
    MOESTRO_SPY(experts), MOESTRO_SPY(sample), MOESTRO_SPY(matmul_group), MOESTRO_SPY(residual);
    MOESTRO_SPY(place_heads), MOESTRO_SPY(route);
    MOESTRO_SPY(latent_write), MOESTRO_SPY(latent_attention);
#undef MOESTRO_SPY
    return f;
  }();
  return table;
}

}  // namespace moestro::kernels::test
