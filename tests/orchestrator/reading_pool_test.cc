// Long work away from the server's thread: whose turn it is, and what becomes of it when its client leaves.

#include "orchestrator/api/reading_pool.h"

#include <gtest/gtest.h>

#include <future>

#include "tests/orchestrator/api_fixture.h"

namespace moestro::orchestrator {
namespace {

using namespace testing;

TEST(WorkQueue, FlowsTakeTurns) {
  WorkQueue queue({.threads = 2});
  for (WorkQueue::Id id = 1; id <= 3; ++id) ASSERT_TRUE(queue.add(id, "ann", false));
  ASSERT_TRUE(queue.add(4, "bob", false));
  EXPECT_EQ(queue.next(), 1u);
  EXPECT_EQ(queue.next(), 4u) << "though others wait longer";
  EXPECT_EQ(queue.next(), std::nullopt) << "each has the one thread that a flow may have";
  queue.done(4);
  EXPECT_EQ(queue.next(), std::nullopt) << "a thread is left for who comes";
  queue.done(1);
  EXPECT_EQ(queue.next(), 2u);
}

TEST(WorkQueue, HeavyWorkLeavesAThreadForTheRest) {
  WorkQueue queue({.threads = 3});
  const char* const flows[] = {"a", "b", "c", "d"};
  for (WorkQueue::Id id = 0; id < 4; ++id) ASSERT_TRUE(queue.add(id, flows[id], true));
  EXPECT_TRUE(queue.next() && queue.next());
  EXPECT_EQ(queue.next(), std::nullopt);
  ASSERT_TRUE(queue.add(9, "a", false));
  EXPECT_EQ(queue.next(), 9u);
}

TEST(WorkQueue, OneThreadDoesItAll) {
  WorkQueue queue({.threads = 1});
  ASSERT_TRUE(queue.add(1, "a", true));
  EXPECT_EQ(queue.next(), 1u);
}

TEST(WorkQueue, RefusesWhatIsTooMuchOfOneOrOfAll) {
  WorkQueue queue({.threads = 2, .queued_max = 3, .queued_of_one_max = 2});
  EXPECT_TRUE(queue.add(1, "a", false));
  EXPECT_TRUE(queue.add(2, "a", false));
  EXPECT_FALSE(queue.add(3, "a", false));
  EXPECT_TRUE(queue.add(4, "b", false));
  EXPECT_FALSE(queue.add(5, "c", false));
  EXPECT_TRUE(queue.remove(1));
  EXPECT_FALSE(queue.remove(1));
  EXPECT_TRUE(queue.add(6, "c", false));
  EXPECT_EQ(queue.next(), 2u);
  EXPECT_FALSE(queue.remove(2)) << "it runs";
}

/// A pool whose "server's thread" is the test's.
class ReadingPoolTest : public ::testing::Test {
 protected:
  using Outcome = ReadingPool::Outcome;
  void post(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(work));
    came_.notify_one();
  }
  /// Does what is posted next.
  void run_one() {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(came_.wait_for(lock, std::chrono::seconds(10), [this] { return !posted_.empty(); }));
    const auto work = std::move(posted_.front());
    posted_.erase(posted_.begin());
    lock.unlock();
    work();
  }
  static Outcome say(const std::string& text) {
    return [text](const std::shared_ptr<Exchange>& e) { e->respond(200, "text/plain", text, {}); };
  }
  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<std::function<void()>> posted_;
  ReadingPool pool_{{.threads = 2}, [this](std::function<void()> work) { post(std::move(work)); }};
};

TEST_F(ReadingPoolTest, WorksElsewhereAndAnswersHere) {
  const auto exchange = std::make_shared<FakeExchange>();
  const auto here = std::this_thread::get_id();
  ASSERT_TRUE(pool_.run("a", false, [here](const std::stop_token&) {
    EXPECT_NE(std::this_thread::get_id(), here);
    return say("done");
  }, exchange));
  EXPECT_FALSE(exchange->done);
  run_one();
  EXPECT_EQ(exchange->body, "done");
}

TEST_F(ReadingPoolTest, AClientThatLeavesStopsItsWork) {
  const auto exchange = std::make_shared<FakeExchange>();
  std::promise<void> begun;
  ASSERT_TRUE(pool_.run("a", false, [&](const std::stop_token& stop) {
    begun.set_value();
    while (!stop.stop_requested()) std::this_thread::yield();
    return say("nobody hears this");
  }, exchange));
  begun.get_future().wait();
  exchange->gone();
  run_one();
  EXPECT_FALSE(exchange->done);
}

TEST_F(ReadingPoolTest, WhatWaitsForAClientThatHasLeftIsNotDone) {
  const auto first = std::make_shared<FakeExchange>(), second = std::make_shared<FakeExchange>(),
             third = std::make_shared<FakeExchange>();
  std::promise<void> begun, go_on;
  ASSERT_TRUE(pool_.run("a", false, [&](const std::stop_token&) {
    begun.set_value();
    go_on.get_future().wait();
    return say("first");
  }, first));
  begun.get_future().wait();
  ASSERT_TRUE(pool_.run("a", false, [](const std::stop_token&) {
    ADD_FAILURE() << "its client has left";
    return say("second");
  }, second));
  second->gone();
  ASSERT_TRUE(pool_.run("a", false, [](const std::stop_token&) { return say("third"); }, third));
  ASSERT_TRUE(pool_.run("b", true, [](const std::stop_token&) { return say("of another"); }, second));
  run_one();
  EXPECT_EQ(second->body, "of another") << "it did not wait for the first";
  go_on.set_value();
  run_one();
  run_one();
  EXPECT_TRUE(first->done && third->done);
}

}  // namespace
}  // namespace moestro::orchestrator
