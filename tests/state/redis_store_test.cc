// Redis as a state: which are refused, what a break of the connection does, and whose lines are whose.

#include "orchestrator/state/redis_store.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <regex>

#include "orchestrator/batch/redis_files.h"
#include "orchestrator/state/redis_migrations.h"
#include "orchestrator/state/redis_safety.h"
#include "tests/state/state_backends.h"

namespace moestro::orchestrator {
namespace {

using test::RedisServer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Lines = std::vector<QueuedLine>;

const ServedVersion kServed{"1", {"m"}};

std::unique_ptr<RedisStore> store_at(const std::string& url, const std::string& host,
                                     std::chrono::milliseconds lease = std::chrono::milliseconds(200)) {
  const auto place = parse_redis_url(url);
  MOESTRO_CHECK(place.is_ok(), place.status().message());
  RedisOptions options{*place, host, lease};
  options.limits.pause = std::chrono::milliseconds(1);
  return std::make_unique<RedisStore>(options);
}

/// Asks until it is so: leases end by the clock of Redis alone.
template <typename Condition>
bool in_time(Condition condition) {
  for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
       std::chrono::steady_clock::now() < end;)
    if (condition()) return true;
  return false;
}

class RedisStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!RedisServer::is_installed()) GTEST_SKIP() << "redis-server is not installed";
  }
  /// Why a server with these settings is refused; empty: it is not.
  static std::string refusal(std::vector<std::string> settings, const std::string& options = "") {
    const RedisServer server(std::move(settings));
    const Status asked = store_at(server.url() + options, "a")->unfinished().status();
    EXPECT_TRUE(asked.is_ok() || asked.code() == Code::kUnavailable);
    return asked.is_ok() ? "" : asked.message();
  }
  /// A batch in progress with lines 1 to n, led by `leader`.
  static void begin_batch(RedisStore& leader, uint64_t n) {
    BatchRecord b;
    b.id = "batch_1", b.input_file = "file-1", b.model = "m";
    ASSERT_TRUE(leader.beat(kServed).is_ok());
    ASSERT_TRUE(leader.add_batch(b).is_ok());
    ASSERT_TRUE(*leader.lead("batch_1"));
    ASSERT_TRUE(leader.offer("batch_1", {}, true).is_ok());
    Lines lines;
    for (uint64_t i = 1; i <= n; ++i) lines.push_back({i, i * 10});
    ASSERT_TRUE(leader.offer("batch_1", lines, false).is_ok());
    b.status = BatchStatus::kInProgress, b.total = n;
    ASSERT_TRUE(leader.change_batch(b, BatchStatus::kValidating).is_ok());
  }
  static LineResult result(uint64_t line, std::string text = "text") { return {line, true, std::move(text), 1, 0, 1}; }
};

TEST_F(RedisStoreTest, OneThatMayLoseWhatItAcknowledgedIsRefusedWithTheReason) {
  EXPECT_THAT(refusal({"--appendonly", "no"}), HasSubstr("set `appendonly yes`"));
  EXPECT_THAT(refusal({"--appendfsync", "no"}), HasSubstr("appendfsync is 'no'"));
  EXPECT_THAT(refusal({"--appendfsync", "everysec"}), HasSubstr("?window=2s"));
  EXPECT_EQ(refusal({"--appendfsync", "everysec"}, "?window=2s"), "");
  EXPECT_THAT(refusal({"--no-appendfsync-on-rewrite", "yes"}), HasSubstr("no-appendfsync-on-rewrite no"));
  EXPECT_THAT(refusal({"--maxmemory-policy", "allkeys-lru"}), HasSubstr("noeviction"));
  EXPECT_THAT(refusal({"--rename-command", "CONFIG", "hidden"}), HasSubstr("CONFIG GET"));
  EXPECT_THAT(refusal({"--requirepass", "secret"}), HasSubstr("NOAUTH"));
  EXPECT_EQ(refusal({}), "");
}

