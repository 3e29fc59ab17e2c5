#include <algorithm>
#include <array>

#include "common/check.h"
#include "common/lanes/layer_costs.h"

namespace moestro::lanes {
namespace {

constexpr TaskId kFree = -1;       ///< nothing has to end first
constexpr TaskId kNotKnown = -2;   ///< the last task that uses it is not in the graph yet

/// The graph grows by a layer when the routers of the layer before have chosen. So what was added first is what the
/// schedule wants first, and a lane takes the ready task that was added first.
class ExpertPipelineSchedule final : public Schedule {
 public:
  /// `outlook` null: the device decides which experts it holds.
  ExpertPipelineSchedule(ModelShape model, const ExpertPipelineOptions& options, ExpertOutlook* outlook)
      : model_(std::move(model)), options_(options), outlook_(outlook) {
    if (outlook == nullptr) return;
    MOESTRO_CHECK(options.expert_slots >= 1, "an expert that is computed has a slot");
    slots_.resize(static_cast<size_t>(options.expert_slots));
  }

  void begin(const StepShape& step, TaskGraph& graph) override {
    micro_batches_of(step, micro_batches_);
    step_ = step, step_.micro_batches = {};
    last_added_ = kFree;
    std::ranges::fill(slots_, kFree);
    next_slot_ = 0;
    kv_places_.fill(kFree);
    ends_ = {kFree, add({.kind = TaskKind::kEmbed, .cost = embed_cost(model_, step)}, {}, graph)};
    weights_ahead_ = options_.dense_ahead ? bring_weights(0, kFree, graph) : kFree;
    open_layers_from(0, graph);
  }

  void expand(int32_t layer, int32_t micro_batch, std::span<const RoutedExpert> routed, std::span<const Place> places,
              TaskGraph& graph) override {
    MOESTRO_CHECK(layer == layer_ && places.empty(), "the routers of one layer at a time choose, wherever experts are");
    for (const RoutedExpert& r : routed) {
      uses_.push_back({micro_batch, r});
      auto at = std::ranges::find(experts_, r.expert, &LayerExpert::expert);
      if (at == experts_.end()) at = experts_.insert(experts_.end(), {.expert = r.expert});
      at->rows += r.rows;
      if (at->read == kFree && !is_resident(r.expert)) bring(*at, graph);
    }
    if (++routed_ == micro_batches_.size()) close_layer(graph);
  }

 private:
  /// An expert of the open layer that was foreseen or chosen.
  struct LayerExpert {
    int32_t expert = 0;
    int32_t rows = 0;
    TaskId read = kFree;  ///< kFree: it is resident. kNotKnown: there was no slot for it yet
    size_t slot = 0;
  };
  struct Use {
    int32_t micro_batch = 0;
    RoutedExpert is;
  };

  const LayerShape& shape() const { return model_.layers[static_cast<size_t>(layer_)]; }
  bool is_resident(int32_t expert) const { return outlook_ != nullptr && outlook_->is_resident(layer_, expert); }
  /// The schedule says which slot an expert takes, and when.
  bool gives_slots() const { return outlook_ != nullptr && options_.by_expert; }

  /// Those in `after` may be kFree.
  TaskId add(const Task& task, std::span<const TaskId> after, TaskGraph& graph) {
    after_.clear();
    for (const TaskId from : after)
      if (from != kFree) after_.push_back(from);
    if (!options_.overlap && last_added_ != kFree) after_.push_back(last_added_);
    return last_added_ = graph.add(task, after_);
  }
  TaskId carry(Lane lane, TaskKind kind, int32_t micro_batch, double bytes, std::span<const TaskId> after,
               TaskGraph& graph) {
    return add({.lane = lane, .kind = kind, .layer = layer_, .micro_batch = micro_batch, .cost = {0, bytes}}, after,
               graph);
  }

  void open_layers_from(int32_t first, TaskGraph& graph) {
    for (layer_ = first; layer_ < static_cast<int32_t>(model_.layers.size()); ++layer_) {
      open_layer(graph);
      if (options_.dense_ahead) weights_ahead_ = bring_weights(layer_ + 1, ends_.back(), graph);
      if (shape().sparse) return;
      end_layer({.kind = TaskKind::kDenseMlp, .layer = layer_, .cost = dense_mlp_cost(shape(), step_.tokens)}, graph);
    }
    if (has_head(step_))
      add({.kind = TaskKind::kHead, .cost = head_cost(model_, step_)}, std::array{ends_.back()}, graph);
  }
  void end_layer(const Task& task, TaskGraph& graph) {
    const TaskId end = add(task, joined_, graph);
    ends_ = {ends_.back(), end};
  }

