#include "services/worker/service/worker_history.h"

#include <gtest/gtest.h>

#include "common/shm/descriptor_socket.h"
#include "common/wire/worker_messages_generated.h"
#include "tests/activation/shared_history.h"
#include "tests/cli/temp_dir.h"

namespace moestro::worker {
namespace {

using activation::testing::content;
using activation::testing::match_whole_entries;
using activation::testing::shared_history;

constexpr activation::EamcShape kShape{3, 8, 2};

class WorkerHistoryTest : public ::testing::Test {
 protected:
  /// Hands a history out where the orchestrator would.
  void hand_out(const activation::ActivationHistory& history) {
    server_.reset();
    auto server = shm::DescriptorServer::listen(dir_ / "o.history", history.memory()->fd(), {});
    MOESTRO_CHECK(server.is_ok(), server.status().message());
    server_ = std::move(*server);
  }
  /// What it answers to a segment: whether it is mapped, and else why not.
  std::pair<bool, std::string> told(uint64_t segment) {
    const auto answer = history_.take({.segment = segment});
    MOESTRO_CHECK(answer.has_value(), "an answer");
    const auto* reader = wire::GetWorkerMessage(answer->data())->body_as_HistoryReader();
    MOESTRO_CHECK(reader->segment() == segment, "of the segment");
    return {reader->mapped(), reader->message()->str()};
  }
  void sent(bool reset, int32_t entry, uint32_t expert) {
    EXPECT_FALSE(history_.take({.reset = reset, .capacity = 4, .entries = {{true, entry, content(kShape, expert)}}}));
  }
  size_t of(uint32_t expert) const { return match_whole_entries(history_.view().answers, expert); }

  test::TempDir dir_;
  std::unique_ptr<shm::DescriptorServer> server_;
  WorkerHistory history_{kShape, 7, "ipc://" + (dir_ / "o.sock").string()};
};

TEST_F(WorkerHistoryTest, KnowsNothingUntilItIsTold) {
  EXPECT_EQ(history_.view().answers.size(), 0);
  EXPECT_EQ(of(1), 0U);
}

TEST_F(WorkerHistoryTest, MapsWhatItIsToldOfAndThenItsSuccessor) {
  activation::ActivationHistory first = shared_history(kShape, 4, 7, 70), second = shared_history(kShape, 9, 7, 71);
  hand_out(first);
  EXPECT_EQ(told(70), std::pair(true, std::string()));
  ASSERT_TRUE(first.answers.set(0, content(kShape, 1)).is_ok());
  EXPECT_EQ(of(1), 1U);
  EXPECT_TRUE(told(70).first) << "once more: it has it";
  hand_out(second);
  ASSERT_TRUE(second.answers.set(0, content(kShape, 2)).is_ok());
  EXPECT_EQ(of(1), 1U) << "until it is told";
  EXPECT_TRUE(told(71).first);
  EXPECT_EQ(of(1), 0U);
  EXPECT_EQ(of(2), 1U);
}

TEST_F(WorkerHistoryTest, WhatItCannotMapIsSentToItAndOnceItCanThatIsOver) {
  EXPECT_NE(told(70).second.find("nobody hands out memory"), std::string::npos);
  sent(true, 0, 3);
  sent(false, 1, 3);
  EXPECT_FALSE(history_.mapped());
  EXPECT_EQ(of(3), 2U);
  activation::ActivationHistory history = shared_history(kShape, 4);
  hand_out(history);
  EXPECT_NE(told(69).second.find("another shared history"), std::string::npos);
  EXPECT_EQ(of(3), 2U) << "what it has stays";
  EXPECT_TRUE(told(70).first);
  EXPECT_EQ(of(3), 0U);
  sent(true, 0, 5);
  EXPECT_FALSE(history_.mapped());
  EXPECT_EQ(of(5), 1U);
}

TEST_F(WorkerHistoryTest, AHistoryOfAnotherPackIsNotMapped) {
  const activation::ActivationHistory pack = shared_history(kShape, 4, 8), shape = shared_history({3, 8, 1}, 4);
  hand_out(pack);
  EXPECT_NE(told(70).second.find("another pack"), std::string::npos);
  hand_out(shape);
  EXPECT_NE(told(70).second.find("another pack"), std::string::npos);
  EXPECT_FALSE(history_.mapped());
}

TEST_F(WorkerHistoryTest, AChangeThatDoesNotFitLeavesWhatThereIs) {
  sent(true, 0, 3);
  EXPECT_FALSE(history_.take({.reset = true, .capacity = 1 << 30}));
  sent(false, 3, 3);  // an entry beyond the next
  EXPECT_EQ(of(3), 1U);
  sent(true, 3, 5);  // a whole history that begins with such a one
  EXPECT_EQ(of(3), 1U);
  sent(false, 1, 3);
  EXPECT_EQ(of(3), 2U) << "what it has goes on";
}

TEST(WorkerHistory, OfAnOrchestratorElsewhereItSaysSo) {
  WorkerHistory history(kShape, 7, "tcp://10.0.0.5:7000");
  const auto answer = history.take({.segment = 70});
  ASSERT_TRUE(answer);
  const auto* reader = wire::GetWorkerMessage(answer->data())->body_as_HistoryReader();
  EXPECT_FALSE(reader->mapped());
  EXPECT_EQ(reader->message()->str(), "the orchestrator's address is not of this host");
}

}  // namespace
}  // namespace moestro::worker
