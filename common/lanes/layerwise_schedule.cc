#include <array>

#include "common/check.h"
#include "common/lanes/schedule.h"

namespace moestro::lanes {
namespace {

class LayerwiseSchedule final : public Schedule {
 public:
  explicit LayerwiseSchedule(ModelShape model) : model_(std::move(model)) { combine_.resize(model_.layers.size(), -1); }

  void begin(const StepShape& step, TaskGraph& graph) override {
    step_ = step;
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

  void expand(int32_t layer, std::span<const RoutedExpert> routed, TaskGraph& graph) override {
    const LayerShape& shape = model_.layers[static_cast<size_t>(layer)];
    const TaskId combine = combine_[static_cast<size_t>(layer)];
    MOESTRO_CHECK(combine >= 0, "only a sparse layer of this step is expanded");
    // All reads come before the products: what is missing is under way while the experts that are present run.
    const TaskId first_read = graph.size();
    for (const RoutedExpert& r : routed)
      graph.add({Lane::kStoreRead, TaskKind::kExpertRead, layer, r.expert, {0, shape.expert_bytes}});
    if (shape.shared_parameters > 0) {
      const Cost cost{2 * static_cast<double>(step_.tokens) * shape.shared_parameters, shape.shared_weight_bytes};
      graph.add_edge(graph.add({.kind = TaskKind::kSharedExpert, .layer = layer, .cost = cost}), combine);
    }
    for (size_t i = 0; i < routed.size(); ++i) {
      const Cost cost{2 * static_cast<double>(routed[i].rows) * shape.expert_parameters, shape.expert_bytes};
      const TaskId read = first_read + static_cast<TaskId>(i);
      graph.add_edge(graph.add({Lane::kCompute, TaskKind::kExpert, layer, routed[i].expert, cost}, std::array{read}),
                     combine);
    }
  }

 private:
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
    last = graph.add({.kind = TaskKind::kRouter, .layer = layer, .cost = router}, std::array{last});
    last = graph.add({.kind = TaskKind::kCombine, .layer = layer, .cost = {}}, std::array{last});
    combine_[static_cast<size_t>(layer)] = last;
    return last;
  }

  ModelShape model_;
  StepShape step_;
  std::vector<TaskId> combine_;  ///< of each layer in the graph at hand
};

}  // namespace

std::unique_ptr<Schedule> make_layerwise_schedule(ModelShape model) {
  return std::make_unique<LayerwiseSchedule>(std::move(model));
}

}  // namespace moestro::lanes
