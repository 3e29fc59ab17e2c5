// The machine by itself: its order, and seeded simulations of queues that run ahead of their host.

#include "common/lanes/step_machine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <random>

namespace moestro::lanes {
namespace {

std::vector<TaskId> taken(TaskGraph& graph, Lane lane = Lane::kCompute) {
  std::vector<TaskId> tasks;
  while (const auto task = graph.start(lane)) tasks.push_back(*task);
  return tasks;
}

TEST(TaskGraph, ReadyWhenAllItWaitsForHasEnded) {
  TaskGraph graph;
  const TaskId a = graph.add({}), b = graph.add({});
  const TaskId c = graph.add({}, std::array{a, b});
  EXPECT_EQ(taken(graph), (std::vector<TaskId>{a, b}));
  graph.end(b);
  EXPECT_TRUE(taken(graph).empty());
  const TaskId late = graph.add({}, std::array{b});  // what it waits for has ended already
  graph.add_edge(late, c);
  graph.end(a);
  EXPECT_EQ(taken(graph), std::vector<TaskId>{late});
  graph.end(late);
  EXPECT_EQ(taken(graph), std::vector<TaskId>{c});
  graph.end(c);
  EXPECT_TRUE(graph.all_ended());
}

TEST(TaskGraph, AQueueTakesWhatWaitsForItsOwnTasksOnly) {
  TaskGraph graph(kStreamComputes);
  const TaskId a = graph.add({}), read = graph.add({.lane = Lane::kStoreRead});
  const TaskId b = graph.add({}, std::array{a}), c = graph.add({}, std::array{b, read});
  EXPECT_EQ(taken(graph), (std::vector<TaskId>{a, b})) << "c waits for a read";
  EXPECT_EQ(taken(graph, Lane::kStoreRead), std::vector<TaskId>{read});
  graph.end(read);
  EXPECT_EQ(taken(graph), std::vector<TaskId>{c});
  graph.end(c);
  EXPECT_TRUE(graph.all_ended()) << "what was queued before it has ended too";
}

TEST(TaskGraph, WhatIsTakenBackIsStartedAgainBehindWhatCameBetween) {
  TaskGraph graph(kStreamComputes);
  const TaskId a = graph.add({}), assumed = graph.add({}, std::array{a});
  const TaskId join = graph.add({}, std::array{assumed}), after = graph.add({}, std::array{join});
  EXPECT_EQ(taken(graph), (std::vector<TaskId>{a, assumed, join, after}));
  graph.take_back_after(assumed);
  const TaskId read = graph.add({.lane = Lane::kStoreRead});
  const TaskId real = graph.add({}, std::array{read});
  graph.add_edge(real, join);
  graph.drop(assumed);
  EXPECT_TRUE(taken(graph).empty());
  EXPECT_EQ(taken(graph, Lane::kStoreRead), std::vector<TaskId>{read});
  graph.end(read);
  EXPECT_EQ(taken(graph), (std::vector<TaskId>{real, join, after}));
  graph.end(after);
  EXPECT_TRUE(graph.all_ended());
}

ModelShape shape_of(int layers, uint32_t seed) {
  std::mt19937 random(seed);
  ModelShape shape;
  for (int l = 0; l < layers; ++l) {
    LayerShape& layer = shape.layers.emplace_back();
    layer.sparse = random() % 4 != 0;
    layer.shared_parameters = random() % 2;
  }
  shape.layers.front().sparse = true;
  return shape;
}

/// A model of numbers. Its layers change a state; experts' parts do not depend on the order in which they are computed,
/// and everything else does.
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : seed_(seed) {}
  static uint64_t mix(uint64_t a, uint64_t b) {
    a = (a ^ (b + 0x9e3779b97f4a7c15ULL)) * 0xbf58476d1ce4e5b9ULL;
    return a ^ (a >> 29);
  }
  /// What the router of a layer chooses for this state.
  std::vector<RoutedExpert> chosen(int32_t layer, uint64_t state) const {
    std::mt19937_64 random(mix(mix(seed_, static_cast<uint64_t>(layer)), state));
    std::vector<RoutedExpert> out;
    for (int32_t e = 0; e < 8; ++e)
      if (random() % 3 == 0) out.push_back({e, 1 + static_cast<int32_t>(random() % 4)});
    if (out.empty()) out.push_back({static_cast<int32_t>(random() % 8), 1});
    return out;
  }
  static uint64_t part(int32_t layer, int32_t expert, uint64_t input) {
    return mix(mix(input, static_cast<uint64_t>(layer)), static_cast<uint64_t>(expert) + 77);
  }
  /// What the rows of a micro-batch enter with.
  uint64_t begin(size_t micro_batch) const { return seed_ + 31 * micro_batch; }
  uint64_t reference(const ModelShape& shape, size_t micro_batch) const {
    uint64_t state = begin(micro_batch);
    for (size_t l = 0; l < shape.layers.size(); ++l) {
      const auto layer = static_cast<int32_t>(l);
      state = mix(state, 1000 + l);
      if (!shape.layers[l].sparse) {
        state = mix(state, 5000 + l);
        continue;
      }
      uint64_t sum = shape.layers[l].shared_parameters > 0 ? mix(state, 3) : 0;
      for (const RoutedExpert& r : chosen(layer, state)) sum += part(layer, r.expert, state);
      state = mix(state, sum);
    }
    return state;
  }

