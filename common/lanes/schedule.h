#pragma once
// Which tasks a step has, and which tasks wait for which. Every device, replay and forecasts use the same schedules.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/lanes/task_graph.h"

namespace moestro::lanes {

/// What a schedule needs to know of a model. Bytes are those of the weights as stored.
struct LayerShape {
  bool sparse = false;
  double attention_weight_bytes = 0, kv_bytes_per_token = 0, attention_parameters = 0;
  double router_parameters = 0, router_weight_bytes = 0;
  double dense_parameters = 0, dense_weight_bytes = 0;    ///< of a dense layer's MLP
  double shared_parameters = 0, shared_weight_bytes = 0;  ///< 0: no shared expert
  double expert_parameters = 0, expert_bytes = 0;
};

struct ModelShape {
  std::vector<LayerShape> layers;
  double embed_bytes_per_token = 0;
  double head_parameters = 0, head_weight_bytes = 0;
};

/// Rows of a step that go through a layer's attention and router together.
struct MicroBatchShape {
  int64_t tokens = 0;   ///< rows
  int64_t context = 0;  ///< sum over rows of the positions they attend to
};

/// The size of one step.
struct StepShape {
  int64_t tokens = 0;         ///< rows of the batch
  int64_t context = 0;        ///< sum over rows of the positions they attend to
  int64_t logit_rows = 0;     ///< rows that need logits
  int64_t summed = 0;         ///< sequences whose final hidden states are summed up: the head runs for them too
  std::span<const MicroBatchShape> micro_batches = {};  ///< empty: all rows are one
};

/// An expert that a layer's tokens were routed to.
struct RoutedExpert {
  int32_t expert = 0;
  int32_t rows = 0;
};

/// Where a routed expert is computed, for schedules that compute a layer's experts together.
enum class Place : uint8_t {
  kHere,    ///< it is there, and runs with the others that are
  kArrives, ///< it has to be brought, and runs alone
  kHost,    ///< the host computes it
};

class Schedule {
 public:
  virtual ~Schedule() = default;
  /// Adds the tasks that are known before the step runs to an empty graph.
  virtual void begin(const StepShape& step, TaskGraph& graph) = 0;
  /// The router of `layer` has chosen for a micro-batch: adds the reads and products of `routed`. `places`: one for
  /// each, or empty if that is found out as they are read.
  virtual void expand(int32_t layer, int32_t micro_batch, std::span<const RoutedExpert> routed,
                      std::span<const Place> places, TaskGraph& graph) = 0;
  /// Adds all experts of `layer` as one task, before its router's choice is known. If they are not all there, expand()
  /// follows and the task is void.
  virtual TaskId assume(int32_t layer, TaskGraph& graph) = 0;
  /// What was assumed of `layer` was queued behind something that was wrong: its router will choose anew.
  virtual void retract(int32_t layer, TaskGraph& graph) = 0;
};

/// Layer after layer for the whole batch, each expert once: the experts of a layer are read as soon as its router has
/// run, and run in the order in which they become present. Of several micro-batches, attention and router of one follow
/// those of the other; everything else is computed for the rows of all.
std::unique_ptr<Schedule> make_layerwise_schedule(ModelShape model);

}  // namespace moestro::lanes
