// Large bodies: read away from the server's thread, refused before work where they cannot fit, and the context that is
// served.

#include <gmock/gmock.h>

#include <future>
#include <stop_token>
#include <thread>

#include "orchestrator/api/background.h"
#include "tests/orchestrator/api_fixture.h"
#include "tests/tokenizer/tiny_tokenizers.h"

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
  const auto exchange = complete({{"prompt", std::string(60'000, 'a')}});
  EXPECT_EQ(exchange->status, 400);
  EXPECT_THAT(exchange->json()["error"]["message"], HasSubstr("60000 bytes"));
  EXPECT_EQ(exchange->json()["error"]["type"], "exceed_context_size_error");
}

TEST_F(LargeBodyTest, NorIsAChatThatCannotFit) {
  join();
  const auto exchange = complete(
      {{"messages", json::array({{{"role", "user"}, {"content", std::string(60'000, 'a')}}})}}, "/v1/chat/completions");
  EXPECT_EQ(exchange->status, 400);
  EXPECT_THAT(exchange->json()["error"]["message"], HasSubstr("bytes, more than the context"));
  EXPECT_EQ(exchange->json()["error"]["param"], "messages");
}

TEST_F(LargeBodyTest, TokenizingALongTextKeepsNobodyWaiting) {
  join();
  for (const auto& [path, body] :
       {std::pair("/tokenize", json{{"content", std::string(100'000, 'a')}}),
        std::pair("/detokenize", json{{"tokens", std::vector<int>(100'000, 'a')}})}) {
    const auto exchange = post(path, body);
    EXPECT_FALSE(exchange->done) << path << ": this thread only hands it on";
    EXPECT_EQ(send("GET", "/health")->status, 200);
    finish(*exchange);
    EXPECT_EQ(exchange->status, 200) << exchange->body;
  }
  const auto too_long = post("/tokenize", {{"content", std::string(1'100'000, 'a')}});
  finish(*too_long);
  EXPECT_EQ(too_long->status, 400);
  EXPECT_THAT(too_long->body, HasSubstr("1100000 bytes"));
}

TEST_F(LargeBodyTest, AClientThatLeavesIsNotAnswered) {
  join();
  const auto left = post("/tokenize", {{"content", std::string(100'000, 'a')}});
  left->gone();
  const auto next = post("/tokenize", {{"content", std::string(100'000, 'a')}});
  finish(*next);
  EXPECT_FALSE(left->done);
}

TEST_F(LargeBodyTest, ALongAnswerIsMadeElsewhereToo) {
  worker_.join({.model = name_,
                .limits = {.kv_blocks = 256,
                           .kv_block_tokens = 16,
                           .context_max = 64,
                           .step_tokens_max = 64,
                           .step_sequences_max = 16}});
  says_.assign(32, "b");
  const auto exchange = complete({{"prompt", std::vector<std::string>(32, std::string(40, 'a'))},
                                  {"max_tokens", 1},
                                  {"logprobs", 1},
                                  {"echo", true}});
  EXPECT_EQ(exchange->status, 200) << exchange->body;
  const json answer = exchange->json();
  ASSERT_EQ(answer["choices"].size(), 32u);
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 32 * 40);
  EXPECT_EQ(answer["choices"][31]["logprobs"]["tokens"].size(), 41u);
}

/// As a long run of spaces is: one piece, which takes seconds.
TEST(LongPiece, TokenizingItEndsWhenNobodyWantsIt) {
  const auto file = moestro::testing::gpt2_like({{"a", "a"}, {"aa", "aa"}});
  const auto tokenizer = Tokenizer::from_json(file.dump());
  ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
  const std::string text(8 << 20, 'a');
  std::stop_source stop;
  std::thread leaves([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    stop.request_stop();
  });
  const auto ids = tokenizer->encode(text, false, stop.get_token());
  leaves.join();
  EXPECT_EQ(ids.status().code(), Code::kCancelled);
}

/// What is answered to a request whose reading is stopped just before its prompt is made.
class StoppedReadingTest : public ApiTest {
 protected:
  std::shared_ptr<FakeExchange> stopped(const RequestJson& body, bool chat) {
    join();
    auto exchange = std::make_shared<FakeExchange>();
    const std::shared_ptr<Exchange> to = exchange;
    HttpRequest request{"POST", "/", ""};
    std::promise<void> begun;
    const auto make = [&](const HttpRequest&, const std::stop_token& stop) -> std::variant<OpenAiRequest, ApiError> {
      std::promise<void> asked;
      const std::stop_callback on_stop(stop, [&] { asked.set_value(); });
      begun.set_value();
      asked.get_future().wait();
      return OpenAiRequest{body, chat};
    };
    service_->complete({request, to, Service::kInlineBytes + 1}, make);
    begun.get_future().wait();
    service_->end_reading();
    while (run_posted()) continue;
    return exchange;
  }
};

TEST_F(StoppedReadingTest, AChatIsRenderedNoFurther) {
  const auto exchange = stopped({{"messages", {{{"role", "user"}, {"content", "hi"}}}}}, /*chat=*/true);
  EXPECT_THAT(exchange->body, HasSubstr("the chat template: nobody wants the text any more"));
}

TEST_F(StoppedReadingTest, ASchemaIsReadNoFurther) {
  const RequestJson ids = RequestJson::array({97});  // which nothing tokenizes
  const auto exchange = stopped({{"prompt", ids}, {"json_schema", {{"type", "boolean"}}}}, /*chat=*/false);
  EXPECT_THAT(exchange->body, HasSubstr("'json_schema': nobody wants the answer any more"));
}

TEST_F(LargeBodyTest, TheContextServedIsWhatAWorkerCanHold) {
  worker_.join(
      {.model = name_,
       .limits = {
           .kv_blocks = 5, .kv_block_tokens = 4, .context_max = 64, .step_tokens_max = 64, .step_sequences_max = 16}});
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