/// Valkey has another name for its mode, and redis_version for the sake of clients.
TEST_F(RedisStoreTest, AValkeyIsTaken) {
  RedisServer server;
  const RedisPlace place = *parse_redis_url(server.url());
  RedisLink link(place, {});
  const Status safe = check_redis_safe(place, [&](const RedisLink::Words& words) -> Result<RedisReply> {
    if (words != RedisLink::Words{"INFO", "server"}) return link.call(words);
    MOESTRO_ASSIGN_OR_RETURN(const RedisReply info, link.call(words));
    const std::string text = std::regex_replace(std::string(info->text()), std::regex("redis_mode:"), "server_mode:");
    return link.call({"ECHO", text});
  });
  EXPECT_TRUE(safe.is_ok()) << safe.message();
}

TEST_F(RedisStoreTest, AClusterIsRefused) {
  RedisServer server({"--cluster-enabled", "yes"});
  EXPECT_FALSE(store_at(server.url(), "a")->unfinished().is_ok()) << "it has one database alone";
  const auto store = store_at("redis://127.0.0.1:" + std::to_string(server.port()), "a");
  EXPECT_THAT(store->unfinished().status().message(), HasSubstr("it is a cluster"));
}

// Its INFO has no such section.
TEST_F(RedisStoreTest, ASentinelIsRefused) {
  RedisServer server;
  const RedisPlace place = *parse_redis_url(server.url());
  RedisLink link(place, {});
  const Status safe = check_redis_safe(place, [&](const RedisLink::Words& words) {
    return words == RedisLink::Words{"INFO", "cluster"} ? link.call({"ECHO", ""}) : link.call(words);
  });
  EXPECT_THAT(safe.message(), HasSubstr("it keeps no keys, as a sentinel"));
}

TEST_F(RedisStoreTest, OneWhoseClockIsAnotherIsRefused) {
  RedisServer server;
  const RedisPlace place = *parse_redis_url(server.url());
  RedisLink link(place, {});
  const auto refusal_at = [&](std::chrono::seconds apart) {
    const Status safe = check_redis_safe(place, [&](const RedisLink::Words& words) {
      if (words != RedisLink::Words{"TIME"}) return link.call(words);
      const auto now = std::chrono::system_clock::now() + apart;
      const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now.time_since_epoch()).count();
      return link.call({"EVAL", "return {ARGV[1], '0'}", "0", std::to_string(seconds)});
    });
    return safe.message();
  };
  EXPECT_EQ(refusal_at(std::chrono::minutes(4)), "");
  EXPECT_THAT(refusal_at(std::chrono::hours(-1)), HasSubstr("ahead of that of Redis"));
  EXPECT_THAT(refusal_at(std::chrono::hours(1)), HasSubstr("behind that of Redis"));
}

TEST_F(RedisStoreTest, PasswordsAndUsers) {
  RedisServer server({"--requirepass", "open sesame"});
  const std::string at = "@127.0.0.1:" + std::to_string(server.port());
  EXPECT_TRUE(store_at("redis://:open%20sesame" + at, "a")->unfinished().is_ok());
  EXPECT_TRUE(store_at("redis://default:open%20sesame" + at, "a")->unfinished().is_ok());
  const Status wrong = store_at("redis://:wrong" + at, "a")->unfinished().status();
  EXPECT_EQ(wrong.code(), Code::kUnavailable);
  EXPECT_THAT(wrong.message(), HasSubstr("WRONGPASS"));
}

TEST_F(RedisStoreTest, KeysOfALaterVersionAreLeftAlone) {
  RedisServer server;
  const auto place = *parse_redis_url(server.url());
  RedisLink link(place, {});
  ASSERT_TRUE(link.call({"SET", "moestro:version", "9"}).is_ok());
  const Status refused = store_at(server.url(), "a")->unfinished().status();
  EXPECT_EQ(refused.code(), Code::kUnavailable);
  EXPECT_THAT(refused.message(), HasSubstr("version 9"));
}