  /// What of a layer's dense weights does not stay, in one copy, when `room` has ended.
  TaskId bring_weights(int32_t layer, TaskId room, TaskGraph& graph) {
    const double streamed = 1 - options_.dense_share;
    if (streamed <= 0 || layer >= static_cast<int32_t>(model_.layers.size())) return kFree;
    const Cost cost{0, streamed * model_.layers[static_cast<size_t>(layer)].dense_bytes()};
    return add({.lane = Lane::kHostToDevice, .kind = TaskKind::kWeightRead, .layer = layer, .cost = cost},
               std::array{room}, graph);
  }

  /// Attention and router of each micro-batch, and the experts that are foreseen.
  void open_layer(TaskGraph& graph) {
    const double streamed = 1 - options_.dense_share;
    TaskId weights = weights_ahead_, gate = kFree;
    if (streamed > 0 && !options_.dense_ahead) {
      const double bytes = streamed * (shape().dense_bytes() - shape().router_weight_bytes);
      const std::array room{ends_.front()};
      weights = carry(Lane::kHostToDevice, TaskKind::kWeightRead, kAllMicroBatches, bytes, room, graph);
      if (shape().sparse)
        gate = carry(Lane::kHostToDevice, TaskKind::kWeightRead, kAllMicroBatches,
                     streamed * shape().router_weight_bytes, room, graph);
    }
    // The worker has asked for them ahead, as far as its places allow, and takes one layer's at a time.
    if (shape().streamed_bytes > 0) weights = add(read_weights(shape(), layer_), std::array{ends_.back()}, graph);
    joined_.clear();
    for (size_t b = 0; b < micro_batches_.size(); ++b) joined_.push_back(add_front(b, weights, gate, graph));
    routed_ = 0;
    experts_.clear(), uses_.clear();
    if (!shape().sparse) return;
    if (shape().shared_parameters > 0) {
      const TaskId shared = add({.kind = TaskKind::kSharedExpert,
                                 .layer = layer_,
                                 .cost = shared_expert_cost(shape(), step_.tokens)},
                                joined_, graph);
      joined_.assign(1, shared);
    }
    if (outlook_ == nullptr) return;
    for (const int32_t expert : outlook_->foreseen(layer_)) {
      if (is_resident(expert)) continue;
      if (gives_slots() && slots_[next_slot_] == kNotKnown) break;
      experts_.push_back({.expert = expert});
      bring(experts_.back(), graph, options_.early ? kFree : ends_.back());
    }
  }

  /// Returns the last task of the micro-batch.
  TaskId add_front(size_t b, TaskId weights, TaskId gate, TaskGraph& graph) {
    const MicroBatchShape& rows = micro_batches_[b];
    const auto micro_batch = static_cast<int32_t>(b);
    const double moved = (1 - options_.kv_share) * shape().kv_bytes_per_token;
    const auto place = kv_place(layer_, micro_batch, static_cast<int32_t>(micro_batches_.size()));
    TaskId& last_use = kv_places_[static_cast<size_t>(place)];
    const TaskId before = std::exchange(last_use, kFree);
    TaskId load = kFree;
    if (moved > 0 && rows.cached > 0)
      load = carry(Lane::kHostToDevice, TaskKind::kKvLoad, micro_batch, moved * static_cast<double>(rows.cached),
                   std::array{before}, graph);
    const TaskId attention = add({.kind = TaskKind::kAttention,
                                  .layer = layer_,
                                  .micro_batch = micro_batch,
                                  .cost = attention_cost(shape(), rows)},
                                 std::array{ends_.back(), weights, load, before}, graph);
    if (moved > 0)
      last_use = carry(Lane::kDeviceToHost, TaskKind::kKvSave, micro_batch, moved * static_cast<double>(rows.tokens),
                       std::array{attention}, graph);
    if (!shape().sparse) return attention;
    return add({.kind = TaskKind::kRouter,
                .layer = layer_,
                .micro_batch = micro_batch,
                .cost = router_cost(shape(), rows.tokens)},
               std::array{attention, gate}, graph);
  }

