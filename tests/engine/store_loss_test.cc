// The engine on a real store with room for two experts, which is killed while a step waits for a miss.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "store/client/store_client.h"
#include "tests/engine/engine_bench.h"
#include "tests/store/child_process.h"

namespace moestro::engine::testing {
namespace {

using moestro::testing::ChildProcess;
using ::testing::HasSubstr;

constexpr int kTokens = 6;

class StoreLoss : public ::testing::Test {
 protected:
  StoreLoss()
      : pack_(packed(any_fixture(), DType::kF32, DType::kF32)), prompt_(any_fixture().prompts("f32").front().ids) {
    uint64_t dense = 0, expert = 0;
    const auto manifest = store::open_pack(pack_);
    for (const store::Blob& blob : manifest->blobs) {
      if (blob.kind == store::BlobKind::kDense) dense += blob.length;
      else expert = std::max(expert, blob.length);
    }
    dram_ = dense + 2 * expert;
  }
  std::unique_ptr<ChildProcess> start_store(const char* log) {
    return std::make_unique<ChildProcess>(
        std::vector<std::string>{moestro::testing::program("moestro-store"), "--run-dir",
                                 (dir_.path() / "run").string(), "--arena-dir", (dir_.path() / "arena").string(),
                                 "--dram", std::to_string(dram_), "--model", "m=" + pack_.string(), "--poison-freed"},
        (dir_.path() / log).string());
  }
  std::string endpoint() const { return "ipc://" + (dir_.path() / "run" / "store.sock").string(); }
  /// An engine whose weights come from the store.
  std::unique_ptr<Bench> attach(store::StoreClient** client = nullptr) {
    return std::make_unique<Bench>(any_fixture(), BenchOptions{}, [&](std::unique_ptr<store::BlobSource>) {
      auto attached = store::StoreClient::attach({.endpoint = endpoint(), .model = "m"});
      MOESTRO_CHECK(attached.is_ok(), attached.status().message());
      if (client != nullptr) *client = attached->get();
      return std::move(*attached);
    });
  }

  TempDir dir_;
  const std::filesystem::path pack_;
  const std::vector<TokenId> prompt_;
  uint64_t dram_ = 0;
};

TEST_F(StoreLoss, AStepThatMissesWaitsForTheSuccessorAndGoesOn) {
  const std::vector<TokenId> wanted = Bench(any_fixture()).greedy(prompt_, kTokens);
  auto store = start_store("first.log");
  ASSERT_TRUE(store->says("ready")) << store->output();
  store::StoreClient* client = nullptr;
  auto bench = attach(&client);
  EXPECT_EQ(bench->greedy(prompt_, kTokens), wanted);
  const auto misses_before = client->counters().misses;

  store->kill(SIGSTOP);  // so that the step cannot get what it lacks
  auto step = std::async(std::launch::async, [&] { return bench->greedy(prompt_, kTokens); });
  store->kill(SIGKILL);
  store->wait();
  auto second = start_store("second.log");
  EXPECT_EQ(step.get(), wanted) << "the step ends as if nothing had been";
  EXPECT_GT(client->counters().misses, misses_before);
  EXPECT_EQ(client->resumed(), 1u);
  EXPECT_TRUE(client->check());
}

TEST_F(StoreLoss, AnArenaThatIsOverEndsTheStepAndTheNextClientServes) {
  const std::vector<TokenId> wanted = Bench(any_fixture()).greedy(prompt_, kTokens);
  auto store = start_store("first.log");
  ASSERT_TRUE(store->says("ready")) << store->output();
  store::StoreClient* client = nullptr;
  auto bench = attach(&client);
  EXPECT_EQ(bench->greedy(prompt_, kTokens), wanted);

  store->kill(SIGSTOP);
  bench->add(1, prompt_);
  auto step = std::async(std::launch::async, [&] { return bench->run(); });
  store->kill(SIGKILL);
  store->wait();
  dram_ += 4096;  // so that the successor does not adopt
  auto second = start_store("second.log");
  const auto outcome = step.get();
  ASSERT_FALSE(outcome.is_ok()) << "the whole step, not a sequence: the store's loss is nobody's fault in it";
  EXPECT_THAT(outcome.status().message(), HasSubstr("the store at " + endpoint() + " has begun a new arena"));
  const Status gone = client->check();
  EXPECT_EQ(gone.code(), Code::kUnavailable) << "which is what the worker asks before it answers a failed plan";
  bench.reset();  // the new arena is backed when the old one is gone
  ASSERT_TRUE(second->says("ready")) << second->output();
  EXPECT_EQ(attach()->greedy(prompt_, kTokens), wanted);
}

}  // namespace
}  // namespace moestro::engine::testing
