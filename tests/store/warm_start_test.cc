// A store that is shut down and started again: the real program, clients in this process.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "common/check.h"
#include "store/client/status_client.h"
#include "tests/store/child_process.h"
#include "tests/store/small_pack.h"

namespace moestro::store {
namespace {

using std::chrono::milliseconds;
using testing::ChildProcess;
using ::testing::HasSubstr;
using ::testing::Not;
constexpr milliseconds kLong{20000};
constexpr uint32_t kSlots = 6;

class WarmStart : public ::testing::Test {
 protected:
  std::unique_ptr<ChildProcess> start_store(const char* log, std::vector<std::string> more = {},
                                            uint32_t slots = kSlots) {
    std::vector<std::string> words{testing::program("moestro-store"),
                                   "--run-dir",
                                   run().string(),
                                   "--arena-dir",
                                   (pack_.dir / "arena").string(),
                                   "--dram",
                                   std::to_string(pack_.dram(slots)),
                                   "--poison-freed"};
    if (more.empty() || more[0] != "--model")
      more.insert(more.begin(), {"--model", "tiny=" + (pack_.dir / "pack").string()});
    std::ranges::copy(more, std::back_inserter(words));
    auto store = std::make_unique<ChildProcess>(words, (pack_.dir / log).string());
    // Without a store, each question to it would wait its full time.
    MOESTRO_CHECK(store->says("ready"), "the store does not start: " + store->output());
    return store;
  }
  void shut_down(ChildProcess& store) {
    store.kill(SIGTERM);
    EXPECT_EQ(store.wait(), 0) << store.output();
  }
  std::filesystem::path run() const { return pack_.dir / "run"; }
  std::string endpoint() const { return "ipc://" + (run() / "store.sock").string(); }
  std::unique_ptr<StoreClient> attach(const char* model = "tiny") {
    auto client = StoreClient::attach({.endpoint = endpoint(), .model = model});
    EXPECT_TRUE(client) << client.status().message();
    return client ? std::move(*client) : nullptr;
  }
  void use(StoreClient& client, uint32_t blob, int times) {
    for (int i = 0; i < times; ++i) {
      if (auto hit = client.try_pin(blob)) continue;
      ASSERT_TRUE(client.fetch(std::vector<uint32_t>{blob}, {}));
      const auto arrived = client.next_arrival(kLong);
      ASSERT_TRUE(arrived) << arrived.status().message();
    }
  }
  /// Four experts are used, the later ones more often.
  void serve(const char* log) {
    auto store = start_store(log);
    if (auto client = attach())
      for (size_t i = 0; i < 4; ++i) use(*client, pack_.experts_list[i], static_cast<int>(i) + 1);
    shut_down(*store);
  }
  uint64_t dense_blobs() const { return pack_.manifest.blobs.size() - pack_.experts_list.size(); }
  StoreStatusReport status() {
    const auto report = query_store(endpoint(), kLong);
    EXPECT_TRUE(report) << report.status().message();
    return report ? *report : StoreStatusReport{};
  }
  SmallPack pack_;
};

TEST_F(WarmStart, WhatWasHotIsThereBeforeAnyoneAsks) {
  serve("first.log");
  auto store = start_store("second.log");
  ASSERT_TRUE(store->says("warm start: done, " + std::to_string(4 + dense_blobs()) + " of")) << store->output();
  const StoreStatusReport before = status();
  EXPECT_TRUE(before.workers.empty());
  EXPECT_EQ(before.bytes_read, pack_.dram(4)) << "read without any worker";
  EXPECT_EQ(before.warm_start.blobs_there, 4 + dense_blobs());
  EXPECT_EQ(before.warm_start.bytes_there, pack_.dram(4));
  EXPECT_EQ(before.warm_start.left_out, 0u);
  EXPECT_FALSE(before.warm_start.running);
  const auto client = attach();
  ASSERT_TRUE(client);
  for (size_t i = 0; i < 4; ++i) {
    const auto hit = client->try_pin(pack_.experts_list[i]);
    ASSERT_TRUE(hit) << "the first step finds it";
    EXPECT_TRUE(pack_.holds(*hit));
  }
  EXPECT_EQ(status().bytes_read, before.bytes_read);
  EXPECT_EQ(status().loads, before.loads) << "also the dense weights were there";
}

TEST_F(WarmStart, TheHottestIsReadFirstAndTheColdestGivesWay) {
  serve("first.log");
  auto store = start_store("second.log", {}, 2);
  ASSERT_TRUE(store->says("warm start: done")) << store->output();
  EXPECT_THAT(store->output(), HasSubstr("2 are left out")) << store->output();
  EXPECT_EQ(status().evictions, 0u);
  EXPECT_EQ(status().warm_start.left_out, 2u);
  const auto client = attach();
  ASSERT_TRUE(client);
  EXPECT_TRUE(client->try_pin(pack_.experts_list[3]));
  EXPECT_TRUE(client->try_pin(pack_.experts_list[2]));
  EXPECT_FALSE(client->try_pin(pack_.experts_list[1]));
  EXPECT_FALSE(client->try_pin(pack_.experts_list[0]));
}

TEST_F(WarmStart, ASecondShutdownSaysTheSame) {
  serve("first.log");
  const auto set = [&] {
    std::ifstream in(run() / "warm-set");
    std::vector<std::string> blobs;
    for (std::string line; std::getline(in, line);)
      if (line.starts_with("0 ")) blobs.push_back(line.substr(0, line.rfind(' ')));
    return blobs;
  };
  const auto first = set();
  ASSERT_EQ(first.size(), 4 + dense_blobs());
  EXPECT_EQ(first[dense_blobs()], "0 " + std::to_string(pack_.experts_list[3])) << "the one that was used most";
  auto store = start_store("second.log");
  ASSERT_TRUE(store->says("warm start: done")) << store->output();
  shut_down(*store);
  EXPECT_EQ(set(), first) << "nobody used anything";
}

TEST_F(WarmStart, AnotherShutdownWhileItIsReadForgetsNothing) {
  serve("first.log");
  auto store = start_store("second.log", {"--inject-read-faults", "delay=20"});
  shut_down(*store);  // amid it, or before it has begun
  EXPECT_THAT(store->output(), Not(HasSubstr("warm start: done")));
  store = start_store("third.log");
  ASSERT_TRUE(store->says("warm start: done, " + std::to_string(4 + dense_blobs()) + " of " +
                          std::to_string(4 + dense_blobs()) + " blobs"))
      << store->output();
}

TEST_F(WarmStart, KilledWhileItIsReadTheNextStoreReadsTheRest) {
  serve("first.log");
  auto store = start_store("second.log", {"--inject-read-faults", "delay=20"});
  while (status().warm_start.blobs_there == 0) std::this_thread::yield();
  EXPECT_TRUE(status().warm_start.running);
  store->kill(SIGKILL);
  store->wait();
  store = start_store("third.log");
  ASSERT_TRUE(store->says("warm start: done")) << store->output();
  EXPECT_THAT(store->output(), HasSubstr("adopted the arena"));
  const StoreStatusReport after = status();
  EXPECT_GE(after.adopted, 1u);
  EXPECT_EQ(after.adopted + after.warm_start.blobs_there, 4 + dense_blobs());
  EXPECT_LT(after.bytes_read, pack_.dram(4)) << "what was there is not read again";
  const auto client = attach();
  ASSERT_TRUE(client);
  for (size_t i = 0; i < 4; ++i) use(*client, pack_.experts_list[i], 1);
  EXPECT_EQ(status().bytes_read, after.bytes_read);
}

TEST_F(WarmStart, AWorkerIsServedMeanwhile) {
  serve("first.log");
  auto store = start_store("second.log", {"--inject-read-faults", "delay=20"});
  const auto client = attach();
  ASSERT_TRUE(client);
  const uint32_t other = pack_.experts_list[7];  // not in the set: it goes before what is
  ASSERT_TRUE(client->fetch(std::vector<uint32_t>{other}, {}));
  const auto arrived = client->next_arrival(kLong);
  ASSERT_TRUE(arrived) << arrived.status().message();
  EXPECT_TRUE(pack_.holds(*arrived));
  ASSERT_TRUE(store->says("warm start: done")) << store->output();
}

TEST_F(WarmStart, ASetOfOtherPacksIsSaidAndIgnored) {
  serve("first.log");
  const SmallPack other(4);
  auto store = start_store("second.log", {"--model", "other=" + (other.dir / "pack").string()});
  EXPECT_THAT(store->output(), HasSubstr("are of packs, or versions of them, that are not served now: ignored"));
  EXPECT_EQ(status().warm_start.blobs, 0u);
  EXPECT_TRUE(attach("other"));
}

TEST_F(WarmStart, ADamagedSetIsSaidAndIgnored) {
  serve("first.log");
  {
    std::fstream file(run() / "warm-set", std::ios::in | std::ios::out);
    file.seekp(25);
    file.put('~');
  }
  auto store = start_store("second.log");
  EXPECT_THAT(store->output(),
              HasSubstr("the warm set is ignored, so this store starts cold: " + (run() / "warm-set").string()));
  EXPECT_TRUE(attach());
  shut_down(*store);
  store = start_store("third.log");
  ASSERT_TRUE(store->says("warm start: done")) << "written anew: " << store->output();
}

TEST_F(WarmStart, TurnedOffNothingIsWrittenOrRead) {
  serve("first.log");
  std::filesystem::remove(run() / "warm-set");
  auto store = start_store("second.log", {"--warm-start", "off"});
  EXPECT_TRUE(attach());
  shut_down(*store);
  EXPECT_FALSE(std::filesystem::exists(run() / "warm-set"));
}

}  // namespace
}  // namespace moestro::store
