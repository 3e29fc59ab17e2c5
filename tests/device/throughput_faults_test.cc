// Reads that fail, bytes that are found wrong in memory and a store that is lost, while the schedules for throughput
// run: each sequence ends bitwise as it does in the plain run, or with an error that names the expert that it needs.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "tests/device/device_bench.h"
#include "tests/device/played_steps.h"

namespace moestro::device::testing {
namespace {

using engine::KvHome;
using engine::ScheduleKind;
using engine::testing::Bench;
using engine::testing::BenchOptions;
using engine::testing::Fixture;
using engine::testing::LateSource;

constexpr int kSteps = 10;

BenchOptions plain_options() {
  BenchOptions options;
  options.engine.context_max = kContext;
  return options;
}

/// An engine whose experts come late, on the CPU or on a device.
struct Faulty {
  Faulty(const Fixture& fixture, bool on_device, const DeviceBenchOptions& options) {
    if (on_device) {
      device.emplace(fixture, options);
      source = device->late_host();
      return;
    }
    cpu.emplace(fixture, options.engine, [&](std::unique_ptr<store::BlobSource> inner) {
      auto made = std::make_unique<LateSource>(std::move(inner), options.late);
      source = made.get();
      return made;
    });
  }
  Bench& bench() { return cpu ? *cpu : device->bench(); }
  std::optional<Bench> cpu;
  std::optional<DeviceBench> device;
  LateSource* source = nullptr;
};

/// The same steps on an engine with faults and on one without.
class Played {
 public:
  Played(const Fixture& fixture, bool on_device, DeviceBenchOptions options, uint32_t seed)
      : random_(seed), damage_(seed), plain_(fixture, plain_options()) {
    options.late_host = true;
    options.late.seed = seed;
    options.late.on_lease = [this](LateSource& source, uint32_t blob) {
      if (damage_() % 40 != 0) return;
      source.find_wrong(blob);
      found_.insert(blob);
    };
    faulty_.emplace(fixture, on_device, options);
    vocab_ = static_cast<uint32_t>(plain_.engine().spec().vocab);
    for (uint64_t id = 1; id <= 7; ++id) ids_.push_back(id);
  }

  void run() {
    for (int step = 0; step < kSteps; ++step) {
      SCOPED_TRACE("step " + std::to_string(step));
      add_some(step % 2 == 1);
      if (plain_.plan().sequences.empty()) continue;
      broken_.reset();
      if (random_() % 2 == 0) broken_ = any_expert();
      faulty_->source->break_blob(broken_);
      faulty_->source->lose_after(random_() % 4 == 0 ? static_cast<int>(random_() % 40) : INT32_MAX);
      const auto expected = plain_.run();
      ASSERT_TRUE(expected.is_ok()) << expected.status().message();
      compare(*expected, faulty_->bench().run());
      EXPECT_EQ(faulty_->source->outstanding(), 0u);
      if (faulty_->cpu) EXPECT_EQ(faulty_->source->experts_held(), 0u);
    }
    faulty_->source->break_blob(std::nullopt);
    faulty_->source->lose_after(INT32_MAX);
  }

  int right = 0, failed = 0, lost = 0;

