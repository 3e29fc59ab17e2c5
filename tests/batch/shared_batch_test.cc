// Batches in a Redis: whose lines are whose, and what arrives there late.

#include <regex>
#include <semaphore>

#include "orchestrator/state/redis_store.h"
#include "tests/batch/batch_api_fixture.h"

namespace moestro::orchestrator {
namespace {

class SharedBatchTest : public BatchApiTest {
 protected:
  /// As the orchestrator under test, over another connection.
  std::unique_ptr<RedisStore> same_host() { return host(box_->host(), *version_.load()); }
  /// An orchestrator that serves this version of the model.
  std::unique_ptr<RedisStore> host(const std::string& name, const std::string& version) {
    auto host = std::make_unique<RedisStore>(RedisOptions{*parse_redis_url(box_->redis().url()), name});
    EXPECT_TRUE(host->beat({version, {model_}}).is_ok());
    return host;
  }
  /// 3 MiB, and 5 MiB of results: those do not fit twice into 12 MiB.
  static std::string large_input() {
    std::string input;
    for (int i = 0; i < 6000; ++i)
      input += json{{"custom_id", std::to_string(i) + std::string(490, 'x')}, {"method", "PUT"}}.dump() + "\n";
    return input;
  }
  bool is_stalled() { return ask("GET", "/v1/moestro/status")["batches"]["stalled"].is_string(); }
  size_t in_flight() { return ask("GET", "/v1/moestro/status")["batches"]["lines"]["in_flight"].get<size_t>(); }
  /// Holds up the runner's thread as soon as so many lines are in flight, until it is released.
  void hold_at(size_t lines) {
    if (runner_->figures().in_flight < lines) return runner_->ask([this, lines] { hold_at(lines); });
    is_held_.release();
    go_on_.acquire();
  }
  std::binary_semaphore is_held_{0}, go_on_{0};
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

TEST_P(SharedBatchTest, NothingIsWrittenOfFilesThatHaveNoRoom) {
  RedisLink link(*parse_redis_url(box_->redis().url()), {});
  // Of a file, and of nothing else, each piece is followed by an EXPIRE.
  const auto pieces_written = [&] {
    const auto info = link.call({"INFO", "commandstats"});
    const std::string text(info.is_ok() ? (*info)->text() : "");
    const size_t at = text.find("cmdstat_expire:");
    return at == std::string::npos ? "" : text.substr(at, text.find(',', at) - at);
  };
  ASSERT_TRUE(link.call({"CONFIG", "SET", "maxmemory", "12mb"}).is_ok());
  const std::string file = upload(large_input());
  ASSERT_FALSE(file.empty());
  const std::string pieces = pieces_written();
  ASSERT_FALSE(pieces.empty());
  const std::string id = create(file);
  run_until([&] { return is_stalled(); });
  const std::string why = ask("GET", "/v1/moestro/status")["batches"]["stalled"];
  EXPECT_THAT(why, AllOf(HasSubstr("maxmemory"), HasSubstr("--drop-results")));
  EXPECT_EQ(ask("GET", "/v1/batches/" + id)["request_counts"]["failed"], 6000);
  EXPECT_EQ(pieces_written(), pieces);
  ASSERT_TRUE(link.call({"CONFIG", "SET", "maxmemory", "0"}).is_ok());
  EXPECT_EQ(custom_ids(content(wait_for(id, "completed")["error_file_id"])).size(), 6000u);
}

TEST_P(SharedBatchTest, OneThatHasExpiredAndFillsTheMemoryCanBeCancelledAndKeepsItsResults) {
  RedisLink link(*parse_redis_url(box_->redis().url()), {});
  ASSERT_TRUE(link.call({"CONFIG", "SET", "maxmemory", "12mb"}).is_ok());
  const std::string id = create(upload(large_input()));
  run_until([&] { return is_stalled(); });
  now_ = 1000 + 24 * 3600;
  wait_for(id, "finalizing");
  EXPECT_EQ(ask("POST", "/v1/batches/" + id + "/cancel")["status"], "cancelling");
  ASSERT_TRUE(link.call({"CONFIG", "SET", "maxmemory", "0"}).is_ok());
  EXPECT_EQ(custom_ids(content(wait_for(id, "cancelled")["error_file_id"])).size(), 6000u);
}

TEST_P(SharedBatchTest, OneThatFillsTheMemoryMakesRoomWhenItsResultsAreDropped) {
  RedisLink link(*parse_redis_url(box_->redis().url()), {});
  const std::string other = create(upload(lines(20)));
  run_until([&] { return in_flight() == 4; });  // no worker: they wait
  ASSERT_TRUE(link.call({"CONFIG", "SET", "maxmemory", "12mb"}).is_ok());
  const std::string file = upload(large_input());
  const std::string large = create(file);
  run_until([&] { return is_stalled(); });
  ASSERT_TRUE(link.call({"CONFIG", "SET", "maxmemory", "1mb"}).is_ok());  // there is no room for anything
  join();                                                                // the other's results wait for room
  EXPECT_EQ(ask("POST", "/v1/batches/" + large + "/cancel")["status"], "cancelling");
  ask("POST", "/v1/batches/" + large + "/cancel", {{"drop", true}}, 400);
  ask("POST", "/v1/batches/" + large + "/cancel", {{"drop_results", true}});
  const json batch = wait_for(large, "cancelled");
  EXPECT_EQ(batch["errors"]["data"][0]["code"], "results_dropped") << batch;
  EXPECT_TRUE(batch["output_file_id"].is_null() && batch["error_file_id"].is_null());
  for (const char* what : {"moestro:results:", "moestro:queue:", "moestro:done:"}) {
    const std::string key = what + large;
    EXPECT_EQ((*link.call({"EXISTS", key}))->integer(), 0) << key;
  }
  ask("DELETE", "/v1/files/" + file);
  ASSERT_TRUE(link.call({"CONFIG", "SET", "maxmemory", "12mb"}).is_ok());
  EXPECT_EQ(wait_for(other, "completed")["request_counts"]["completed"], 20) << "it goes on when there is room";
}

TEST_P(SharedBatchTest, OneWhoseFilesHaveNoRoomHoldsUpNoOther) {
  RedisLink link(*parse_redis_url(box_->redis().url()), {});
  ASSERT_TRUE(link.call({"CONFIG", "SET", "maxmemory", "12mb"}).is_ok());
  const std::string large = create(upload(large_input()));
  run_until([&] { return is_stalled(); });
  join();
  for (const char* status : {"in_progress", "cancelling"}) {
    EXPECT_EQ(wait_for(create(upload(lines(20))), "completed")["request_counts"]["completed"], 20) << status;
    EXPECT_EQ(ask("GET", "/v1/batches/" + large)["status"], status);
    EXPECT_TRUE(is_stalled()) << "somebody has to make room";
    ask("POST", "/v1/batches/" + large + "/cancel");
  }
  ASSERT_TRUE(link.call({"CONFIG", "SET", "maxmemory", "0"}).is_ok());
  EXPECT_EQ(custom_ids(content(wait_for(large, "cancelled")["error_file_id"])).size(), 6000u);
  EXPECT_FALSE(is_stalled());
}

TEST_P(SharedBatchTest, ALineThatTwoHostsRunIsCountedByTheOneWhoseResultIsKept) {
  join();
  const std::string id = create(upload(lines(4)));
  runner_->ask([this] { hold_at(4); });
  is_held_.acquire();
  const auto first = same_host()->put_results(id, std::vector<LineResult>{{1, true, "{}"}, {2, false, "{}"}});
  go_on_.release();
  ASSERT_TRUE(first.is_ok());
  EXPECT_EQ(wait_for(id, "completed")["request_counts"], (json{{"total", 4}, {"completed", 3}, {"failed", 1}}));
  EXPECT_THAT(send("GET", "/metrics")->body, AllOf(HasSubstr("lines_total{model=\"m\",result=\"ok\"} 2\n"),
                                                   HasSubstr("lines_total{model=\"m\",result=\"error\"} 0\n")));
}

/// One in which Redis refuses each script, as one that does not answer fails each call.
class RefusedScripts : public SharedBatchTest {
 protected:
  void SetUp() override {
    SharedBatchTest::SetUp();
    if (IsSkipped()) return;
    stop();
    box_->set_lease(std::chrono::hours(4));
    limits_.look = limits_.stalled = std::chrono::hours(1);  // it stands still once, and asks nothing by itself
    start();
    link_.emplace(*parse_redis_url(box_->redis().url()), RedisLink::Limits{});
  }
  void refuse_scripts() { EXPECT_TRUE(link_->call({"ACL", "SETUSER", "default", "-@scripting"}).is_ok()); }
  int scripts_refused() {
    const auto info = link_->call({"INFO", "commandstats"});
    const std::string text(info.is_ok() ? (*info)->text() : "");
    std::smatch found;
    const std::regex refused("cmdstat_eval:[^\r]*rejected_calls=([0-9]+)");
    return std::regex_search(text, found, refused) ? std::stoi(found[1]) : -1;
  }
  /// Until all that the runner was asked before is done, with the rest of that turn.
  void finish_turn() {
    std::atomic<bool> is_over{false};
    runner_->ask([&] { runner_->ask([&] { is_over = true; }); });
    run_until([&] { return is_over.load(); });
  }

