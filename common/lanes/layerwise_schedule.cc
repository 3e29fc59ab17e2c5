#include <algorithm>
#include <array>

#include "common/check.h"
#include "common/lanes/layer_costs.h"

namespace moestro::lanes {
namespace {

class LayerwiseSchedule final : public Schedule {
 public:
  explicit LayerwiseSchedule(ModelShape model) : model_(std::move(model)) {
    combine_.resize(model_.layers.size(), -1), router_.resize(model_.layers.size(), -1);
  }

  void begin(const StepShape& step, TaskGraph& graph) override {
    micro_batches_of(step, micro_batches_);
    chosen_.clear();
    routed_ = 0;
    TaskId last = graph.add({.kind = TaskKind::kEmbed, .cost = embed_cost(model_, step)});
    const auto [first, end] = step.layers;
    for (int32_t i = first; i < (end < 0 ? static_cast<int32_t>(model_.layers.size()) : end); ++i)
      last = add_layer(i, step.tokens, last, graph);
    if (has_head(step)) graph.add({.kind = TaskKind::kHead, .cost = head_cost(model_, step)}, std::array{last});
  }

  void expand(int32_t layer, int32_t, std::span<const RoutedExpert> routed, std::span<const Place> places,
              TaskGraph& graph) override {
    const TaskId combine = combine_of(layer);
    if (!places.empty()) {
      MOESTRO_CHECK(micro_batches_.size() == 1, "experts that run together are of one micro-batch");
      expand_together(layer, routed, places, combine, graph);
    } else {
      for (const RoutedExpert& r : routed) choose(layer, r, graph);
      if (++routed_ < micro_batches_.size()) return;
      expand_each(layer, combine, graph);
    }
    graph.release(combine);
  }

  bool assumes() const override { return true; }
  TaskId assume(int32_t layer, TaskGraph& graph) override {
    MOESTRO_CHECK(micro_batches_.size() == 1, "what is assumed of a layer is assumed of all its rows");
    const TaskId combine = combine_of(layer);
    const TaskId experts = graph.add({.kind = TaskKind::kLayerExperts, .layer = layer, .assumed = true},
                                     std::array{router_[static_cast<size_t>(layer)]});
    graph.add_edge(experts, combine);
    graph.release(combine);
    return experts;
  }

  void retract(int32_t layer, TaskGraph& graph) override { graph.hold(combine_of(layer)); }

 private:
  struct Chosen {
    RoutedExpert is;
    TaskId read = -1;
  };

  void expand_together(int32_t layer, std::span<const RoutedExpert> routed, std::span<const Place> places,
                       TaskId combine, TaskGraph& graph) {
    int32_t here = 0, rows = 0;
    for (size_t i = 0; i < routed.size(); ++i)
      if (places[i] == Place::kHere) ++here, rows += routed[i].rows;
    if (here > 0) graph.add_edge(graph.add(layer_experts(layer, here, rows)), combine);
    for (size_t i = 0; i < routed.size(); ++i)
      if (places[i] == Place::kHost) add_expert(layer, routed[i], Lane::kHostCompute, {}, combine, graph);
    for (size_t i = 0; i < routed.size(); ++i) {
      if (places[i] != Place::kArrives) continue;
      const TaskId read = add_read(layer, routed[i], graph);
      add_expert(layer, routed[i], Lane::kCompute, std::array{read}, combine, graph);
    }
  }

  TaskId combine_of(int32_t layer) const {
    const TaskId combine = combine_[static_cast<size_t>(layer)];
    MOESTRO_CHECK(combine >= 0, "only a sparse layer of this step is expanded");
    return combine;
  }

  /// Micro-batches share experts: the first that chooses one has it read.
  void choose(int32_t layer, const RoutedExpert& routed, TaskGraph& graph) {
    const auto at = std::ranges::lower_bound(chosen_, routed.expert, {}, [](const Chosen& c) { return c.is.expert; });
    if (at != chosen_.end() && at->is.expert == routed.expert) at->is.rows += routed.rows;
    else chosen_.insert(at, {routed, add_read(layer, routed, graph)});
  }

