// Whose lines are run with which version of a model: a name belongs to one version at a time.

#include <gmock/gmock.h>

#include <chrono>
#include <map>
#include <random>

#include "orchestrator/state/redis_store.h"
#include "tests/state/redis_server.h"

namespace moestro::orchestrator {
namespace {

using test::RedisServer;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using std::chrono::milliseconds;

constexpr milliseconds kNever = std::chrono::hours(1), kShort{200};

class RedisNamesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!RedisServer::is_installed()) GTEST_SKIP() << "redis-server is not installed";
    server_.emplace();
  }
  std::unique_ptr<RedisStore> host(const std::string& name, milliseconds lease = kNever) {
    RedisOptions options{*parse_redis_url(server_->url()), name, lease};
    options.limits.pause = milliseconds(1);
    return std::make_unique<RedisStore>(options);
  }
  /// A batch of the name in progress, with lines 1 to n.
  static void begin(RedisStore& leader, const std::string& id, const std::string& name, uint64_t n) {
    BatchRecord b;
    b.id = id, b.model = name;
    ASSERT_TRUE(leader.add_batch(b).is_ok() && *leader.lead(id) && leader.offer(id, {}, true).is_ok());
    std::vector<QueuedLine> lines;
    for (uint64_t i = 1; i <= n; ++i) lines.push_back({i, i});
    ASSERT_TRUE(leader.offer(id, lines, false).is_ok());
    b.status = BatchStatus::kInProgress, b.total = n;
    ASSERT_TRUE(leader.change_batch(b, BatchStatus::kValidating).is_ok());
  }
  /// Which of the names are another version's; "none" if nothing was heard.
  static std::vector<std::string> left(RedisStore& of, const std::string& version, std::vector<std::string> names) {
    const auto held = of.beat({version, std::move(names)});
    if (!held.is_ok()) return {"none"};
    std::vector<std::string> left;
    for (const HeldName& one : *held) left.push_back(one.name);
    return left;
  }
  template <typename Condition>
  static bool in_time(Condition condition) {
    for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
         std::chrono::steady_clock::now() < end;)
      if (condition()) return true;
    return false;
  }
  static std::vector<LineResult> result(uint64_t line) { return {{line, true, "text"}}; }

  std::optional<RedisServer> server_;
};

TEST_F(RedisNamesTest, LinesGoToTheVersionThatWasFirst) {
  const auto a = host("a"), b = host("b"), c = host("c");
  ASSERT_THAT(left(*a, "1", {"m"}), IsEmpty());
  begin(*a, "batch_1", "m", 3);
  const auto held = b->beat({"2", {"m"}});
  ASSERT_TRUE(held.is_ok());
  EXPECT_THAT(*held, ElementsAre(HeldName{"m", "1", {"a"}}));
  EXPECT_THAT(*b->take("batch_1", 9), IsEmpty());
  EXPECT_THAT(left(*c, "1", {"m"}), IsEmpty());
  EXPECT_THAT(*c->take("batch_1", 1), ElementsAre(QueuedLine{1, 1}));
  EXPECT_THAT((*b->beat({"2", {"m"}}))[0].hosts, UnorderedElementsAre("a", "c"));
}

TEST_F(RedisNamesTest, OneThatServesNothingYetTakesNoLinesAndKeepsNobodyFromThem) {
  const auto a = host("a"), b = host("b");
  EXPECT_THAT(left(*a, "", {"m"}), IsEmpty());
  begin(*a, "batch_1", "m", 1);
  EXPECT_THAT(*a->take("batch_1", 9), IsEmpty());
  EXPECT_THAT(left(*b, "2", {"m"}), IsEmpty());
  EXPECT_EQ(b->take("batch_1", 9)->size(), 1u);
}

TEST_F(RedisNamesTest, ResultsOfAnotherVersionAreNotKept) {
  const auto a = host("a", kShort), b = host("b");
  ASSERT_THAT(left(*a, "1", {"m"}), IsEmpty());
  begin(*a, "batch_1", "m", 3);
  ASSERT_EQ(a->take("batch_1", 9)->size(), 3u);
  ASSERT_TRUE(a->put_results("batch_1", result(1)).is_ok());
  ASSERT_TRUE(a->leave().is_ok());
  ASSERT_THAT(left(*b, "2", {"m"}), IsEmpty());
  // It had not left, but stood still, and knows nothing of this.
  EXPECT_EQ(a->put_results("batch_1", result(2)).status().code(), kConflict);
  EXPECT_TRUE(b->put_results("batch_1", result(3)).is_ok());
  EXPECT_EQ((*b->batch("batch_1"))->completed, 2u);
}

