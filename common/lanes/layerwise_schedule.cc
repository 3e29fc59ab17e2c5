#include <array>

#include "common/check.h"
#include "common/lanes/schedule.h"

namespace moestro::lanes {
namespace {

class LayerwiseSchedule final : public Schedule {
 public:
  explicit LayerwiseSchedule(ModelShape model) : model_(std::move(model)) {
    combine_.resize(model_.layers.size(), -1), router_.resize(model_.layers.size(), -1);
  }

  void begin(const StepShape& step, TaskGraph& graph) override {
    const auto tokens = static_cast<double>(step.tokens);
    const auto context = static_cast<double>(step.context);
    TaskId last = graph.add({.kind = TaskKind::kEmbed, .cost = {0, tokens * model_.embed_bytes_per_token}});
    for (size_t i = 0; i < model_.layers.size(); ++i)
      last = add_layer(static_cast<int32_t>(i), tokens, context, last, graph);
    if (step.logit_rows > 0 || step.summed > 0) {
      const Cost head{2 * static_cast<double>(step.logit_rows) * model_.head_parameters,
                      step.logit_rows > 0 ? model_.head_weight_bytes : 0};
      graph.add({.kind = TaskKind::kHead, .cost = head}, std::array{last});
    }
  }

  void expand(int32_t layer, std::span<const RoutedExpert> routed, std::span<const Place> places,
              TaskGraph& graph) override {
    const TaskId combine = combine_of(layer);
    if (places.empty()) expand_each(layer, routed, combine, graph);
    else expand_together(layer, routed, places, combine, graph);
    graph.release(combine);
  }

  TaskId assume(int32_t layer, TaskGraph& graph) override {
    const TaskId combine = combine_of(layer);
    const TaskId experts = graph.add({.kind = TaskKind::kLayerExperts, .layer = layer, .assumed = true},
                                     std::array{router_[static_cast<size_t>(layer)]});
    graph.add_edge(experts, combine);
    graph.release(combine);
    return experts;
  }

  void retract(int32_t layer, TaskGraph& graph) override { graph.hold(combine_of(layer)); }

 private:
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

  /// All reads come before the products: what is missing is under way while the experts that are present run.
  void expand_each(int32_t layer, std::span<const RoutedExpert> routed, TaskId combine, TaskGraph& graph) {
    const TaskId first_read = graph.size();
    for (const RoutedExpert& r : routed) add_read(layer, r, graph);
    for (size_t i = 0; i < routed.size(); ++i)
      add_expert(layer, routed[i], Lane::kCompute, std::array{first_read + static_cast<TaskId>(i)}, combine, graph);
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
    const Cost cost{2 * static_cast<double>(routed.rows) * shape.expert_parameters, shape.expert_bytes};
    const Task task{.lane = lane,
                    .kind = TaskKind::kExpert,
                    .layer = layer,
                    .expert = routed.expert,
                    .rows = routed.rows,
                    .cost = cost};
    graph.add_edge(graph.add(task, after), combine);
  }

  Task layer_experts(int32_t layer, int32_t experts, int32_t rows) const {
    const LayerShape& shape = model_.layers[static_cast<size_t>(layer)];
    return {.kind = TaskKind::kLayerExperts,
            .layer = layer,
            .rows = rows,
            .cost = {2 * static_cast<double>(rows) * shape.expert_parameters, experts * shape.expert_bytes}};
  }

  TaskId add_layer(int32_t layer, double tokens, double context, TaskId last, TaskGraph& graph) {
    const LayerShape& shape = model_.layers[static_cast<size_t>(layer)];
    const Cost attention{2 * tokens * shape.attention_parameters,
                         shape.attention_weight_bytes + context * shape.kv_bytes_per_token};
    last = graph.add({.kind = TaskKind::kAttention, .layer = layer, .cost = attention}, std::array{last});
    combine_[static_cast<size_t>(layer)] = -1;
    if (!shape.sparse) {
      const Cost mlp{2 * tokens * shape.dense_parameters, shape.dense_weight_bytes};
      return graph.add({.kind = TaskKind::kDenseMlp, .layer = layer, .cost = mlp}, std::array{last});
    }
    const Cost router{2 * tokens * shape.router_parameters, shape.router_weight_bytes};
    const TaskId routed = graph.add({.kind = TaskKind::kRouter, .layer = layer, .cost = router}, std::array{last});
    last = routed;
    if (shape.shared_parameters > 0) {
      const Cost shared{2 * tokens * shape.shared_parameters, shape.shared_weight_bytes};
      last = graph.add({.kind = TaskKind::kSharedExpert, .layer = layer, .cost = shared}, std::array{last});
    }
    router_[static_cast<size_t>(layer)] = routed;
    const TaskId combine = graph.add_held({.kind = TaskKind::kCombine, .layer = layer}, std::array{last});
    return combine_[static_cast<size_t>(layer)] = combine;
  }

  ModelShape model_;
  std::vector<TaskId> combine_, router_;  ///< of each layer in the graph at hand
};

}  // namespace

std::unique_ptr<Schedule> make_layerwise_schedule(ModelShape model) {
  return std::make_unique<LayerwiseSchedule>(std::move(model));
}

}  // namespace moestro::lanes