  /// All reads come before the products: what is missing is under way while the experts that are present run.
  void expand_each(int32_t layer, TaskId combine, TaskGraph& graph) {
    for (const Chosen& c : chosen_) add_expert(layer, c.is, Lane::kCompute, std::array{c.read}, combine, graph);
    chosen_.clear();
    routed_ = 0;
  }

  TaskId add_read(int32_t layer, const RoutedExpert& routed, TaskGraph& graph) {
    const double bytes = model_.layers[static_cast<size_t>(layer)].expert_bytes;
    return graph.add({.lane = Lane::kStoreRead,
                      .kind = TaskKind::kExpertRead,
                      .layer = layer,
                      .expert = routed.expert,
                      .rows = routed.rows,
                      .cost = {0, bytes}});
  }

  void add_expert(int32_t layer, const RoutedExpert& routed, Lane lane, std::span<const TaskId> after, TaskId combine,
                  TaskGraph& graph) {
    const LayerShape& shape = model_.layers[static_cast<size_t>(layer)];
    const Task task{.lane = lane,
                    .kind = TaskKind::kExpert,
                    .layer = layer,
                    .expert = routed.expert,
                    .rows = routed.rows,
                    .cost = experts_cost(shape, 1, routed.rows)};
    graph.add_edge(graph.add(task, after), combine);
  }

  Task layer_experts(int32_t layer, int32_t experts, int32_t rows) const {
    const LayerShape& shape = model_.layers[static_cast<size_t>(layer)];
    return {.kind = TaskKind::kLayerExperts,
            .layer = layer,
            .rows = rows,
            .cost = experts_cost(shape, experts, rows)};
  }

  /// Attention of each micro-batch, with its router. Fills front_ with the last task of each.
  void add_front(int32_t layer, TaskId last, TaskGraph& graph) {
    const LayerShape& shape = model_.layers[static_cast<size_t>(layer)];
    front_.clear();
    for (const MicroBatchShape& rows : micro_batches_) {
      const auto micro_batch = static_cast<int32_t>(front_.size());
      const auto task = [&](TaskKind kind, const Cost& cost) {
        return Task{.kind = kind, .layer = layer, .micro_batch = micro_batch, .cost = cost};
      };
      TaskId end = graph.add(task(TaskKind::kAttention, attention_cost(shape, rows)), std::array{last});
      if (shape.sparse) end = graph.add(task(TaskKind::kRouter, router_cost(shape, rows.tokens)), std::array{end});
      front_.push_back(end);
    }
  }

  TaskId add_layer(int32_t layer, int64_t tokens, TaskId last, TaskGraph& graph) {
    const LayerShape& shape = model_.layers[static_cast<size_t>(layer)];
    if (shape.streamed_bytes > 0) last = graph.add(read_weights(shape, layer), std::array{last});
    add_front(layer, last, graph);
    combine_[static_cast<size_t>(layer)] = -1;
    if (!shape.sparse) {
      const Cost mlp = dense_mlp_cost(shape, tokens);
      return graph.add({.kind = TaskKind::kDenseMlp, .layer = layer, .cost = mlp}, front_);
    }
    router_[static_cast<size_t>(layer)] = front_.back();
    if (shape.shared_parameters > 0) {
      const Cost shared = shared_expert_cost(shape, tokens);
      const Task task{.kind = TaskKind::kSharedExpert, .layer = layer, .cost = shared};
      const TaskId added = graph.add(task, front_);
      front_.assign(1, added);
    }
    const TaskId combine = graph.add_held({.kind = TaskKind::kCombine, .layer = layer}, front_);
    return combine_[static_cast<size_t>(layer)] = combine;
  }

  ModelShape model_;
  std::vector<MicroBatchShape> micro_batches_;  ///< of the step
  std::vector<TaskId> combine_, router_;        ///< of each layer in the graph at hand
  std::vector<TaskId> front_;                   ///< scratch
  std::vector<Chosen> chosen_;                  ///< by the layer's routers so far, ascending
  size_t routed_ = 0;                           ///< of the layer's routers
};

}  // namespace

std::unique_ptr<Schedule> make_layerwise_schedule(ModelShape model) {
  return std::make_unique<LayerwiseSchedule>(std::move(model));
}

}  // namespace moestro::lanes