TEST_F(RedisNamesTest, WhatIsWrongWithLinesIsOfNoVersion) {
  const auto a = host("a"), b = host("b");
  ASSERT_THAT(left(*a, "1", {"m"}), IsEmpty());
  ASSERT_THAT(left(*b, "2", {"m"}), ElementsAre("m"));
  BatchRecord record;
  record.id = "batch_1", record.model = "m";
  ASSERT_TRUE(b->add_batch(record).is_ok());
  EXPECT_TRUE(b->put_results("batch_1", std::vector<LineResult>{{1, false, "no JSON"}}).is_ok());
}

TEST_F(RedisNamesTest, AliasesAreNames) {
  const auto a = host("a"), b = host("b");
  ASSERT_THAT(left(*a, "1", {"m", "small"}), IsEmpty());
  begin(*a, "batch_1", "small", 1), begin(*a, "batch_2", "large", 1);
  EXPECT_THAT(left(*b, "2", {"large", "small"}), ElementsAre("small"));
  EXPECT_THAT(*b->take("batch_1", 9), IsEmpty());
  EXPECT_EQ(b->take("batch_2", 9)->size(), 1u);
  EXPECT_THAT(left(*a, "1", {"m"}), IsEmpty());  // started again without the alias, under its former name
  EXPECT_THAT(left(*b, "2", {"large", "small"}), IsEmpty());
  EXPECT_EQ(b->take("batch_1", 9)->size(), 1u);
}

TEST_F(RedisNamesTest, HostsChangeOneAfterTheOther) {
  const auto a = host("a"), b = host("b"), c = host("c");
  for (RedisStore* one : {a.get(), b.get(), c.get()}) ASSERT_THAT(left(*one, "1", {"m"}), IsEmpty());
  EXPECT_THAT(left(*a, "2", {"m"}), ElementsAre("m"));
  EXPECT_THAT(left(*b, "2", {"m"}), ElementsAre("m"));
  EXPECT_THAT(left(*c, "1", {"m"}), IsEmpty());
  EXPECT_THAT(left(*c, "2", {"m"}), IsEmpty()) << "the last one";
  EXPECT_THAT(left(*a, "2", {"m"}), IsEmpty());
  EXPECT_THAT(left(*b, "2", {"m"}), IsEmpty());
}

TEST_F(RedisNamesTest, WhoLeavesGivesItsNamesUpUnlessOthersServeThem) {
  const auto a = host("a"), b = host("b"), c = host("c");
  ASSERT_THAT(left(*a, "1", {"m"}), IsEmpty());
  ASSERT_THAT(left(*b, "1", {"m"}), IsEmpty());
  ASSERT_THAT(left(*c, "2", {"m"}), ElementsAre("m"));
  ASSERT_TRUE(a->leave().is_ok());
  EXPECT_THAT(left(*c, "2", {"m"}), ElementsAre("m"));
  ASSERT_TRUE(b->leave().is_ok());
  EXPECT_THAT(left(*c, "2", {"m"}), IsEmpty()) << "its own lease is an hour";
  RedisLink link(*parse_redis_url(server_->url()), {});
  EXPECT_EQ((*link.call({"SCARD", "moestro:hosts"}))->integer(), 1);
  ASSERT_TRUE(c->leave().is_ok());
  EXPECT_EQ((*link.call({"EXISTS", "moestro:hosts", "moestro:holds"}))->integer(), 0);
}

TEST_F(RedisNamesTest, TheNamesOfTheDeadGoToOthersAfterTheirLease) {
  const auto a = host("a", kShort), b = host("b", kShort);
  ASSERT_THAT(left(*a, "1", {"m"}), IsEmpty());
  ASSERT_THAT(left(*b, "2", {"m"}), ElementsAre("m"));
  ASSERT_TRUE(in_time([&] { return left(*b, "2", {"m"}).empty(); }));
  EXPECT_THAT(left(*a, "1", {"m"}), ElementsAre("m")) << "it was not dead after all";
}