TEST_F(RedisStoreTest, KeysOfTheFirstVersionAreTakenOver) {
  RedisServer server;
  RedisLink link(*parse_redis_url(server.url()), {});
  for (const RedisLink::Words& words : std::vector<RedisLink::Words>{
           {"FLUSHALL"},
           {"SET", "moestro:version", "1"},
           {"SET", "moestro:next", "2"},
           {"HSET", "moestro:file:file-old", "id", "file-old", "purpose", "batch", "bytes", "0"},
           {"ZADD", "moestro:files", "1", "file-old"},
           {"ZADD", "moestro:files:batch", "1", "file-old"},
           {"HSET", "moestro:batch:batch_old", "id", "batch_old", "status", "2", "input_file", "file-x"},
           {"ZADD", "moestro:batches", "2", "batch_old"},
           {"ZADD", "moestro:open", "2", "batch_old"}})
    ASSERT_TRUE(link.call(words).is_ok());
  for (const char* host : {"a", "b"}) {
    const auto store = store_at(server.url(), host);
    const auto nobodys = store->files({.purpose = "batch", .owner = ""});
    ASSERT_TRUE(nobodys.is_ok()) << nobodys.status().message();
    ASSERT_EQ(nobodys->size(), 1u);
    EXPECT_EQ(nobodys->front().id, "file-old");
    EXPECT_EQ(store->batches({.owner = ""})->size(), 1u);
    EXPECT_TRUE(store->files({.owner = "ann"})->empty());
    EXPECT_EQ(store->unfinished()->size(), 1u);
  }
  EXPECT_EQ((*link.call({"GET", "moestro:version"}))->text(), std::to_string(redis_version()));
  ASSERT_TRUE(store_at(server.url(), "c")->remove_file("file-old").is_ok());
  EXPECT_EQ((*link.call({"EXISTS", "moestro:files:of:", "moestro:files:batch:of:", "moestro:files"}))->integer(), 0);
}

TEST_F(RedisStoreTest, WhatWasAcknowledgedSurvivesAKillOfRedis) {
  RedisServer server;
  const auto store = store_at(server.url(), "a");
  begin_batch(*store, 3);
  ASSERT_TRUE(store->put_results("batch_1", std::vector{result(2, "kept")}).is_ok());
  server.kill();
  const Status away = store->put_results("batch_1", std::vector{result(3)}).status();
  EXPECT_EQ(away.code(), Code::kUnavailable);
  EXPECT_THAT(away.message(), HasSubstr("is away"));
  server.start();
  ASSERT_TRUE(in_time([&] {
    return store->put_results("batch_1", std::vector{result(2, "again"), result(3)}).is_ok();
  }));
  const auto kept = store->results("batch_1", 0, 10);
  ASSERT_TRUE(kept.is_ok());
  ASSERT_EQ(kept->size(), 2u);
  EXPECT_EQ((*kept)[0].text, "kept");
  EXPECT_EQ((*store->batch("batch_1"))->completed, 2u);
  EXPECT_THAT(*store->take("batch_1", 9), ElementsAre(QueuedLine{1, 10}));
}

TEST_F(RedisStoreTest, ResultsOfACallWhoseAnswerWasLostAreCountedByTheNext) {
  RedisServer server;
  const auto store = store_at(server.url(), "a"), other = store_at(server.url(), "b");
  begin_batch(*store, 4);
  ASSERT_TRUE(other->beat(kServed).is_ok());
  std::vector<LineResult> results{result(1), result(2)};
  results[1].good = false;
  ASSERT_TRUE(store->put_results("batch_1", results).is_ok());  // its answer is lost
  results.push_back(result(3));
  const auto counts = [](RedisStore& of, const std::vector<LineResult>& again) {
    const auto kept = of.put_results("batch_1", again);
    EXPECT_TRUE(kept.is_ok()) << kept.status().message();
    return std::pair(kept->good, kept->bad);
  };
  EXPECT_EQ(counts(*store, results), std::pair(uint64_t{2}, uint64_t{1}));
  EXPECT_EQ(counts(*other, {result(1, "b's"), result(4, "b's")}), std::pair(uint64_t{1}, uint64_t{0}));
  BatchRecord batch = **store->batch("batch_1");
  EXPECT_EQ(std::pair(batch.completed, batch.failed), std::pair(uint64_t{3}, uint64_t{1})) << "each once";
  batch.status = BatchStatus::kFinalizing, batch.output_file = "file-out";
  ASSERT_TRUE(store->change_batch(batch, BatchStatus::kInProgress).is_ok());
  EXPECT_EQ(counts(*store, results), std::pair(uint64_t{2}, uint64_t{1})) << "its files are being written meanwhile";
}