  /// Slots are used in turn: an expert's read waits for the last use of the one whose slot it takes. If that is of this
  /// layer, it is not known before all routers have chosen.
  void bring(LayerExpert& expert, TaskGraph& graph, TaskId wait_for = kFree) {
    TaskId before = kFree;
    if (gives_slots()) {
      before = slots_[next_slot_];
      expert.read = kNotKnown;
      if (before == kNotKnown) return;
      expert.slot = std::exchange(next_slot_, (next_slot_ + 1) % slots_.size());
      slots_[expert.slot] = kNotKnown;
    }
    expert.read = add({.lane = outlook_ == nullptr ? Lane::kStoreRead : Lane::kHostToDevice,
                       .kind = TaskKind::kExpertRead,
                       .layer = layer_,
                       .expert = expert.expert,
                       .cost = {0, shape().expert_bytes}},
                      std::array{before, wait_for}, graph);
  }

  TaskId add_expert(const RoutedExpert& routed, int32_t micro_batch, std::span<const TaskId> after, TaskGraph& graph) {
    return add({.kind = TaskKind::kExpert,
                .layer = layer_,
                .expert = routed.expert,
                .rows = routed.rows,
                .micro_batch = micro_batch,
                .cost = experts_cost(shape(), 1, routed.rows)},
               after, graph);
  }

  /// All routers have chosen.
  void close_layer(TaskGraph& graph) {
    if (options_.by_expert) add_by_expert(graph);
    else add_by_micro_batch(graph);
    end_layer({.kind = TaskKind::kCombine, .layer = layer_}, graph);
    open_layers_from(layer_ + 1, graph);
  }

  void add_by_expert(TaskGraph& graph) {
    std::ranges::sort(experts_, [this](const LayerExpert& a, const LayerExpert& b) {
      return options_.hot_first && a.rows != b.rows ? a.rows > b.rows : a.expert < b.expert;
    });
    for (LayerExpert& e : experts_)
      if (e.read != kNotKnown) compute(e, graph);
    for (LayerExpert& e : experts_) {
      if (e.read != kNotKnown) continue;
      bring(e, graph);
      compute(e, graph);
    }
  }

  /// One that was foreseen and not chosen is let go when it has come.
  void compute(const LayerExpert& e, TaskGraph& graph) {
    TaskId last_use = e.read;
    if (e.rows > 0) joined_.push_back(last_use = add_expert({e.expert, e.rows}, kAllMicroBatches, {&e.read, 1}, graph));
    if (e.read != kFree && gives_slots()) slots_[e.slot] = last_use;
  }

  void add_by_micro_batch(TaskGraph& graph) {
    std::ranges::sort(uses_, {}, [](const Use& u) { return std::pair(u.micro_batch, u.is.expert); });
    TaskId before = kFree;
    for (const Use& use : uses_) {
      const TaskId read = std::ranges::find(experts_, use.is.expert, &LayerExpert::expert)->read;
      before = add_expert(use.is, use.micro_batch, std::array{read, before}, graph);
    }
    joined_.push_back(before);
  }

  const ModelShape model_;
  const ExpertPipelineOptions options_;
  ExpertOutlook* outlook_;
  StepShape step_;                              ///< without its micro-batches
  std::vector<MicroBatchShape> micro_batches_;
  int32_t layer_ = 0;                           ///< that is open
  std::array<TaskId, 2> ends_{};                ///< of the layer before last and of the last one
  TaskId last_added_ = kFree;
  TaskId weights_ahead_ = kFree;                ///< of the next layer to open
  std::vector<TaskId> slots_;                   ///< by slot: the last use of what it holds
  size_t next_slot_ = 0;
  std::array<TaskId, kKvPlaces> kv_places_{};   ///< by place: the last use of what it holds
  // Of the open layer.
  std::vector<LayerExpert> experts_;
  std::vector<Use> uses_;
  size_t routed_ = 0;                           ///< of its routers
  std::vector<TaskId> joined_;                  ///< what its end waits for
  std::vector<TaskId> after_;                   ///< scratch
};

}  // namespace

std::unique_ptr<Schedule> make_expert_pipeline_schedule(ModelShape model, const ExpertPipelineOptions& options,
                                                        ExpertOutlook& outlook) {
  return std::make_unique<ExpertPipelineSchedule>(std::move(model), options, &outlook);
}

std::unique_ptr<Schedule> make_expert_pipeline_schedule(ModelShape model, const ExpertPipelineOptions& options) {
  return std::make_unique<ExpertPipelineSchedule>(std::move(model), options, nullptr);
}

}  // namespace moestro::lanes
