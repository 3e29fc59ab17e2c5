// The routing trace has every position of a sequence once, and none that was dropped.

#include "services/worker/service/route_trace.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/engine/engine_bench.h"

namespace moestro::worker {
namespace {

using engine::testing::Bench;

class RouteTraceTest : public ::testing::Test {
 protected:
  RouteTraceTest() : bench_(engine::testing::any_fixture()) {
    auto trace = RouteTrace::create(path_, "m", bench_.engine().spec());
    MOESTRO_CHECK(trace.is_ok(), trace.status().message());
    trace_ = std::move(*trace);
    bench_.engine().set_route_observer([this](const engine::RoutedTokens& tokens) { trace_->write(tokens); });
    bench_.engine().set_release_observer(
        [this](const ReleasedSequence& released) { trace_->release(released); });
  }
  /// Computes these tokens of a sequence.
  void step(uint64_t id, const std::vector<TokenId>& tokens, bool text_ends = false) {
    engine::PlanSequence& s = bench_.add(id, tokens);
    s.sample = true;
    s.text_ends = text_ends;
    const auto outcome = bench_.run();
    MOESTRO_CHECK(outcome.is_ok() && outcome->sequences[0].status.is_ok(), "a step");
  }
  void release(uint64_t id, int64_t length) {
    const ReleasedSequence released{SequenceId(id), length};
    bench_.engine().release(std::span(&released, 1));
  }
  std::vector<int64_t> positions(uint64_t id) const {
    std::ifstream file(path_);
    std::vector<int64_t> found;
    for (std::string line; std::getline(file, line);) {
      const auto json = nlohmann::json::parse(line);
      if (json.contains("r") && json["r"] == id) found.push_back(json["t"]);
    }
    return found;
  }

  using Positions = std::vector<int64_t>;
  engine::testing::TempDir dir_;
  const std::filesystem::path path_ = dir_.path() / "routes.jsonl";
  Bench bench_;
  std::unique_ptr<RouteTrace> trace_;
};

TEST_F(RouteTraceTest, WhatASequenceGoesOnFromIsWritten) {
  step(1, {5, 6, 7});
  step(1, {8});
  EXPECT_EQ(positions(1), (Positions{0, 1, 2})) << "the last may be ahead of what is known";
  step(1, {kSampledByParent});
  EXPECT_EQ(positions(1), (Positions{0, 1, 2, 3}));
  release(1, 5);
  EXPECT_EQ(positions(1), (Positions{0, 1, 2, 3, 4}));
}

TEST_F(RouteTraceTest, WhatWasComputedBeyondTheEndIsNot) {
  step(1, {5, 6, 7});
  step(1, {8});
  step(1, {9});
  release(1, 4);
  EXPECT_EQ(positions(1), (Positions{0, 1, 2, 3}));
}

TEST_F(RouteTraceTest, WhereTheTextEndsItTheReleaseSaysHowFar) {
  step(1, {5, 6, 7}, true);
  for (const TokenId token : {8, 9, 10, 11}) step(1, {token}, true);
  EXPECT_EQ(positions(1), Positions());
  release(1, 5);
  EXPECT_EQ(positions(1), (Positions{0, 1, 2, 3, 4}));
  release(1, 7);
  EXPECT_EQ(positions(1).size(), 5u);
}

TEST_F(RouteTraceTest, WhatIsComputedAgainIsThereOnce) {
  step(1, {5, 6, 7});
  step(1, {8});  // dropped: the sequence is sent back with 3 positions
  bench_.release(1);
  bench_.plan().released.back().length = 3;
  bench_.add(1, {5, 6, 7, 8}).counted = 3;
  ASSERT_TRUE(bench_.run().is_ok());
  release(1, 4);
  EXPECT_EQ(positions(1), (Positions{0, 1, 2, 3}));
}

TEST_F(RouteTraceTest, WhatNobodyReleasedIsWrittenAtTheEnd) {
  step(1, {5, 6, 7}, true);
  step(2, {5, 6});
  trace_.reset();
  EXPECT_EQ(positions(1).size(), 3u);
  EXPECT_EQ(positions(2).size(), 2u);
}

}  // namespace
}  // namespace moestro::worker
