// /v1/embeddings: what it answers, and what it refuses. Hidden states are {token, position, -1, 0.5}.

#include "orchestrator/api/embedding.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>

#include "tests/orchestrator/api_fixture.h"

namespace moestro::orchestrator {
namespace {

using namespace testing;
using nlohmann::json;
using ::testing::HasSubstr;

class EmbeddingTest : public ApiTest {
 protected:
  explicit EmbeddingTest(ServiceOptions service = {})
      : ApiTest(byte_model(), /*queue_max=*/64, /*steps_in_flight=*/1, service) {}
  int64_t cached(const std::string& project, const json& more = json::object()) {
    json body{{"input", "abcdefghij"}};
    body.update(more);
    return cached_tokens(project, body, "/v1/embeddings");
  }
  json embed(const json& body) {
    const auto exchange = complete(body, "/v1/embeddings");
    EXPECT_EQ(exchange->status, 200) << exchange->body;
    return exchange->json();
  }
  std::vector<double> values(const json& body) {
    return embed(body).at("data").at(0).at("embedding").get<std::vector<double>>();
  }
  json refused(const json& body, int status = 400) {
    const auto exchange = complete(body, "/v1/embeddings");
    EXPECT_EQ(exchange->status, status) << exchange->body;
    return exchange->json()["error"];
  }
  std::string metrics() { return send("GET", "/metrics")->body; }
};

std::vector<double> unit(std::vector<double> values) {
  double squares = 0;
  for (const double v : values) squares += v * v;
  for (double& v : values) v = static_cast<float>(v / std::sqrt(squares));
  return values;
}

class SharedEmbeddingTest : public EmbeddingTest {
 protected:
  SharedEmbeddingTest() : EmbeddingTest({.share_prefixes = true}) {}
};

TEST_F(EmbeddingTest, AProjectFindsNothingOfAnothersInTheKvCache) {
  join();
  EXPECT_EQ(cached("ann"), 0);
  EXPECT_EQ(cached("bob"), 0);
  EXPECT_EQ(cached("ann"), 8) << "in blocks of 4";
  EXPECT_EQ(cached("", {{"cache_salt", "ann"}}), 0) << "a salt is no way into a project";
}

TEST_F(SharedEmbeddingTest, AProjectFindsWhatOthersHaveInTheKvCache) {
  join();
  EXPECT_EQ(cached("ann"), 0);
  EXPECT_EQ(cached("bob"), 8);
}

TEST_F(EmbeddingTest, TheLastTokenOfEachInputByDefault) {
  join();
  const json answer = embed({{"model", "m"}, {"input", {"ab", "c"}}, {"user", "u"}});
  EXPECT_EQ(answer["object"], "list");
  EXPECT_EQ(answer["model"], "m");
  EXPECT_EQ(answer["pooling"], "last");
  EXPECT_EQ(answer["normalize"], true);
  ASSERT_EQ(answer["data"].size(), 2u);
  const std::vector<std::vector<double>> want{unit({'b', 1, -1, 0.5}), unit({'c', 0, -1, 0.5})};
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(answer["data"][i]["object"], "embedding");
    EXPECT_EQ(answer["data"][i]["index"], i);
    const auto got = answer["data"][i]["embedding"].get<std::vector<double>>();
    ASSERT_EQ(got.size(), want[i].size());
    for (size_t k = 0; k < got.size(); ++k) EXPECT_FLOAT_EQ(static_cast<float>(got[k]), static_cast<float>(want[i][k]));
  }
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 3);
  EXPECT_EQ(answer["usage"]["total_tokens"], 3);
  EXPECT_EQ(complete({{"input", "a"}}, "/embeddings")->status, 200);
}

TEST_F(EmbeddingTest, PoolingAndLength) {
  join();
  EXPECT_EQ(values({{"input", "abc"}, {"normalize", false}}), (std::vector<double>{'c', 2, -1, 0.5}));
  EXPECT_EQ(values({{"input", "abc"}, {"pooling", "mean"}, {"normalize", false}}),
            (std::vector<double>{'b', 1, -1, 0.5}));
  EXPECT_EQ(embed({{"input", "a"}, {"pooling", "mean"}})["pooling"], "mean");
  EXPECT_EQ(embed({{"input", "a"}, {"normalize", false}})["normalize"], false);
  EXPECT_EQ(embedding_values({0, 0}, true), (std::vector<float>{0, 0})) << "nothing to divide by";
  EXPECT_EQ(embedding_values({3, -4}, true), (std::vector<float>{0.6f, -0.8f}));
}

TEST_F(EmbeddingTest, TokenIds) {
  join();
  EXPECT_EQ(values({{"input", {97, 98}}, {"normalize", false}}), (std::vector<double>{'b', 1, -1, 0.5}));
  const json answer = embed({{"input", json::array({{97, 98}, {99}})}, {"normalize", false}});
  ASSERT_EQ(answer["data"].size(), 2u);
  EXPECT_EQ(answer["data"][1]["embedding"], (json{99, 0, -1, 0.5}));
}

TEST_F(EmbeddingTest, Base64IsTheLittleEndianBytes) {
  join();
  const json answer = embed({{"input", "a"}, {"encoding_format", "base64"}, {"normalize", false}});
  // python3 -c "import base64, struct; print(base64.b64encode(struct.pack('<4f', 97, 0, -1, .5)).decode())"
  EXPECT_EQ(answer["data"][0]["embedding"], "AADCQgAAAAAAAIC/AAAAPw==");
  EXPECT_EQ(embedding_json({}, true), "\"\"");
  EXPECT_EQ(embedding_json({1.0f}, true), "\"AACAPw==\"");
}