TEST_F(RedisStoreTest, ARestartOfRedisWhileNobodyAskedIsNotSeen) {
  RedisServer server;
  const RedisFiles files(*parse_redis_url(server.url()), "a");
  const auto store = store_at(server.url(), "a");
  ASSERT_TRUE(store->unfinished().is_ok() && files.create("file-1").is_ok());
  server.kill();
  server.start();
  const Status asked = store->unfinished().status(), created = files.create("file-1").status();
  EXPECT_TRUE(asked.is_ok()) << asked.message();
  EXPECT_TRUE(created.is_ok()) << created.message();
}

TEST_F(RedisStoreTest, OneThatBecomesAReplicaIsConnectedToAnew) {
  RedisServer server;
  RedisLink link(*parse_redis_url(server.url()), {});
  const auto store = store_at(server.url(), "a");
  ASSERT_TRUE(store->beat(kServed).is_ok());
  ASSERT_TRUE(link.call({"REPLICAOF", "127.0.0.1", "1"}).is_ok());
  EXPECT_EQ(store->beat(kServed).status().code(), Code::kUnavailable);
  EXPECT_THAT(store->beat(kServed).status().message(), HasSubstr("give its master"));
  ASSERT_TRUE(link.call({"REPLICAOF", "NO", "ONE"}).is_ok());
  EXPECT_TRUE(in_time([&] { return store->beat(kServed).is_ok(); }));
}

/// The kernel takes its connections; nobody answers.
TEST(RedisLinkTest, OneThatHangsIsAwayAsSoonAsOneThatTakesNoConnection) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET, address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(::listen(listener, 8), 0);
  ASSERT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length), 0);
  const auto place = parse_redis_url("redis://127.0.0.1:" + std::to_string(ntohs(address.sin_port)));
  ASSERT_TRUE(place.is_ok());
  RedisLink link(*place, {.connect = std::chrono::milliseconds(20), .answer = std::chrono::hours(1)});
  const Status status = link.call({"PING"}).status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_NE(status.message().find("does not answer"), std::string::npos) << status.message();
  ::close(listener);
}

TEST_F(RedisStoreTest, EachLineIsTakenByOne) {
  RedisServer server;
  const auto a = store_at(server.url(), "a", std::chrono::hours(1)),
             b = store_at(server.url(), "b", std::chrono::hours(1));
  begin_batch(*a, 5);
  ASSERT_TRUE(b->beat(kServed).is_ok());
  EXPECT_THAT(*a->take("batch_1", 2), ElementsAre(QueuedLine{1, 10}, QueuedLine{2, 20}));
  EXPECT_THAT(*b->take("batch_1", 2), ElementsAre(QueuedLine{3, 30}, QueuedLine{4, 40}));
  EXPECT_THAT(*a->take("batch_1", 9), ElementsAre(QueuedLine{5, 50}));
  EXPECT_THAT(*b->take("batch_1", 9), IsEmpty());
}

TEST_F(RedisStoreTest, TheLinesOfTheDeadAreTakenByOthersAndThoseOfTheLivingAreNot) {
  RedisServer server;
  const auto a = store_at(server.url(), "a"), b = store_at(server.url(), "b");
  begin_batch(*a, 4);
  ASSERT_EQ(a->take("batch_1", 3)->size(), 3u);
  ASSERT_TRUE(a->put_results("batch_1", std::vector{result(2)}).is_ok());
  ASSERT_TRUE(b->beat(kServed).is_ok());
  EXPECT_THAT(*b->take("batch_1", 9), ElementsAre(QueuedLine{4, 40}));
  Lines taken;  // a says nothing any more
  ASSERT_TRUE(in_time([&] {
    MOESTRO_CHECK(b->beat(kServed).is_ok(), "Redis is there");
    const auto more = *b->take("batch_1", 9);
    taken.insert(taken.end(), more.begin(), more.end());
    return taken.size() >= 2;
  }));
  EXPECT_THAT(taken, ElementsAre(QueuedLine{1, 10}, QueuedLine{3, 30}));
  // It was not dead after all: who is first is kept.
  ASSERT_TRUE(b->put_results("batch_1", std::vector{result(1, "b's")}).is_ok());
  ASSERT_TRUE(a->put_results("batch_1", std::vector{result(1, "a's"), result(3, "a's")}).is_ok());
  ASSERT_TRUE(b->put_results("batch_1", std::vector{result(3, "b's"), result(4, "b's")}).is_ok());
  std::string all;
  const auto kept = a->results("batch_1", 0, 10);
  ASSERT_TRUE(kept.is_ok());
  for (const LineResult& r : *kept) all += std::to_string(r.line) + r.text + " ";
  EXPECT_EQ(all, "1b's 2text 3a's 4b's ");
  EXPECT_EQ((*a->batch("batch_1"))->completed, 4u);
  EXPECT_THAT(*a->take("batch_1", 9), IsEmpty());
}

