// Low copies of experts, from the request's field to the answer's usage.

#include <gmock/gmock.h>

#include "tests/orchestrator/api_fixture.h"

namespace moestro::orchestrator {
namespace {

using namespace testing;
using nlohmann::json;
using ::testing::HasSubstr;

class MixedApiTest : public ApiTest {
 protected:
  MixedApiTest() { says_ = {"xyz"}; }
  /// Tokens of a prompt of three blocks that are found in the KV cache.
  int cached(const json& own) {
    const json body{{"prompt", "abcdefghij"}, {"max_tokens", 1}, {"moestro", own}};
    return answer(body)["usage"]["prompt_tokens_details"]["cached_tokens"].get<int>();
  }
  void warn_above(double share) {
    service_.emplace(byte_model(), *control_, [this](std::function<void()> work) {
      const std::lock_guard lock(mutex_);
      posted_.push_back(std::move(work));
    }, ServiceOptions{.mixed_warn_share = share});
  }
  void join_mixed() { worker_.join({.model = name_, .mixed = true}); }
  /// Of each token's 8 choices low copies serve 2, and none serves 1, where they may.
  json answer(json body, const std::string& path = "/v1/completions") {
    const auto exchange = post(path, body);
    while (!exchange->done) {
      run_posted();
      const auto plan = worker_.try_plan(std::chrono::milliseconds(2));
      if (!plan) continue;
      PlanOutcome outcome = compute_texts(*plan);
      for (size_t i = 0; i < plan->sequences.size(); ++i) {
        const uint64_t tokens = plan->sequences[i].tokens.size();
        share_max_ = plan->sequences[i].low_share_max;
        const bool full_only = share_max_ == 0;
        outcome.sequences[i].copies = {8 * tokens, full_only ? 0 : 2 * tokens, full_only ? 0 : tokens};
      }
      worker_.answer(outcome);
    }
    EXPECT_EQ(exchange->status, exchange->streaming ? 0 : 200) << exchange->body;
    warned_ = exchange->header("X-Moestro-Low-Share");
    return exchange->streaming ? json() : exchange->json();
  }
  std::string warned_;     ///< the last answer's header
  double share_max_ = -1;  ///< of the last plan
};

const json kAb{{"prompt", "ab"}, {"max_tokens", 3}};
json with(const json& own) {
  json body = kAb;
  body["moestro"] = own;
  return body;
}

TEST_F(MixedApiTest, AnAnswerSaysHowMuchOfItWasLow) {
  join_mixed();
  const json usage = answer(kAb)["usage"];
  EXPECT_EQ(usage["moestro"], (json{{"low_share", 0.25}, {"skipped_share", 0.125}}));
  EXPECT_EQ(share_max_, 1);
  EXPECT_EQ(answer({{"messages", {{{"role", "user"}, {"content", "hi"}}}}, {"max_tokens", 2}},
                   "/v1/chat/completions")["usage"]["moestro"]["low_share"],
            0.25);
  run_until([&] { return control_->snapshot().running == 0; });
  const CopyCounts copies = control_->snapshot().copies;
  EXPECT_GT(copies.choices, 0u);
  EXPECT_EQ(copies.low * 4, copies.choices);
  const json status = send("GET", "/v1/moestro/status")->json();
  EXPECT_EQ(status["mixed"], (json{{"choices", copies.choices}, {"low", copies.low}, {"skipped", copies.skipped}}));
  const std::string metrics = send("GET", "/metrics")->body;
  EXPECT_THAT(metrics, HasSubstr("moestro_low_choices_total " + std::to_string(copies.low)));
  EXPECT_THAT(metrics, HasSubstr("moestro_skipped_choices_total " + std::to_string(copies.skipped)));
  EXPECT_THAT(metrics, HasSubstr("moestro_mixed_choices_total " + std::to_string(copies.choices)));
}

TEST_F(MixedApiTest, ARequestMayTurnItOff) {
  join_mixed();
  EXPECT_EQ(answer(with({{"mixed", false}}))["usage"]["moestro"], (json{{"low_share", 0.0}, {"skipped_share", 0.0}}));
  EXPECT_EQ(share_max_, 0);
  answer(with({{"mixed", true}}));
  EXPECT_EQ(share_max_, 1);
  answer(with(json::object()));
  EXPECT_EQ(share_max_, 1);
}

TEST_F(MixedApiTest, ARequestMayLimitIt) {
  join_mixed();
  answer(with({{"mixed_max_share", 0.25}}));
  EXPECT_EQ(share_max_, 0.25);
  answer(with({{"mixed", true}, {"mixed_max_share", 1}}));
  EXPECT_EQ(share_max_, 1);
  answer(with({{"mixed", false}, {"mixed_max_share", 0.25}}));
  EXPECT_EQ(share_max_, 0) << "the stricter one";
  answer(with({{"mixed_max_share", 0}}));
  EXPECT_EQ(share_max_, 0);
}

TEST_F(MixedApiTest, ALimitedRequestDoesNotBuildOnWhatMoreLowCopiesHaveMade) {
  join_mixed();
  EXPECT_EQ(cached(json::object()), 0);
  EXPECT_EQ(cached({{"mixed_max_share", 0.25}}), 0);
  EXPECT_EQ(cached({{"mixed_max_share", 0.25}}), 8);
  EXPECT_EQ(cached({{"mixed_max_share", 0.125}}), 0);
  EXPECT_EQ(cached({{"mixed_max_share", 0}}), 0);
  EXPECT_EQ(cached({{"mixed", false}}), 8) << "the same as no share";
}

TEST_F(MixedApiTest, AHeaderSaysWhatIsAboveTheOperatorsShare) {
  join_mixed();
  answer(kAb);
  EXPECT_EQ(warned_, "") << "no share was given";
  for (const auto& [share, header] : {std::pair{0.3, "0.3750"}, {0.375, ""}, {1.0, ""}}) {
    warn_above(share);
    answer(kAb);
    EXPECT_EQ(warned_, header) << share;
  }
  warn_above(0.3);
  answer(with({{"mixed", false}}));
  EXPECT_EQ(warned_, "");
  json stream = kAb;
  stream["stream"] = true;
  answer(stream);
  EXPECT_EQ(warned_, "") << "a stream's headers are written first";
}

TEST_F(MixedApiTest, FullCopiesAloneDoNotBuildOnWhatLowOnesHaveMade) {
  join_mixed();
  EXPECT_EQ(cached({{"mixed", true}}), 0);
  EXPECT_EQ(cached({{"mixed", true}}), 8);
  EXPECT_EQ(cached({{"mixed", false}}), 0);
  EXPECT_EQ(cached({{"mixed", false}}), 8);
}

/// A worker with low copies may join before the request runs.
TEST_F(MixedApiTest, WhatARequestSharesDoesNotDependOnTheWorkersOfTheMoment) {
  join();
  EXPECT_EQ(cached(json::object()), 0);
  EXPECT_EQ(cached(json::object()), 8) << "without low copies too, requests without the field share";
  EXPECT_EQ(share_max_, 1);
  EXPECT_EQ(cached({{"mixed", false}}), 0);
  EXPECT_EQ(share_max_, 0);
}

TEST_F(MixedApiTest, EmbeddingsAreOfFullCopies) {
  join_mixed();
  answer({{"input", "ab"}}, "/v1/embeddings");
  EXPECT_EQ(share_max_, 0);
}

TEST_F(MixedApiTest, WithoutLowCopiesNothingIsSaidOfThem) {
  join();
  const auto plain = complete(with({{"mixed", false}}));
  EXPECT_FALSE(plain->json()["usage"].contains("moestro"));
  const auto refused = complete(with({{"mixed", true}}));
  EXPECT_EQ(refused->status, 400);
  EXPECT_EQ(refused->json()["error"]["param"], "moestro");
  EXPECT_THAT(refused->json()["error"]["message"].get<std::string>(), HasSubstr("no worker with --mixed is connected"));
}

TEST_F(MixedApiTest, RefusesOtherFields) {
  join_mixed();
  for (const auto& [own, param] : {std::pair<json, const char*>{true, "moestro"},
                                   {{{"mixed", 1}}, "mixed"},
                                   {{{"mixed", "no"}}, "mixed"},
                                   {{{"mixed_max_share", 1.01}}, "mixed_max_share"},
                                   {{{"mixed_max_share", -0.1}}, "mixed_max_share"},
                                   {{{"mixed_max_share", "0.5"}}, "mixed_max_share"},
                                   {{{"copies", true}}, "copies"}}) {
    const auto refused = complete(with(own));
    EXPECT_EQ(refused->status, 400) << own;
    EXPECT_EQ(refused->json()["error"]["param"], param) << own;
  }
}

}  // namespace
}  // namespace moestro::orchestrator
