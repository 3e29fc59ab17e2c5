// The API where each step is sent before the result of the one before it: what was computed beyond an answer's end
// shows nowhere.

#include "tests/orchestrator/api_fixture.h"

namespace moestro::orchestrator {
namespace {

using namespace testing;
using nlohmann::json;

class StepsAheadTest : public ApiTest {
 protected:
  StepsAheadTest() : ApiTest(byte_model(), /*queue_max=*/64, /*steps_in_flight=*/2) { join(); }
  json answer(const json& body) {
    const auto exchange = complete(body);
    EXPECT_EQ(exchange->status, 200) << exchange->body;
    return exchange->json();
  }
};

TEST_F(StepsAheadTest, AStopStringEndsTextUsageAndLogprobs) {
  says_ = {"ab ENDcdefgh"};
  const json all =
      answer({{"prompt", "x"}, {"max_tokens", 30}, {"stop", "END"}, {"logprobs", 1}, {"return_token_ids", true}});
  const json& c = all["choices"][0];
  EXPECT_EQ(c["text"], "ab ");
  EXPECT_EQ(c["finish_reason"], "stop");
  EXPECT_EQ(all["usage"]["completion_tokens"], 6);
  EXPECT_EQ(c["token_ids"].size(), 6u);
  EXPECT_LE(c["logprobs"]["tokens"].size(), 6u);
  run_until([&] { return !worker_.released().empty(); });
  EXPECT_EQ(control_->snapshot().kv_blocks_used, 0u);
  EXPECT_EQ(worker_.released().at(0).length, 1 + 6 - 1) << "of what was computed, what the answer is made of";
}

TEST_F(StepsAheadTest, TheEndTokenEndsIt) {
  says_ = {"hi"};
  const json all = answer({{"prompt", "ab"}, {"max_tokens", 30}});
  EXPECT_EQ(all["choices"][0]["text"], "hi");
  EXPECT_EQ(all["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(all["usage"]["completion_tokens"], 3);
}

TEST_F(StepsAheadTest, ChoicesEndWhereTheyEnd) {
  says_ = {"a", "bcd", std::string(40, 'e')};
  const json all = answer({{"prompt", "ab"}, {"max_tokens", 20}, {"n", 3}});
  EXPECT_EQ(all["choices"][0]["text"], "a");
  EXPECT_EQ(all["choices"][1]["text"], "bcd");
  EXPECT_EQ(all["choices"][2]["text"], std::string(20, 'e'));
  EXPECT_EQ(all["usage"]["completion_tokens"], 2 + 4 + 20);
  run_until([&] { return control_->snapshot().kv_blocks_used == 0; });
  EXPECT_EQ(control_->snapshot().sampled_tokens, 26u) << "what was dropped counts nowhere";
}

TEST_F(StepsAheadTest, AGrammarIsKept) {
  says_ = {"{\"a\":true} and more"};
  const json all = answer({{"prompt", "ab"}, {"max_tokens", 40}, {"response_format", {{"type", "json_object"}}}});
  EXPECT_EQ(all["choices"][0]["text"], "{\"a\":true}");
  EXPECT_EQ(all["choices"][0]["finish_reason"], "stop");
}

}  // namespace
}  // namespace moestro::orchestrator
