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
  int32_t experts = 0;                           ///< of a sparse layer; only schedules that bring whole layers ask
  double attention_flops_per_position = 0;       ///< of one row, for each position that it attends to
  double streamed_bytes = 0;                     ///< of dense_bytes(), what each step reads anew
  bool streamed_by_link = false;                 ///< to a device's memory; false: to host memory
  double output_parameters = 0;                  ///< of attention_parameters, those of the output projection
  double qkv_bytes_per_token = 0;                ///< queries, keys and values of a row
  double attended_bytes_per_token = 0;           ///< what enters the output projection
  double dense_bytes() const {
    return attention_weight_bytes + router_weight_bytes + dense_weight_bytes + shared_weight_bytes;
  }
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
  int64_t cached = 0;   ///< positions that their sequences have in the KV cache already, each once
};

/// The layers that a step goes through: of an encoder-decoder model, those of one of the two.
struct LayerRange {
  int32_t first = 0, end = -1;  ///< end -1: all from `first` on
};

/// The size of one step.
struct StepShape {
  int64_t tokens = 0;         ///< rows of the batch
  int64_t context = 0;        ///< sum over rows of the positions they attend to
  int64_t logit_rows = 0;     ///< rows that need logits
  int64_t summed = 0;         ///< sequences whose final hidden states are summed up: the head runs for them too
  std::span<const MicroBatchShape> micro_batches = {};  ///< empty: all rows are one
  LayerRange layers = {};  ///< only the layerwise schedule has steps of some layers
  bool decodes = false;    ///< every sequence has one row
};

/// The step's micro-batches, at least one. `cached` is 0 if the step does not say how it is cut.
void micro_batches_of(const StepShape& step, std::vector<MicroBatchShape>& out);

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

  /// Whether it can assume. If not, assume() and retract() must not be called.
  virtual bool assumes() const { return false; }
  /// Adds all experts of `layer` as one task, before its router's choice is known. If they are not all there, expand()
  /// follows and the task is void.
  virtual TaskId assume(int32_t layer, TaskGraph& graph);
  /// What was assumed of `layer` was queued behind something that was wrong: its router will choose anew.
  virtual void retract(int32_t layer, TaskGraph& graph);
};

/// Layer after layer for the whole batch, each expert once: the experts of a layer are read as soon as its router has
/// run, and run in the order in which they become present. Of several micro-batches, attention and router of one follow
/// those of the other; everything else is computed for the rows of all.
std::unique_ptr<Schedule> make_layerwise_schedule(ModelShape model);

// Schedules for throughput. Weights and KV have a home in host memory and cross a link when they are needed. Workers
// run them on a CPU or an emulated device (the expert pipeline) and beside an emulated device (cgo, whose dense weights
// all stay there). The rest of these schedules runs on virtual lanes only (virtual_driver.h).

/// What a schedule asks about experts on the device. Called by the thread that runs the machine.
class ExpertOutlook {
 public:
  virtual ~ExpertOutlook() = default;
  /// Whether the expert stays on the device. The others come over the link in every step.
  virtual bool is_resident(int32_t layer, int32_t expert) const = 0;
  /// The experts of `layer` to bring before its routers choose, the one with the most rows first. Asked once in a step,
  /// when the routers of the layer before have chosen. Valid until the next call.
  virtual std::span<const int32_t> foreseen(int32_t layer) = 0;
};

/// The device has room for the KV of this many micro-batches: one comes in, one is used, one goes out.
inline constexpr int32_t kKvPlaces = 3;
/// Which of these the KV of a layer and micro-batch takes, in a step of so many micro-batches.
constexpr int32_t kv_place(int32_t layer, int32_t micro_batch, int32_t micro_batches) {
  return static_cast<int32_t>((int64_t{layer} * micro_batches + micro_batch) % kKvPlaces);
}

struct ExpertPipelineOptions {
  double dense_share = 1;  ///< of each layer's dense weights, what stays on the device (0 to 1)
  double kv_share = 1;     ///< of the KV cache, what stays on the device (0 to 1); host memory has the rest
  bool dense_ahead = false;  ///< the rest of a layer comes as soon as there is a place for it, when the layer before
                             ///< last has ended; false: when the routers of the layer before have chosen as well
  int32_t expert_slots = 1;  ///< on the device, for experts that come over the link; at least 1. Not used without an
                             ///< outlook

  // What the parts of the schedule are worth is measured by leaving them out.

  bool overlap = true;    ///< false: one task after another
  bool early = true;      ///< false: experts that are foreseen come when the layer before has ended (as in the paper),
                          ///< not as soon as there is a slot
  bool by_expert = true;  ///< false: each micro-batch computes its experts in turn, in the order of their numbers, when
                          ///< those before it have. The device then has room for all experts of two layers.
  bool hot_first = true;  ///< false: of the experts that are there, the one with the lowest number comes first
};

/// After Klotski (Fang et al., ASPLOS 2025). All micro-batches go through a layer together, so that an expert crosses
/// the link once for all of them. While a micro-batch attends, the KV of the next comes in, that of the one before goes
/// out, and experts that are foreseen are brought. Another one is asked for when the first micro-batch chooses it. Each
/// expert is computed once for the rows of all: of those that are there, the one with the most rows. Its slot is free
/// when it has been computed. The device has room for the streamed dense weights of two layers. `outlook` outlives the
/// schedule.
std::unique_ptr<Schedule> make_expert_pipeline_schedule(ModelShape model, const ExpertPipelineOptions& options,
                                                        ExpertOutlook& outlook);
/// The same for a device that decides by itself which experts it holds and what comes ahead (common/tier): each expert
/// that is chosen is asked for once, as with the layerwise schedule, and has no slot here.
std::unique_ptr<Schedule> make_expert_pipeline_schedule(ModelShape model, const ExpertPipelineOptions& options);

struct CgoOptions {
  double weight_share = 0;  ///< of each layer's weights, experts included, what stays on the device (0 to 1)
};

/// After MoE-Lightning (Cao et al., ASPLOS 2025, algorithm 1: CGOPipe). The host attends, with the KV cache in its
/// memory. The device computes output projection and experts of micro-batch j, then queries, keys and values of j + 2,
/// while the host attends for j + 1. The weights of the next layer come in as many pages as there are micro-batches,
/// between the small transfers. The device has room for the streamed weights of two layers. Every layer that streams
/// has LayerShape::experts.
std::unique_ptr<Schedule> make_cgo_schedule(ModelShape model, const CgoOptions& options);
/// The same for a device that has all dense weights and decides by itself which experts it holds (common/tier): an
/// expert is asked for when a micro-batch chooses it, and each micro-batch computes its experts one by one. What the
/// tier brings ahead goes in chunks, which are the pages.
std::unique_ptr<Schedule> make_cgo_schedule(ModelShape model);

}  // namespace moestro::lanes
