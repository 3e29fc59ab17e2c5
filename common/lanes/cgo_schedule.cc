#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "common/check.h"
#include "common/lanes/layer_costs.h"

namespace moestro::lanes {
namespace {

constexpr TaskId kNothing = -1;
constexpr int32_t kLead = 2;  ///< micro-batches that are on their way through the host

/// Micro-batches of all layers form one sequence of turns: turn t is micro-batch t % m of layer t / m. The graph grows
/// by a turn when the router of the one before has chosen.
class CgoSchedule final : public Schedule {
 public:
  /// `device_decides`: which experts the device holds. Of the weights, only experts are brought then.
  CgoSchedule(ModelShape model, const CgoOptions& options, bool device_decides)
      : model_(std::move(model)), options_(options), device_decides_(device_decides) {
    for (const LayerShape& layer : model_.layers)
      MOESTRO_CHECK(!layer.sparse || layer.experts > 0 || options.weight_share >= 1,
                    "a layer that is brought as a whole says how many experts it has");
  }

  void begin(const StepShape& step, TaskGraph& graph) override {
    micro_batches_of(step, micro_batches_);
    step_ = step, step_.micro_batches = {};
    const auto m = micro_batches_.size();
    for (std::vector<TaskId>& pages : pages_) pages.clear();
    attended_.assign(m, kNothing);
    const TaskId embed = graph.add({.kind = TaskKind::kEmbed, .cost = embed_cost(model_, step)});
    done_.assign(m, embed);
    turn_ = 0;
    room_.clear();
    if (turns() > 0) bring_pages(0, m, graph);
    for (int32_t t = 0; t < lead(); ++t) project(t, graph);
    take_turns(graph);
  }

  void expand(int32_t layer, int32_t micro_batch, std::span<const RoutedExpert> routed, std::span<const Place> places,
              TaskGraph& graph) override {
    MOESTRO_CHECK(layer == layer_of(turn_) && micro_batch == batch_of(turn_) && places.empty(),
                  "routers choose one after another, wherever experts are");
    after_.assign(1, done_[static_cast<size_t>(micro_batch)]);
    if (device_decides_) compute_each(routed, graph);
    else compute_together(routed, graph);
    done_[static_cast<size_t>(micro_batch)] =
        graph.add({.kind = TaskKind::kCombine, .layer = layer, .micro_batch = micro_batch}, after_);
    end_turn(graph);
    take_turns(graph);
  }

 private:
  const LayerShape& shape(int32_t layer) const { return model_.layers[static_cast<size_t>(layer)]; }
  int32_t batches() const { return static_cast<int32_t>(micro_batches_.size()); }
  int32_t turns() const { return batches() * static_cast<int32_t>(model_.layers.size()); }
  int32_t layer_of(int32_t turn) const { return turn / batches(); }
  int32_t batch_of(int32_t turn) const { return turn % batches(); }
  /// A micro-batch does not overtake itself.
  int32_t lead() const { return std::min({kLead, batches(), turns()}); }
  std::vector<TaskId>& pages(int32_t layer) { return pages_[static_cast<size_t>(layer % 2)]; }

  double layer_bytes(int32_t layer) const {
    return shape(layer).dense_bytes() + shape(layer).experts * shape(layer).expert_bytes;
  }
  /// The pages of a layer that hold the weights of its attention, which come first.
  size_t attention_pages(int32_t layer) const {
    const double share = shape(layer).attention_weight_bytes / std::max(1.0, layer_bytes(layer));
    return std::clamp<size_t>(static_cast<size_t>(std::ceil(share * batches())), 1, micro_batches_.size());
  }
  /// The layer's first `count` pages are in the graph from now on, one after another. They take the room of the layer
  /// before last.
  void bring_pages(int32_t layer, size_t count, TaskGraph& graph) {
    std::vector<TaskId>& in = pages(layer);
    const double bytes = (1 - options_.weight_share) * layer_bytes(layer) / batches();
    while (bytes > 0 && in.size() < count) {
      const Task page{.lane = Lane::kHostToDevice,
                      .kind = TaskKind::kWeightRead,
                      .layer = layer,
                      .micro_batch = static_cast<int32_t>(in.size()),
                      .cost = {0, bytes}};
      in.push_back(in.empty() ? graph.add(page, room_) : graph.add(page, std::array{in.back()}));
    }
  }
  TaskId page(int32_t layer, size_t index) { return pages(layer).empty() ? kNothing : pages(layer)[index]; }