TEST_F(RedisStoreTest, WhatIsGivenBackOrLeftIsTakenAtOnce) {
  RedisServer server;
  const auto a = store_at(server.url(), "a", std::chrono::hours(1)),
             b = store_at(server.url(), "b", std::chrono::hours(1)),
             c = store_at(server.url(), "c", std::chrono::milliseconds(1));
  begin_batch(*a, 4);
  ASSERT_TRUE(b->beat(kServed).is_ok());
  ASSERT_EQ(a->take("batch_1", 4)->size(), 4u);
  ASSERT_TRUE(a->give_back("batch_1", std::vector<uint64_t>{3}).is_ok());
  EXPECT_THAT(*b->take("batch_1", 9), ElementsAre(QueuedLine{3, 30}));
  ASSERT_TRUE(a->give_back("batch_1", std::vector<uint64_t>{3}).is_ok()) << "it is not a's any more";
  EXPECT_THAT(*b->take("batch_1", 9), IsEmpty());
  ASSERT_TRUE(a->hold_only("batch_1", std::vector<uint64_t>{1}).is_ok());
  EXPECT_THAT(*b->take("batch_1", 9), ElementsAre(QueuedLine{2, 20}, QueuedLine{4, 40}));
  ASSERT_TRUE(a->leave().is_ok());
  ASSERT_TRUE(c->beat(kServed).is_ok());
  Lines left;  // c waits its lease of 1 ms before it takes anybody for dead
  ASSERT_TRUE(in_time([&] { return !(left = *c->take("batch_1", 9)).empty(); }));
  EXPECT_THAT(left, ElementsAre(QueuedLine{1, 10}));
}

TEST_F(RedisStoreTest, WhoFollowsUnderTheSameNameWaitsForNoLease) {
  RedisServer server;
  const auto before = store_at(server.url(), "a", std::chrono::hours(1));
  begin_batch(*before, 4);
  ASSERT_EQ(before->take("batch_1", 3)->size(), 3u);
  const auto after = store_at(server.url(), "a", std::chrono::hours(1));
  ASSERT_TRUE(after->beat(kServed).is_ok());
  EXPECT_TRUE(*after->lead("batch_1"));
  ASSERT_TRUE(after->hold_only("batch_1", {}).is_ok());
  EXPECT_EQ(after->take("batch_1", 9)->size(), 4u);
}