TEST_F(EmbeddingTest, NumbersAreTheShortestThatAreReadAsTheSameFloat) {
  const std::vector<float> hard{0.1f, -1e-38f, 1.17549435e-38f, 1e-45f, 3.4028235e38f, 16777216.0f, -0.0f, 1.0f / 3};
  const json read = json::parse(embedding_json(hard, false));
  ASSERT_EQ(read.size(), hard.size());
  for (size_t i = 0; i < hard.size(); ++i) EXPECT_EQ(read[i].get<float>(), hard[i]) << read[i];
  EXPECT_EQ(embedding_json({0.1f, 2.0f}, false), "[0.1,2]");
  EXPECT_EQ(embedding_json({}, false), "[]");
}

TEST_F(EmbeddingTest, WhatCannotBeIsRefusedByName) {
  join();
  const auto expect = [&](const json& body, const std::string& param, const std::string& part) {
    const json e = refused(body);
    EXPECT_EQ(e["param"], param) << e;
    EXPECT_THAT(e["message"].get<std::string>(), HasSubstr(part));
  };
  expect(json::object(), "input", "is missing");
  expect({{"input", ""}}, "input", "empty text");
  expect({{"input", {"a", ""}}}, "input", "empty text");
  expect({{"input", json::array()}}, "input", "empty list");
  expect({{"input", json::array({json::array()})}}, "input", "token ids");
  expect({{"input", 5}}, "input", "must be");
  expect({{"input", {1, "a"}}}, "input", "mixes");
  expect({{"input", {999}}}, "input", "0 to 256");
  expect({{"input", "a"}, {"dimensions", 2}}, "dimensions", "have 4 values");
  expect({{"input", "a"}, {"encoding_format", "int8"}}, "encoding_format", "'float' or 'base64'");
  expect({{"input", "a"}, {"pooling", "cls"}}, "pooling", "'last' or 'mean'");
  expect({{"input", "a"}, {"normalize", "yes"}}, "normalize", "true or false");
  expect({{"input", "a"}, {"truncate_prompt_tokens", 5}}, "truncate_prompt_tokens", "not known here");
  expect({{"input", std::vector<std::string>(65, "a")}}, "input", "65 entries");
  EXPECT_EQ(refused({{"input", "a"}, {"model", "gpt-99"}}, 404)["code"], "model_not_found");
  const json e = refused({{"input", std::string(65, 'a')}});
  EXPECT_EQ(e["type"], "exceed_context_size_error");
  EXPECT_EQ(e["n_prompt_tokens"], 65);
  EXPECT_EQ(e["n_ctx"], kContext);
  EXPECT_EQ(values({{"input", std::string(64, 'a')}, {"dimensions", 4}}).size(), 4u) << "all of the context";
  EXPECT_EQ(send("GET", "/v1/embeddings")->status, 405);
}

TEST_F(EmbeddingTest, NoWorkerYet) {
  const auto exchange = post("/v1/embeddings", {{"input", "a"}});
  EXPECT_EQ(exchange->status, 503);
  EXPECT_EQ(exchange->header("Retry-After"), "1");
}

TEST_F(EmbeddingTest, IsCounted) {
  join();
  embed({{"input", {"ab", "c"}}});
  refused({{"input", ""}});
  EXPECT_THAT(metrics(), HasSubstr("moestro_prompt_tokens_total{model=\"m\"} 3"));
  EXPECT_THAT(metrics(), HasSubstr("moestro_requests_total{model=\"m\",result=\"ok\"} 1"));
  EXPECT_THAT(metrics(), HasSubstr("moestro_requests_total{model=\"m\",result=\"refused\"} 1"));
  EXPECT_THAT(metrics(), HasSubstr("moestro_requests_running{model=\"m\"} 0"));
}

TEST_F(EmbeddingTest, AClientThatLeavesCancelsItsSequences) {
  join();
  const auto exchange = post("/v1/embeddings", {{"input", {"ab", "c"}}});
  exchange->gone();
  run_until([&] { return control_->snapshot().running + control_->snapshot().waiting == 0; });
  EXPECT_FALSE(exchange->done);
  EXPECT_THAT(metrics(), HasSubstr("result=\"cancelled\"} 1"));
}

TEST_F(EmbeddingTest, AFailedInputFailsTheRequest) {
  join();
  const auto exchange = post("/v1/embeddings", {{"input", "ab"}});
  PlanOutcome outcome = compute_texts(worker_.hear_plan());
  outcome.sequences[0].state_sum.clear();
  outcome.sequences[0].error = internal_error("last norm: it broke");
  worker_.answer(outcome);
  finish(*exchange);
  EXPECT_EQ(exchange->status, 500);
  EXPECT_THAT(exchange->body, HasSubstr("it broke"));
}

TEST_F(EmbeddingTest, StatesOfAnotherModelFailTheRequest) {
  join();
  for (const std::vector<double>& wrong : {std::vector<double>{1, 2, 3}, {1, 2, 3, NAN}}) {
    const auto exchange = post("/v1/embeddings", {{"input", "ab"}});
    PlanOutcome outcome = compute_texts(worker_.hear_plan());
    outcome.sequences[0].state_sum = wrong;
    worker_.answer(outcome);
    finish(*exchange);
    EXPECT_EQ(exchange->status, 500);
    EXPECT_THAT(exchange->body, HasSubstr("hidden states are not those of this model"));
  }
}

}  // namespace
}  // namespace moestro::orchestrator