  TaskId add(const Task& task, std::span<const TaskId> after, TaskGraph& graph) {
    after_.clear();
    for (const TaskId from : after)
      if (from != kNothing) after_.push_back(from);
    return graph.add(task, after_);
  }

  /// `after_` becomes what the sum of the turn waits for.
  void compute_together(std::span<const RoutedExpert> routed, TaskGraph& graph) {
    const int32_t layer = layer_of(turn_);
    Task experts{.kind = TaskKind::kLayerExperts, .layer = layer, .micro_batch = batch_of(turn_)};
    for (const RoutedExpert& r : routed) experts.rows += r.rows;
    experts.cost = experts_cost(shape(layer), static_cast<int32_t>(routed.size()), experts.rows);
    after_.assign(1, graph.add(experts, after_));
  }

  /// A micro-batch may need an expert that one before it has let go of. So it asks anew, when that one has computed:
  /// what is still held is there at once.
  void compute_each(std::span<const RoutedExpert> routed, TaskGraph& graph) {
    const int32_t layer = layer_of(turn_), batch = batch_of(turn_);
    if (batch == 0) last_use_.clear();
    for (const RoutedExpert& r : routed) {
      const auto e = static_cast<size_t>(r.expert);
      if (last_use_.size() <= e) last_use_.resize(e + 1, kNothing);
      const Task read{.lane = Lane::kStoreRead,
                      .kind = TaskKind::kExpertRead,
                      .layer = layer,
                      .expert = r.expert,
                      .micro_batch = batch,
                      .cost = {0, shape(layer).expert_bytes}};
      const Task compute{.kind = TaskKind::kExpert,
                         .layer = layer,
                         .expert = r.expert,
                         .rows = r.rows,
                         .micro_batch = batch,
                         .cost = experts_cost(shape(layer), 1, r.rows)};
      const bool first = last_use_[e] == kNothing;
      const TaskId is_read = first ? graph.add(read) : graph.add(read, std::array{last_use_[e]});
      after_.push_back(last_use_[e] = graph.add(compute, std::array{is_read}));
    }
  }

  /// Queries, keys and values, and attention on the host.
  void project(int32_t turn, TaskGraph& graph) {
    const int32_t layer = layer_of(turn), batch = batch_of(turn);
    const LayerShape& s = shape(layer);
    const MicroBatchShape& rows = micro_batches_[static_cast<size_t>(batch)];
    const auto tokens = static_cast<double>(rows.tokens);
    const auto task = [&](Lane lane, TaskKind kind, const Cost& cost) {
      return Task{.lane = lane, .kind = kind, .layer = layer, .micro_batch = batch, .cost = cost};
    };
    const size_t needs = attention_pages(layer);
    bring_pages(layer, needs, graph);
    const double share = 1 - output_share(s);
    const TaskId qkv = add(task(Lane::kCompute, TaskKind::kQkv,
                                product_cost(rows.tokens, share * s.attention_parameters,
                                             share * s.attention_weight_bytes)),
                           std::array{done_[static_cast<size_t>(batch)], page(layer, needs - 1)}, graph);
    const TaskId sent = add(task(Lane::kDeviceToHost, TaskKind::kQkvSend, {0, tokens * s.qkv_bytes_per_token}),
                            std::array{qkv}, graph);
    const TaskId attended =
        add(task(Lane::kHostCompute, TaskKind::kAttend, attend_cost(s, rows)), std::array{sent}, graph);
    attended_[static_cast<size_t>(batch)] =
        add(task(Lane::kHostToDevice, TaskKind::kHiddenLoad, {0, tokens * s.attended_bytes_per_token}),
            std::array{attended}, graph);
  }
  static double output_share(const LayerShape& s) {
    return s.attention_parameters > 0 ? s.output_parameters / s.attention_parameters : 0;
  }