 private:
  uint32_t any_expert() {
    const auto& blobs = faulty_->source->manifest().blobs;
    while (true)
      if (const uint32_t blob = random_() % blobs.size(); blobs[blob].kind == store::BlobKind::kExpert) return blob;
  }
  void add_some(bool decodes) {
    running_.clear();
    for (uint64_t& id : ids_) {
      if (random_() % 5 == 0) continue;
      std::vector<TokenId> tokens(decodes || random_() % 2 == 0 ? 1 : 1 + random_() % 20);
      if (lengths_[id] + std::ssize(tokens) > kContext) renew(id);
      lengths_[id] += std::ssize(tokens);
      for (TokenId& token : tokens) token = static_cast<TokenId>(random_() % vocab_);
      std::vector<TokenId> targets(tokens.size());
      for (TokenId& target : targets) target = static_cast<TokenId>(random_() % vocab_);
      for (Bench* bench : {&plain_, &faulty_->bench()}) {
        engine::PlanSequence& s = bench->add(id, tokens);
        s.sample = true;
        s.score_targets = targets;
      }
      running_.push_back(&id);
    }
  }
  /// What has failed does not go on.
  void renew(uint64_t& id) {
    for (Bench* bench : {&plain_, &faulty_->bench()})
      if (lengths_[id] > 0) bench->release(id);
    id = next_++;
  }
  void compare(const engine::StepOutcome& expected, const Result<engine::StepOutcome>& outcome) {
    if (!outcome.is_ok()) {
      EXPECT_TRUE(faulty_->source->was_lost()) << outcome.status().message();
      EXPECT_EQ(outcome.status().message(), "the store is gone");
      ++lost;
      for (uint64_t* id : running_) renew(*id);
      return;
    }
    for (size_t i = 0; i < running_.size(); ++i) {
      const engine::SequenceOutcome &is = outcome->sequences[i], &was = expected.sequences[i];
      if (is.status.is_ok()) {
        ++right;
        ASSERT_EQ(is.scores.size(), was.scores.size());
        for (size_t k = 0; k < is.scores.size(); ++k)
          ASSERT_EQ(std::bit_cast<uint32_t>(is.scores[k].logprob), std::bit_cast<uint32_t>(was.scores[k].logprob));
        ASSERT_EQ(is.sampled.at(0).id, was.sampled.at(0).id);
        continue;
      }
      ++failed;
      EXPECT_TRUE(names_what_it_needs(is.status.message(), was)) << is.status.message();
      EXPECT_TRUE(is.sampled.empty() && is.scores.empty());
      renew(*running_[i]);
    }
  }
  bool names_what_it_needs(const std::string& message, const engine::SequenceOutcome& was) const {
    return std::ranges::any_of(was.activations, [&](const auto& used) {
      const uint32_t blob = *faulty_->source->manifest().expert_blob(used.layer, used.expert, DType::kF32);
      const std::string at = "expert " + std::to_string(used.expert.value) + " of MoE layer " +
                             std::to_string(used.layer.value) + " was found wrong in memory";
      return (blob == broken_ && message.find("blob " + std::to_string(blob) + " does not match") != message.npos) ||
             (found_.contains(blob) && message.starts_with(at));
    });
  }

  std::mt19937 random_, damage_;
  std::set<uint32_t> found_;  ///< blobs that were found wrong
  Bench plain_;
  std::optional<Faulty> faulty_;
  uint32_t vocab_ = 0;
  std::vector<uint64_t> ids_;
  std::vector<uint64_t*> running_;
  std::map<uint64_t, int64_t> lengths_;
  uint64_t next_ = 100;
  std::optional<uint32_t> broken_;
};

DeviceBenchOptions scheduled(ScheduleKind schedule, int64_t micro_batches) {
  DeviceBenchOptions options{.slots = 5, .engine = plain_options()};
  options.engine.engine.schedule = schedule;
  options.engine.engine.cut.count = micro_batches;
  return options;
}

/// With room for the KV of three of the longest sequences.
DeviceBenchOptions at_home(ScheduleKind schedule, int64_t micro_batches) {
  DeviceBenchOptions options = scheduled(schedule, micro_batches);
  options.engine.engine.kv_home = KvHome::kHost;
  options.engine.engine.kv_ring_tokens = 3 * kContext;
  return options;
}

void expect_right_or_named(bool on_device, const std::function<DeviceBenchOptions(uint32_t seed)>& make) {
  int right = 0, failed = 0, lost = 0;
  for (uint32_t seed = 1; seed <= 24; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Fixture& fixture = seed % 3 == 0 ? deep_fixture() : engine::testing::any_fixture();
    Played played(fixture, on_device, make(seed), seed);
    played.run();
    if (::testing::Test::HasFailure()) return;
    right += played.right, failed += played.failed, lost += played.lost;
  }
  EXPECT_GT(right, 200);
  EXPECT_GT(failed, 50);
  EXPECT_GT(lost, 10);
}

TEST(ThroughputFaults, ExpertPipelineOnTheCpu) {
  expect_right_or_named(false, [](uint32_t seed) { return scheduled(ScheduleKind::kExpertPipeline, 1 + seed % 4); });
}

TEST(ThroughputFaults, ExpertPipelineOnADevice) {
  expect_right_or_named(true, [](uint32_t seed) {
    DeviceBenchOptions options = seed % 2 == 0 ? scheduled(ScheduleKind::kExpertPipeline, 1 + seed % 4)
                                               : at_home(ScheduleKind::kExpertPipeline, 1 + seed % 4);
    if (seed % 3 == 0) options.predictor = "next-layer-all";
    if (seed % 5 == 0) options.dense_places = 2;
    return options;
  });
}

TEST(ThroughputFaults, Cgo) {
  expect_right_or_named(true, [](uint32_t seed) {
    DeviceBenchOptions options = at_home(ScheduleKind::kCgo, 1 + seed % 4);
    if (seed % 3 == 0) options.predictor = "next-layer-all";
    options.slots = static_cast<int32_t>(1 + seed % 6);
    return options;
  });
}

}  // namespace
}  // namespace moestro::device::testing