 private:
  const uint64_t seed_;
};

/// A device with a queue, a link and a host, all of random speed. It computes what it is given, in order; the host
/// learns of a router's choice late, and expects all experts of a layer to be there as often as `hope` says. Every
/// third step has several micro-batches, which choose on their own and share experts.
class Simulation {
 public:
  Simulation(uint32_t seed, const LaneKinds& lanes)
      : random_(seed),
        shape_(shape_of(2 + static_cast<int>(seed % 5), seed)),
        numbers_(seed),
        schedule_(make_layerwise_schedule(shape_)),
        machine_(*schedule_, lanes),
        stream_(lanes[0] == LaneKind::kQueue),
        hope_(random_() % 4),
        micro_batches_(seed % 3 == 0 ? 2 + random_() % 3 : 1) {
    for (uint32_t& part : resident_) part = static_cast<uint32_t>(random_());
    device_.resize(shape_.layers.size() + 1, std::vector<LayerState>(micro_batches_.size()));
  }

  void run() {
    begin();
    const uint64_t fails_at = random_() % 8 == 0 ? random_() % 40 : UINT64_MAX;
    for (uint64_t event = 0; !machine_.all_ended(); ++event) {
      ASSERT_LT(event, 10'000u) << "a step does not end";
      if (event == fails_at) {  // the step fails amid everything, and the next one begins
        begin();
        queue_.clear(), reads_.clear();
      }
      if (machine_.may_park() && !machine_.is_parking() && random_() % 16 == 0) machine_.park();
      while (start_all()) {
      }
      if (machine_.all_ended()) break;
      if (machine_.is_parked()) {
        ASSERT_TRUE(reads_.empty()) << "a step that has parked waits for a read";
        ++parked;
        machine_.resume();
        continue;
      }
      if (const auto layer = machine_.assumable(); layer && machine_.assumptions() < 3 && random_() % 4 < hope_) {
        machine_.assume(*layer);
        continue;
      }
      ASSERT_FALSE(queue_.empty() && reads_.empty()) << "nothing runs and nothing ends";
      if (!reads_.empty() && (queue_.empty() || random_() % 2 == 0)) end_a_read();
      else end_a_task();
    }
    for (size_t b = 0; b < micro_batches_.size(); ++b)
      EXPECT_EQ(device_.back()[b].state, numbers_.reference(shape_, b)) << "micro-batch " << b;
  }
  int voided = 0, held = 0, parked = 0;

 private:
  struct LayerState {
    uint64_t state = 0;  ///< what enters it
    uint64_t input = 0, sum = 0;
    std::vector<bool> computed = std::vector<bool>(8);
  };

  void begin() {
    machine_.begin({.tokens = std::ssize(micro_batches_), .logit_rows = 1, .micro_batches = micro_batches_});
  }

  bool start_all() {
    bool any = false;
    for (const Lane lane : {Lane::kCompute, Lane::kStoreRead, Lane::kHostCompute}) {
      const auto started = machine_.start(lane);
      const std::vector<TaskId> tasks(started.begin(), started.end());
      any = any || !tasks.empty();
      for (const TaskId task : tasks) {
        if (lane == Lane::kStoreRead) reads_.push_back(task);
        else if (stream_ && lane == Lane::kCompute) queue_.push_back(task);
        else compute(machine_[task]), machine_.ended(task);
      }
      if (!stream_ && any) return true;
    }
    return any;
  }

  void end_a_read() {
    const size_t i = random_() % reads_.size();
    const TaskId task = reads_[i];
    reads_.erase(reads_.begin() + static_cast<std::ptrdiff_t>(i));
    machine_.ended(task);
  }

  /// The device computes the next tasks up to a router or its end; the host hears of it then.
  void end_a_task() {
    while (!queue_.empty()) {
      const TaskId id = queue_.front();
      queue_.pop_front();
      const Task task = machine_[id];
      compute(task);
      if (task.kind == TaskKind::kRouter) return routed(id, task);
      if (queue_.empty()) return machine_.ended(id);
    }
  }

  void routed(TaskId id, const Task& task) {
    const auto layer = static_cast<size_t>(task.layer), b = static_cast<size_t>(task.micro_batch);
    const auto choice = numbers_.chosen(task.layer, device_[layer][b].input);
    const auto there = [&](const RoutedExpert& r) { return (resident_[layer % 8] >> r.expert & 1) != 0; };
    const bool all = std::ranges::all_of(choice, there);
    if (micro_batches_.size() > 1) {
      ASSERT_EQ(machine_.assumptions(), 0);
      machine_.routed(task.layer, task.micro_batch, choice);
    } else if (machine_.assumptions() > 0 && all) {
      ++held;
      machine_.holds(task.layer);
    } else {
      voided += machine_.assumptions() > 0;
      if (machine_.assumptions() > 0) {
        // What the device does of what is void is overwritten.
        queue_.clear();
        LayerState& l = device_[layer][b];
        l.sum = shape_.layers[layer].shared_parameters > 0 ? Numbers::mix(l.input, 3) : 0;
        l.computed.assign(8, false);
      }
      std::vector<Place> places;
      for (const RoutedExpert& r : choice)
        places.push_back(there(r) ? Place::kHere : random_() % 4 == 0 ? Place::kHost : Place::kArrives);
      machine_.routed(task.layer, task.micro_batch, choice, places);
    }
    machine_.ended(id);
  }

  /// A task computes the rows of its micro-batch, or of all.
  void compute(const Task& task) {
    const bool all = task.micro_batch == kAllMicroBatches;
    const bool by_micro_batch = task.kind == TaskKind::kAttention || task.kind == TaskKind::kRouter;
    EXPECT_NE(all, by_micro_batch) << task_name(task.kind);
    for (size_t b = 0; b < micro_batches_.size(); ++b)
      if (all || b == static_cast<size_t>(task.micro_batch)) compute(task, b);
  }
  void compute(const Task& task, size_t b) {
    const size_t layer = task.layer < 0 ? 0 : static_cast<size_t>(task.layer);
    LayerState& l = device_[layer][b];
    switch (task.kind) {
      case TaskKind::kEmbed: l.state = numbers_.begin(b); break;
      case TaskKind::kAttention:
        l.input = Numbers::mix(l.state, 1000 + layer), l.sum = 0;
        l.computed.assign(8, false);
        break;
      case TaskKind::kDenseMlp: device_[layer + 1][b].state = Numbers::mix(l.input, 5000 + layer); break;
      case TaskKind::kSharedExpert: l.sum += Numbers::mix(l.input, 3); break;
      case TaskKind::kRouter:
        if (!stream_) machine_.routed(task.layer, task.micro_batch, numbers_.chosen(task.layer, l.input));
        break;
      case TaskKind::kLayerExperts:
        for (const RoutedExpert& r : numbers_.chosen(task.layer, l.input))
          if ((resident_[layer % 8] >> r.expert & 1) != 0) add(l, task.layer, r.expert);
        break;
      case TaskKind::kExpert:
        for (const RoutedExpert& r : numbers_.chosen(task.layer, l.input))
          if (r.expert == task.expert) add(l, task.layer, r.expert);
        break;
      case TaskKind::kCombine: device_[layer + 1][b].state = Numbers::mix(l.input, l.sum); break;
      case TaskKind::kExpertRead:
      case TaskKind::kHead: break;
      default: ADD_FAILURE() << task_name(task.kind) << " is not of the layerwise schedule";
    }
  }
  void add(LayerState& l, int32_t layer, int32_t expert) {
    EXPECT_FALSE(l.computed[static_cast<size_t>(expert)]) << "an expert is computed twice";
    l.computed[static_cast<size_t>(expert)] = true;
    l.sum += Numbers::part(layer, expert, l.input);
  }

  std::mt19937 random_;
  const ModelShape shape_;
  const Numbers numbers_;
  std::unique_ptr<Schedule> schedule_;
  StepMachine machine_;
  const bool stream_;
  const uint32_t hope_;  ///< of 4
  const std::vector<MicroBatchShape> micro_batches_;
  std::array<uint32_t, 8> resident_{};
  std::vector<std::vector<LayerState>> device_;  ///< by layer and micro-batch
  std::deque<TaskId> queue_;
  std::vector<TaskId> reads_;
};

TEST(StepMachine, EveryOrderOfEventsComputesTheSame) {
  int voided = 0, held = 0, parked = 0;
  for (uint32_t seed = 1; seed <= 4000; ++seed) {
    SCOPED_TRACE(seed);
    for (const LaneKinds& lanes : {kThreadComputes, kStreamComputes}) {
      Simulation simulation(seed, lanes);
      simulation.run();
      if (::testing::Test::HasFailure()) return;
      voided += simulation.voided, held += simulation.held, parked += simulation.parked;
    }
  }
  EXPECT_GT(voided, 500);
  EXPECT_GT(held, 100);
  EXPECT_GT(parked, 1000);
}

}  // namespace
}  // namespace moestro::lanes