  /// Until a router has to choose, or the end.
  void take_turns(TaskGraph& graph) {
    for (; turn_ < turns(); end_turn(graph)) {
      const int32_t layer = layer_of(turn_), batch = batch_of(turn_);
      const LayerShape& s = shape(layer);
      const int64_t rows = micro_batches_[static_cast<size_t>(batch)].tokens;
      TaskId& done = done_[static_cast<size_t>(batch)];
      const auto compute = [&](TaskKind kind, const Cost& cost) {
        done = graph.add({.kind = kind, .layer = layer, .micro_batch = batch, .cost = cost}, std::array{done});
      };
      const double share = output_share(s);
      const TaskId last_page = pages(layer).empty() ? kNothing : pages(layer).back();
      done = add({.kind = TaskKind::kOutput,
                  .layer = layer,
                  .micro_batch = batch,
                  .cost = product_cost(rows, share * s.attention_parameters, share * s.attention_weight_bytes)},
                 std::array{attended_[static_cast<size_t>(batch)], last_page}, graph);
      if (s.sparse) {
        compute(TaskKind::kRouter, router_cost(s, rows));
        if (s.shared_parameters > 0) compute(TaskKind::kSharedExpert, shared_expert_cost(s, rows));
        return;
      }
      compute(TaskKind::kDenseMlp, dense_mlp_cost(s, rows));
    }
    if (has_head(step_)) graph.add({.kind = TaskKind::kHead, .cost = head_cost(model_, step_)}, done_);
  }

  /// The experts of the turn are in the graph: another micro-batch goes to the host, and the next layer's pages come.
  void end_turn(TaskGraph& graph) {
    const int32_t layer = layer_of(turn_), batch = batch_of(turn_), next = turn_ + lead();
    if (batch == 0 && layer > 0) pages(layer + 1).clear();  // those of the layer before were used
    const bool more = layer + 1 < static_cast<int32_t>(model_.layers.size());
    if (next < turns()) project(next, graph);
    if (more) bring_pages(layer + 1, static_cast<size_t>(batch) + 1, graph);
    if (batch + 1 == batches()) room_ = done_;
    ++turn_;
  }

  const ModelShape model_;
  const CgoOptions options_;
  const bool device_decides_;
  StepShape step_;                              ///< without its micro-batches
  std::vector<MicroBatchShape> micro_batches_;
  int32_t turn_ = 0;
  std::array<std::vector<TaskId>, 2> pages_;    ///< of the layer at hand and the next, by the number's last bit
  std::vector<TaskId> attended_;                ///< by micro-batch: what its host has computed is on the device
  std::vector<TaskId> done_;                    ///< by micro-batch: its last task
  std::vector<TaskId> room_;                    ///< the ends of the layer before the one at hand
  std::vector<TaskId> last_use_;                ///< of the layer at hand, by expert: what computed it last
  std::vector<TaskId> after_;                   ///< scratch
};

}  // namespace

std::unique_ptr<Schedule> make_cgo_schedule(ModelShape model, const CgoOptions& options) {
  return std::make_unique<CgoSchedule>(std::move(model), options, false);
}

std::unique_ptr<Schedule> make_cgo_schedule(ModelShape model) {
  return std::make_unique<CgoSchedule>(std::move(model), CgoOptions{.weight_share = 1}, true);
}

}  // namespace moestro::lanes
