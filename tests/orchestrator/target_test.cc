// Requests to encoder-decoder models: what the targets begin with, and what is refused before it costs much.

#include <gmock/gmock.h>

#include "tests/orchestrator/api_fixture.h"

namespace moestro::orchestrator {
namespace {

using namespace testing;
using nlohmann::json;
using ::testing::HasSubstr;

ServedModel model_with_encoder() {
  ServedModel m = byte_model();
  m.target = TargetBegin{.start = kEnd};
  return m;
}

class TargetTest : public ApiTest {
 protected:
  TargetTest() : ApiTest(model_with_encoder()) {}
  json refused(const json& body) {
    const auto exchange = complete(body);
    EXPECT_EQ(exchange->status, 400) << exchange->body;
    return exchange->json()["error"];
  }
};

TEST_F(TargetTest, AllTargetsOfARequestBeginAlike) {
  join();
  says_ = {"xy"};
  const auto both = complete({{"prompt", {"a", "bc"}}, {"decoder_prompt", "de"}, {"max_tokens", 3}});
  ASSERT_EQ(both->status, 200) << both->body;
  const json answer = both->json();
  ASSERT_EQ(answer["choices"].size(), 2u);
  for (const json& choice : answer["choices"]) EXPECT_EQ(choice["text"], "xy");
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 1 + 2 + 2 * 3) << "sources, and with each the start token and 'de'";
}

TEST_F(TargetTest, ABeginningThatIsTooLongIsRefusedBeforeAnyPromptIsRead) {
  join();
  const json wrong = {kEnd + 1};  // would be refused as well, were it read
  for (const json& begin : {json(std::vector<int>(200'000, 97)), json(std::string(kContext, 'a')),
                            json(std::string(100'000, 'a'))}) {
    const json e = refused({{"prompt", json::array({wrong, wrong})}, {"decoder_prompt", begin}});
    EXPECT_EQ(e["param"], "decoder_prompt");
    EXPECT_EQ(e["type"], "exceed_context_size_error");
    EXPECT_THAT(e["message"].get<std::string>(), HasSubstr("the beginning of the target has"));
  }
}

TEST_F(TargetTest, MaxTokensCountFromTheBeginningOfTheTarget) {
  FakeWorker::Identity small{.model = name_};
  small.limits.kv_blocks = kContext / 2 / small.limits.kv_block_tokens;
  worker_.join(small);
  const json e = refused({{"prompt", "a"}, {"decoder_prompt", "bcd"}, {"max_tokens", kContext / 2 - 3}});
  EXPECT_EQ(e["param"], "max_tokens");
  EXPECT_THAT(e["message"].get<std::string>(), HasSubstr("the beginning of the target has 4 tokens"));
}

TEST_F(TargetTest, SourceAndTargetHaveToFitIntoTheKvCacheTogether) {
  FakeWorker::Identity small{.model = name_};
  small.limits.kv_blocks = 10, small.limits.kv_block_tokens = 4;
  worker_.join(small);
  const std::string source(21, 'a');  // 6 blocks, which leave 4
  for (const bool stream : {false, true}) {
    const json e = refused({{"prompt", source}, {"max_tokens", 16}, {"stream", stream}});
    EXPECT_EQ(e["param"], "max_tokens");
    EXPECT_EQ(e["type"], "exceed_context_size_error");
    EXPECT_THAT(e["message"].get<std::string>(), HasSubstr("the source has 21 tokens, and its target up to 17"));
  }
  EXPECT_EQ(refused({{"prompt", std::string(36, 'a')}, {"max_tokens", 4}})["param"], "max_tokens");
  EXPECT_EQ(complete({{"prompt", source}, {"max_tokens", 15}})->status, 200);
  EXPECT_EQ(complete({{"prompt", std::string(36, 'a')}, {"max_tokens", 3}})->status, 200);
}

TEST_F(TargetTest, TooManySequencesAreRefusedBeforeAnyPromptIsRead) {
  join();
  const json many(std::vector<json>(10, json{kEnd + 1}));
  const json e = refused({{"prompt", many}, {"n", 8}, {"decoder_prompt", "a"}});
  EXPECT_EQ(e["param"], "prompt");
  EXPECT_THAT(e["message"].get<std::string>(), HasSubstr("'prompt' and 'n' make 80 sequences"));
}

TEST_F(TargetTest, BeforeTheFirstWorkerTheModelsContextIsTold) {
  EXPECT_EQ(send("GET", "/v1/models")->json()["data"][0]["meta"]["n_source_max"], kContext);
  EXPECT_EQ(post("/tokenize", {{"content", "a"}})->json()["max_model_len"], kContext);
}

}  // namespace
}  // namespace moestro::orchestrator