  std::optional<RedisLink> link_;
};

TEST_P(RefusedScripts, AStateThatDoesNotAnswerIsAskedOnceInATurn) {
  join();
  const std::string input = upload(lines(2));
  const auto order = [&] {
    return post("/v1/batches",
                {{"input_file_id", input}, {"endpoint", "/v1/completions"}, {"completion_window", "24h"}});
  };
  order(), order();
  runner_->ask([this] { hold_at(4); });
  is_held_.acquire();  // nothing is computed meanwhile
  run_until([&] { return ask("GET", "/v1/moestro/status")["requests"]["ended"]["ok"] == 4; });
  // So the next turn has results of both, and two new ones to check.
  order();
  const auto last = order();
  runner_->ask([this] { refuse_scripts(); });
  go_on_.release();
  finish(*last);
  ASSERT_EQ(last->status, 200) << last->body;
  finish_turn();
  EXPECT_TRUE(is_stalled());
  EXPECT_EQ(scripts_refused(), 1);
}

INSTANTIATE_TEST_SUITE_P(One, RefusedScripts, ::testing::Values(test::Backend::kRedis),
                         [](const auto& each) { return test::backend_name(each.param); });
INSTANTIATE_TEST_SUITE_P(One, SharedBatchTest, ::testing::Values(test::Backend::kRedis),
                         [](const auto& each) { return test::backend_name(each.param); });

}  // namespace
}  // namespace moestro::orchestrator
