// Large bodies: read away from the server's thread, refused before work where they cannot fit, and the context that is served.

#include <gmock/gmock.h>

#include <future>

#include "orchestrator/api/background.h"
#include "tests/orchestrator/api_fixture.h"

namespace moestro::orchestrator {
namespace {

using namespace testing;
using nlohmann::json;
using ::testing::HasSubstr;

class LargeBodyTest : public ApiTest {
 protected:
  /// A request of over 64 KiB whose prompt is short.
  static json padded(json request) {
    request["user"] = std::string(100'000, 'u');
    return request;
  }
};

TEST_F(LargeBodyTest, IsAnsweredLikeASmallOne) {
  join();
  says_ = {"yes"};
  const auto exchange = post("/v1/completions", padded({{"prompt", "is it?"}}));
  EXPECT_FALSE(exchange->done) << "this thread only hands it on";
  finish(*exchange);
  EXPECT_EQ(exchange->status, 200) << exchange->body;
  EXPECT_EQ(exchange->json()["choices"][0]["text"], "yes");
}

TEST_F(LargeBodyTest, IsRefusedLikeASmallOne) {
  join();
  const auto exchange = post("/v1/completions", padded({{"prompt", 5}}));
  finish(*exchange);
  EXPECT_EQ(exchange->status, 400);
  EXPECT_THAT(send("GET", "/metrics")->body, HasSubstr("refused"));
}

TEST_F(LargeBodyTest, ATextThatCannotFitIsNotTokenized) {
  join();
  const auto exchange = post("/v1/completions", {{"prompt", std::string(60'000, 'a')}});
  EXPECT_EQ(exchange->status, 400);
  EXPECT_THAT(exchange->json()["error"]["message"], HasSubstr("60000 bytes"));
  EXPECT_EQ(exchange->json()["error"]["type"], "exceed_context_size_error");
}

TEST_F(LargeBodyTest, TheContextServedIsWhatAWorkerCanHold) {
  worker_.join({.model = name_, .limits = {.kv_blocks = 5, .kv_block_tokens = 4, .context_max = 64, .step_tokens_max = 64, .step_sequences_max = 16}});
  const json meta = send("GET", "/v1/models/m")->json()["meta"];
  EXPECT_EQ(meta["n_ctx"], 20);
  EXPECT_EQ(meta["n_ctx_train"], kContext);
  const auto exchange = post("/v1/completions", {{"prompt", std::string(20, 'a')}});
  EXPECT_EQ(exchange->status, 400);
  EXPECT_EQ(exchange->json()["error"]["n_ctx"], 20);
}

TEST(Background, RunsInOrderAndRefusesWhatItCannotQueue) {
  std::promise<void> begun, go_on;
  std::vector<int> ran;
  {
    Background background(2);
    ASSERT_TRUE(background.run([&] {
      begun.set_value();
      go_on.get_future().wait();
      ran.push_back(1);
    }));
    begun.get_future().wait();
    std::promise<void> last;
    ASSERT_TRUE(background.run([&] { ran.push_back(2); }));
    ASSERT_TRUE(background.run([&] {
      ran.push_back(3);
      last.set_value();
    }));
    EXPECT_FALSE(background.run([&] { ran.push_back(4); }));
    go_on.set_value();
    last.get_future().wait();
  }
  EXPECT_EQ(ran, (std::vector{1, 2, 3}));
}

}  // namespace
}  // namespace moestro::orchestrator
