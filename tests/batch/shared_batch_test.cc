// Batches in a Redis: whose lines are whose, and what arrives there late.

#include "orchestrator/state/redis_store.h"
#include "tests/batch/batch_api_fixture.h"

namespace moestro::orchestrator {
namespace {

class SharedBatchTest : public BatchApiTest {
 protected:
  /// As the orchestrator under test, over another connection.
  std::unique_ptr<RedisStore> same_host() {
    return std::make_unique<RedisStore>(RedisOptions{*parse_redis_url(box_->redis().url()), box_->host()});
  }
  size_t in_flight() { return ask("GET", "/v1/moestro/status")["batches"]["lines"]["in_flight"].get<size_t>(); }
};

TEST_P(SharedBatchTest, AsManyLinesAreTakenAsThereIsRoomForAndNoLookIsWaitedFor) {
  stop();
  box_->set_lease(std::chrono::hours(4));
  limits_.look = std::chrono::hours(1);
  limits_.lines_in_flight = [] { return size_t{700}; };  // more than one call takes
  start();
  create(upload(lines(800)));  // no worker: its lines wait
  run_until([&] { return in_flight() == 700; });
}

TEST_P(SharedBatchTest, ATakeThatArrivesLateKeepsNoLines) {
  const std::string id = create(upload(lines(20)));
  run_until([&] { return in_flight() == 4; });  // no worker: they wait
  // The connection was given up, and Redis gets what was sent over it now.
  ASSERT_EQ(same_host()->take(id, 5)->size(), 5u);
  join();
  EXPECT_EQ(wait_for(id, "completed")["request_counts"]["completed"], 20);
}

TEST_P(SharedBatchTest, AnOfferThatArrivesLateLeavesNoLinesOut) {
  const auto late = same_host();
  std::atomic<bool> arrived{false};
  const std::function<void()> arrive = [&] {  // as soon as the check is under way
    const auto open = late->unfinished();
    const bool waits = open.is_ok() && (open->empty() || open->front().status == BatchStatus::kValidating);
    if (waits && !open->empty())
      arrived = late->offer(open->front().id, std::vector<QueuedLine>{{2000, 0}}, false).is_ok();
    if (waits && !arrived) runner_->ask(arrive);
  };
  runner_->ask(arrive);
  const std::string id = create(upload(lines(2001)));
  run_until([&] { return ask("GET", "/v1/batches/" + id)["status"] == "in_progress"; });
  EXPECT_TRUE(arrived);
  RedisLink link(*parse_redis_url(box_->redis().url()), {});
  const std::string queue = "moestro:queue:" + id;
  EXPECT_EQ((*link.call({"XLEN", queue}))->integer(), 2001);
}

INSTANTIATE_TEST_SUITE_P(One, SharedBatchTest, ::testing::Values(test::Backend::kRedis),
                         [](const auto& each) { return test::backend_name(each.param); });

}  // namespace
}  // namespace moestro::orchestrator