TEST_F(RedisStoreTest, OneLeadsUntilItIsDead) {
  RedisServer server;
  const auto a = store_at(server.url(), "a"), b = store_at(server.url(), "b");
  BatchRecord record;
  record.id = "batch_1", record.model = "m";
  ASSERT_TRUE(a->beat(kServed).is_ok() && b->beat(kServed).is_ok() && a->add_batch(record).is_ok());
  EXPECT_TRUE(*a->lead("batch_1"));
  EXPECT_FALSE(*b->lead("batch_1"));
  EXPECT_TRUE(*a->lead("batch_1"));
  EXPECT_EQ(b->offer("batch_1", {}, true).code(), kConflict);
  ASSERT_TRUE(a->offer("batch_1", {}, true).is_ok());
  ASSERT_TRUE(in_time([&] { return *b->lead("batch_1"); }));
  EXPECT_EQ(a->offer("batch_1", Lines{{1, 0}}, false).code(), kConflict);
  BatchRecord checked = record;
  checked.status = BatchStatus::kInProgress;
  EXPECT_EQ(a->change_batch(checked, BatchStatus::kValidating).code(), kConflict);
  BatchRecord failed = record;
  failed.status = BatchStatus::kFailed;
  EXPECT_EQ(a->finish(failed, BatchStatus::kValidating, {}).code(), kConflict);
  EXPECT_TRUE(b->finish(failed, BatchStatus::kValidating, {}).is_ok());
  EXPECT_TRUE(b->finish(failed, BatchStatus::kValidating, {}).is_ok()) << "a call may be made again";
  EXPECT_EQ((*b->count_batches())[static_cast<size_t>(BatchStatus::kFailed)], 1u);
}

TEST_F(RedisStoreTest, LinesAreOfferedAgainWithoutBeingDoubled) {
  RedisServer server;
  const auto a = store_at(server.url(), "a");
  begin_batch(*a, 2);  // in progress: no more offers
  EXPECT_EQ(a->offer("batch_1", Lines{{3, 30}}, false).code(), kConflict);
  BatchRecord record;
  record.id = "batch_2", record.model = "m";
  ASSERT_TRUE(a->add_batch(record).is_ok());
  ASSERT_TRUE(*a->lead("batch_2"));
  EXPECT_TRUE(a->offer("batch_2", Lines{{1, 1}, {2, 2}}, true).is_ok());
  EXPECT_TRUE(a->offer("batch_2", Lines{{2, 2}, {3, 3}}, false).is_ok());
  EXPECT_THAT(*a->take("batch_2", 9), IsEmpty()) << "it is not in progress";
  record.status = BatchStatus::kInProgress;
  ASSERT_TRUE(a->change_batch(record, BatchStatus::kValidating).is_ok());
  EXPECT_THAT(*a->take("batch_2", 9), ElementsAre(QueuedLine{1, 1}, QueuedLine{2, 2}, QueuedLine{3, 3}));
}

TEST_F(RedisStoreTest, ABatchRunsOnlyWhenEachLineWasOfferedOrHasAResult) {
  RedisServer server;
  const auto a = store_at(server.url(), "a", std::chrono::hours(1));
  BatchRecord record;
  record.id = "batch_1", record.model = "m";
  ASSERT_TRUE(a->add_batch(record).is_ok());
  ASSERT_TRUE(*a->lead("batch_1"));
  ASSERT_TRUE(a->offer("batch_1", {}, true).is_ok());
  ASSERT_TRUE(a->offer("batch_1", Lines{{3, 3}}, false).is_ok()) << "of an earlier check, and late";
  ASSERT_TRUE(a->offer("batch_1", Lines{{1, 1}, {3, 3}}, false).is_ok());
  ASSERT_TRUE(a->put_results("batch_1", std::vector{result(2)}).is_ok());
  record.status = BatchStatus::kInProgress, record.total = 3;
  EXPECT_EQ(a->change_batch(record, BatchStatus::kValidating).code(), kConflict);
  ASSERT_TRUE(a->offer("batch_1", Lines{{1, 1}, {3, 3}}, true).is_ok());
  EXPECT_TRUE(a->change_batch(record, BatchStatus::kValidating).is_ok());
}

TEST_F(RedisStoreTest, AFileWhoseBytesAreGoneGetsNoRecord) {
  RedisServer server;
  const auto a = store_at(server.url(), "a");
  const Status refused = a->put_file({"file-1", "n", "batch", 5, 1, 0});
  EXPECT_EQ(refused.code(), Code::kNotFound);
  EXPECT_THAT(*a->files({}), IsEmpty());
  EXPECT_TRUE(a->put_file({"file-2", "empty", "batch", 0, 1, 0}).is_ok());
}