/// Their keys have ended meanwhile, though both live.
TEST_F(RedisNamesTest, NoNameChangesHandsBecauseRedisWasAway) {
  const auto a = host("a", kShort), b = host("b", std::chrono::seconds(20));
  ASSERT_THAT(left(*a, "1", {"m"}), IsEmpty());
  ASSERT_THAT(left(*b, "2", {"m"}), ElementsAre("m"));
  server_->kill();
  ASSERT_THAT(left(*a, "1", {"m"}), ElementsAre("none"));
  server_->start();
  RedisLink link(*parse_redis_url(server_->url()), {});
  ASSERT_TRUE(in_time([&] { return (*link.call({"EXISTS", "moestro:host:a"}))->integer() == 0; }));
  std::vector<HeldName> held;
  ASSERT_TRUE(in_time([&] {  // the pause after a break of the connection
    auto said = b->beat({"2", {"m"}});
    if (said.is_ok()) held = std::move(*said);
    return said.is_ok();
  }));
  EXPECT_THAT(held, ElementsAre(HeldName{"m", "1", {}})) << "nobody knows yet whether a lives";
  EXPECT_TRUE(in_time([&] { return left(*a, "1", {"m"}).empty(); }));
  EXPECT_THAT((*b->beat({"2", {"m"}}))[0].hosts, ElementsAre("a"));
}

TEST_F(RedisNamesTest, FullMemoryKeepsNobodyFromSayingWhatItServes) {
  const auto a = host("a"), b = host("b");
  ASSERT_THAT(left(*a, "1", {"m"}), IsEmpty());
  RedisLink link(*parse_redis_url(server_->url()), {});
  ASSERT_TRUE(link.call({"CONFIG", "SET", "maxmemory", "1"}).is_ok());
  EXPECT_THAT(left(*b, "2", {"m"}), ElementsAre("m"));
  ASSERT_TRUE(a->leave().is_ok());
  EXPECT_THAT(left(*b, "2", {"m"}), IsEmpty());
}

/// Hosts come, change and leave at random. No name changes its version while a host serves the one before, every name
/// that is served has one, and lines and results are those of its hosts alone.
TEST_F(RedisNamesTest, AtRandomLinesAreRunWithTheVersionThatHasTheName) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 chance(seed);
  const auto any = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(chance); };
  const std::vector<std::string> names{"m", "n"}, versions{"1", "2", "3"};
  std::vector<std::unique_ptr<RedisStore>> hosts;
  std::map<size_t, std::string> serves;       // host -> version
  std::map<std::string, std::string> belongs; // name -> version
  for (const char* name : {"a", "b", "c", "d"}) hosts.push_back(host(name));
  for (const std::string& name : names) begin(*hosts[0], "batch_" + name, name, 2000);
  for (int step = 0, result_of = 1000; step < 400; ++step) {
    const size_t one = any(hosts.size());
    if (any(8) == 0) {
      ASSERT_TRUE(hosts[one]->leave().is_ok());
      serves.erase(one);
      continue;
    }
    if (!serves.contains(one) || any(4) == 0) serves[one] = versions[any(versions.size())];
    const auto others = left(*hosts[one], serves[one], names);
    for (const std::string& name : names) {
      const bool may = std::ranges::find(others, name) == others.end();
      const auto is_served = [&](const auto& entry) { return entry.second == belongs[name]; };
      if (!may) EXPECT_TRUE(belongs[name] != serves[one] && std::ranges::any_of(serves, is_served)) << step;
      else if (belongs[name] != serves[one])
        EXPECT_TRUE(std::ranges::none_of(serves, is_served)) << step;
      if (may) belongs[name] = serves[one];
      EXPECT_EQ(hosts[one]->take("batch_" + name, 1)->empty(), !may) << step;
      EXPECT_EQ(hosts[one]->put_results("batch_" + name, result(static_cast<uint64_t>(++result_of))).is_ok(), may);
    }
  }
}

}  // namespace
}  // namespace moestro::orchestrator