TEST_F(RedisStoreTest, OnlyTheLastRemovedFilesAreRemembered) {
  RedisServer server;
  const auto a = store_at(server.url(), "a");
  ASSERT_TRUE(a->put_file({"file-1", "n", "batch", 0, 1, 0}).is_ok());
  RedisLink link(*parse_redis_url(server.url()), {});
  const std::string most = std::to_string(kRemovedMax);
  ASSERT_TRUE(link.call({"EVAL",
                         "for i = 1, ARGV[1] do redis.call('HSET', 'moestro:removed', 'old-' .. i, i) "
                         "redis.call('RPUSH', 'moestro:removed:order', 'old-' .. i) end",
                         "0", most})
                  .is_ok());
  ASSERT_TRUE(a->files({.after = "old-1"}).is_ok());
  ASSERT_TRUE(a->remove_file("file-1").is_ok());
  EXPECT_EQ(a->files({.after = "old-1"}).status().code(), Code::kNotFound);
  EXPECT_TRUE(a->files({.after = "old-2"}).is_ok());
  EXPECT_TRUE(a->files({.after = "file-1"}).is_ok());
}

TEST_F(RedisStoreTest, FullMemoryIsKnownInTheWordsOfRedis6) {
  RedisServer server;
  RedisLink link(*parse_redis_url(server.url()), {});
  const std::string_view says =
      "return redis.error_reply('ERR Error running script (call to f_1): @user_script:8: @user_script: 8: -OOM command "
      "not allowed when used memory > maxmemory.')";
  EXPECT_EQ(link.call({"EVAL", says, "0"}).status().code(), Code::kExhausted);
}

TEST_F(RedisStoreTest, FullMemoryIsSaidAndChangesNothing) {
  RedisServer server({"--maxmemory", "6mb"});
  const auto place = *parse_redis_url(server.url());
  const RedisFiles files(place, "a");
  const auto a = store_at(server.url(), "a");
  for (const char* id : {"file-8", "file-9"}) ASSERT_TRUE(a->put_file({id, "n", "batch", 0, 1, 0}).is_ok());
  auto part = files.create("file-1");
  ASSERT_TRUE(part.is_ok()) << part.status().message();
  Status written;
  for (int i = 0; i < 64 && written.is_ok(); ++i) written = (*part)->write(std::string(1 << 20, 'x'));
  EXPECT_EQ(written.code(), Code::kExhausted) << written.message();
  EXPECT_THAT(written.message(), HasSubstr("maxmemory"));
  const Status removed = a->remove_file("file-9");
  EXPECT_TRUE(removed.is_ok()) << removed.message();
  const auto after = a->files({.after = "file-9"});
  EXPECT_TRUE(after.is_ok() && after->size() == 1) << "its place is kept all the same";
  EXPECT_TRUE(a->remove_file("file-8").is_ok());
  part->reset();  // and its pieces with it
  ASSERT_TRUE(in_time([&] { return a->put_file({"file-2", "empty", "batch", 0, 1, 0}).is_ok(); }));
  EXPECT_EQ(a->files({})->size(), 1u);
}

TEST_F(RedisStoreTest, WithFullMemoryOneStillLivesLeadsAndEndsBatches) {
  RedisServer server;
  const auto a = store_at(server.url(), "a"), b = store_at(server.url(), "b");
  begin_batch(*a, 3);
  RedisLink link(*parse_redis_url(server.url()), {});
  ASSERT_TRUE(link.call({"CONFIG", "SET", "maxmemory", "1"}).is_ok());
  EXPECT_EQ(a->put_results("batch_1", std::vector{result(1)}).status().code(), Code::kExhausted);
  EXPECT_TRUE(a->beat(kServed).is_ok());
  ASSERT_TRUE(a->leave().is_ok());
  EXPECT_TRUE(b->beat(kServed).is_ok());
  EXPECT_TRUE(b->lead("batch_1").is_ok() && *b->lead("batch_1"));
  BatchRecord record = **a->batch("batch_1");
  record.status = BatchStatus::kCancelling;
  EXPECT_TRUE(a->change_batch(record, BatchStatus::kInProgress).is_ok());
  record.status = BatchStatus::kCancelled;
  EXPECT_TRUE(b->finish(record, BatchStatus::kCancelling, {}).is_ok());
}

}  // namespace
}  // namespace moestro::orchestrator
