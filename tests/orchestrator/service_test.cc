// What the API refuses, and its routes beside completions.

#include "orchestrator/api/service.h"

#include <gmock/gmock.h>


#include "tests/orchestrator/api_fixture.h"
#include "tests/support/places.h"

namespace moestro::orchestrator {
namespace {

using namespace testing;
using nlohmann::json;
using ::testing::HasSubstr;

class ServiceTest : public ApiTest {
 protected:
  using ApiTest::ApiTest;
  /// The error object of an answer of this status.
  static json error(const FakeExchange& exchange, int status) {
    EXPECT_EQ(exchange.status, status) << exchange.body;
    const json body = exchange.json();
    EXPECT_TRUE(body.contains("error")) << exchange.body;
    for (const char* field : {"message", "type", "param", "code"}) EXPECT_TRUE(body["error"].contains(field)) << field;
    return body["error"];
  }
  std::string metrics() { return send("GET", "/metrics")->body; }
  json status_with(const std::string& query) {
    const auto asked = std::make_shared<FakeExchange>();
    service_->handle({.method = "GET", .path = "/v1/moestro/status", .body = "", .query = query}, asked);
    return asked->json();
  }
};

TEST_F(ServiceTest, NoWorkerYet) {
  const auto exchange = post("/v1/completions", {{"prompt", "a"}});
  EXPECT_EQ(error(*exchange, 503)["message"], "Loading model");
  EXPECT_EQ(exchange->header("Retry-After"), "1");
  EXPECT_EQ(error(*send("GET", "/health"), 503)["type"], "unavailable_error");
  join();
  EXPECT_EQ(send("GET", "/health")->status, 200);
  EXPECT_EQ(send("GET", "/v1/health")->body, R"({"status":"ok"})");
}

TEST_F(ServiceTest, UnknownModels) {
  join();
  const json e = error(*post("/v1/completions", {{"prompt", "a"}, {"model", "gpt-99"}}), 404);
  EXPECT_EQ(e["code"], "model_not_found");
  EXPECT_EQ(e["param"], "model");
  EXPECT_EQ(
      error(*post("/v1/chat/completions", {{"messages", {{{"role", "user"}, {"content", "a"}}}}, {"model", "gpt-99"}}),
            404)["code"],
      "model_not_found");
}

TEST_F(ServiceTest, Models) {
  const json list = send("GET", "/v1/models")->json();
  EXPECT_EQ(list["object"], "list");
  ASSERT_EQ(list["data"].size(), 1u);
  const json one = send("GET", "/v1/models/m")->json();
  EXPECT_EQ(one, list["data"][0]);
  EXPECT_EQ(one["id"], "m");
  EXPECT_EQ(one["object"], "model");
  EXPECT_EQ(one["created"], 1700000000);
  EXPECT_EQ(one["meta"]["n_ctx"], kContext);
  const json e = error(*send("GET", "/v1/models/gpt-99"), 404);
  EXPECT_EQ(e["code"], "model_not_found");
  EXPECT_EQ(e["type"], "invalid_request_error");
  EXPECT_THAT(e["message"].get<std::string>(), HasSubstr("'gpt-99'"));
  EXPECT_EQ(error(*send("GET", "/v1/models/"), 404)["type"], "not_found_error");
}

/// A model with a slash in its name, and further names.
class AliasTest : public ServiceTest {
 protected:
  AliasTest() : ServiceTest(named()) { join(); }
  static ServedModel named() {
    ServedModel model = byte_model();
    model.name = "Qwen/Qwen3-30B-A3B";
    model.aliases = {"gpt-4o", "a/b:c"};
    return model;
  }
};

TEST_F(AliasTest, IsServedAndListedUnderEachName) {
  const json list = send("GET", "/v1/models")->json()["data"];
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0]["id"], "Qwen/Qwen3-30B-A3B");
  EXPECT_EQ(list[0]["parent"], nullptr);
  EXPECT_EQ(list[2]["id"], "a/b:c");
  for (const json& entry : list) EXPECT_EQ(entry["root"], "Qwen/Qwen3-30B-A3B");
  EXPECT_EQ(list[1]["parent"], "Qwen/Qwen3-30B-A3B");
  for (const char* path :
       {"/v1/models/Qwen/Qwen3-30B-A3B", "/v1/models/Qwen%2FQwen3-30B-A3B", "/models/Qwen%2fQwen3-30B-A3B"})
    EXPECT_EQ(send("GET", path)->json(), list[0]) << path;
  EXPECT_EQ(send("GET", "/v1/models/gpt-4o")->json(), list[1]);
  EXPECT_EQ(send("GET", "/v1/models/a%2Fb%3Ac")->json(), list[2]);
  for (const char* path : {"/v1/models/Qwen", "/v1/models/Qwen%2", "/v1/models/gpt-4o/", "/v1/models/a%252Fb:c"})
    EXPECT_EQ(error(*send("GET", path), 404)["code"], "model_not_found") << path;
}

TEST_F(AliasTest, AnAnswerHasTheNameThatWasAskedFor) {
  says_ = {"x"};
  const auto name_in = [&](json request) {
    request["prompt"] = "a";
    return complete(request)->json()["model"];
  };
  EXPECT_EQ(name_in({{"model", "gpt-4o"}}), "gpt-4o");
  EXPECT_EQ(name_in({{"model", "Qwen/Qwen3-30B-A3B"}}), "Qwen/Qwen3-30B-A3B");
  EXPECT_EQ(name_in(json::object()), "Qwen/Qwen3-30B-A3B");
  const auto stream = complete({{"prompt", "a"}, {"model", "a/b:c"}, {"stream", true}});
  EXPECT_EQ(stream->events()[0]["model"], "a/b:c");
  EXPECT_EQ(error(*post("/v1/completions", {{"prompt", "a"}, {"model", "Qwen"}}), 404)["param"], "model");
  const std::string all = metrics();
  EXPECT_THAT(all, HasSubstr("model=\"Qwen/Qwen3-30B-A3B\""));
  EXPECT_EQ(all.find("gpt-4o"), std::string::npos) << "labels are the model's own name";
}

TEST_F(ServiceTest, RoutesByOtherNames) {
  EXPECT_EQ(send("GET", "/models")->body, send("GET", "/v1/models")->body);
  EXPECT_EQ(send("GET", "/models/m")->json()["id"], "m");
  EXPECT_EQ(send("GET", "/ping")->status, 503) << "as /health";
  join();
  EXPECT_EQ(send("GET", "/ping")->status, 200);
  EXPECT_EQ(error(*post("/completions", {{"prompt", 5}}), 400)["param"], "prompt");
  EXPECT_EQ(error(*post("/chat/completions", {{"messages", 5}}), 400)["param"], "messages");
  EXPECT_EQ(send("GET", "/load")->body, R"({"server_load":0})");
  const auto under_way = post("/v1/completions", {{"prompt", "a"}});
  EXPECT_EQ(send("GET", "/load")->body, R"({"server_load":1})");
  finish(*under_way);
  EXPECT_FALSE(send("GET", "/version")->json()["version"].get<std::string>().empty());
}

TEST_F(ServiceTest, WrongMethodsAreToldTheRightOnes) {
  for (const auto& [method, path, allow] :
       std::vector<std::array<const char*, 3>>{{"GET", "/v1/completions", "POST"},
                                               {"PUT", "/v1/chat/completions", "POST"},
                                               {"GET", "/tokenize", "POST"},
                                               {"POST", "/v1/models", "GET, HEAD"},
                                               {"DELETE", "/v1/models/m", "GET, HEAD"},
                                               {"POST", "/health", "GET, HEAD"}}) {
    const auto exchange = send(method, path);
    EXPECT_EQ(error(*exchange, 405)["type"], "invalid_request_error") << path;
    EXPECT_EQ(exchange->header("Allow"), allow) << path;
  }
  EXPECT_EQ(error(*send("GET", "/v1/nothing"), 404)["type"], "not_found_error");
  EXPECT_EQ(error(*send("GET", "/index.html"), 404)["type"], "not_found_error");
  EXPECT_EQ(send("POST", "/")->header("Allow"), "GET, HEAD");
}

TEST_F(ServiceTest, PromptsThatDoNotFit) {
  join();
  const json e = error(*post("/v1/completions", {{"prompt", std::string(kContext, 'a')}}), 400);
  EXPECT_EQ(e["type"], "exceed_context_size_error");
  EXPECT_EQ(e["n_prompt_tokens"], kContext);
  EXPECT_EQ(e["n_ctx"], kContext);
  EXPECT_EQ(e["param"], "prompt");
  EXPECT_EQ(
      error(*post("/v1/completions", {{"prompt", std::string(kContext + 1, 'a')}, {"max_tokens", 0}, {"echo", true}}),
            400)["type"],
      "exceed_context_size_error");
  EXPECT_EQ(error(*post("/v1/chat/completions",
                        {{"messages", {{{"role", "user"}, {"content", std::string(kContext, 'a')}}}}}),
                  400)["param"],
            "messages");
  EXPECT_EQ(error(*post("/v1/completions", {{"prompt", "a"}, {"max_tokens", kContext + 1}}), 400)["param"],
            "max_tokens");
  const auto fits = complete({{"prompt", std::string(kContext - 1, 'a')}});
  EXPECT_EQ(fits->json()["usage"]["completion_tokens"], 1);
}

TEST_F(ServiceTest, PromptsThatAreWrong) {
  join();
  EXPECT_EQ(error(*post("/v1/completions", {{"prompt", "a"}, {"max_tokens", 0}}), 400)["param"], "max_tokens");
  EXPECT_EQ(error(*post("/v1/completions", {{"prompt", {kEnd + 1}}}), 400)["param"], "prompt");
  EXPECT_EQ(error(*post("/v1/completions", {{"prompt", {-1}}}), 400)["param"], "prompt");
  EXPECT_EQ(error(*post("/v1/completions", {{"prompt", "a"}, {"colour", "red"}}), 400)["code"],
            "unsupported_parameter");
  EXPECT_THAT(error(*send("POST", "/v1/completions", "{"), 400)["message"].get<std::string>(), HasSubstr("JSON"));
  EXPECT_THAT(metrics(), HasSubstr("moestro_requests_total{model=\"m\",result=\"refused\"} 5"));
}

TEST_F(ServiceTest, AnEmptyPromptStartsFromTheTokenThatBeginsTexts) {
  join();
  const auto exchange = post("/v1/completions", {{"prompt", ""}, {"max_tokens", 1}});
  const Plan plan = worker_.hear_plan();
  EXPECT_EQ(plan.sequences.at(0).tokens, std::vector<TokenId>{kEnd});
  worker_.answer(compute_texts(plan));
  finish(*exchange);
  EXPECT_EQ(exchange->json()["usage"]["prompt_tokens"], 1);
}

TEST_F(ServiceTest, WithoutAChatTemplateThereIsNoChat) {
  ServedModel model = byte_model();
  model.chat_template.reset();
  model.chat_template_missing = "the model has no chat template";
  Service service(std::move(model), *control_, [](const std::function<void()>&) {});
  join();
  auto exchange = std::make_shared<FakeExchange>();
  service.handle({"POST", "/v1/chat/completions", R"({"messages": [{"role": "user", "content": "a"}]})"}, exchange);
  EXPECT_THAT(error(*exchange, 400)["message"].get<std::string>(), HasSubstr("no chat template"));
}

class FullTest : public ServiceTest {
 protected:
  FullTest() : ServiceTest(byte_model(), /*queue_max=*/2) {}
};

TEST_F(FullTest, AFullQueueAsksToTryLater) {
  join();
  says_ = {"one", "two", "three"};
  const auto first = post("/v1/completions", {{"prompt", "a"}, {"n", 2}});
  const auto second = post("/v1/completions", {{"prompt", "a"}, {"stream", true}});
  EXPECT_FALSE(second->streaming) << "what is refused is no stream";
  EXPECT_EQ(error(*second, 429)["type"], "rate_limit_error");
  EXPECT_EQ(second->header("Retry-After"), "1");
  finish(*first);
  EXPECT_EQ(first->status, 200);
  EXPECT_EQ(complete({{"prompt", "a"}, {"max_tokens", 3}})->json()["choices"][0]["text"], "one");
  EXPECT_THAT(error(*post("/v1/completions", {{"prompt", "a"}, {"n", 3}}), 400)["message"].get<std::string>(),
              HasSubstr("3 sequences"))
      << "trying again would not help";
  run_until([&] { return control_->snapshot().running + control_->snapshot().waiting == 0; });
  EXPECT_EQ(send("GET", "/v1/moestro/status")->json()["requests"]["running"], 0);
}

TEST_F(ServiceTest, TokenizeSpeaksTwoDialects) {
  const auto tokens = [&](const json& body) { return post("/tokenize", body)->json(); };
  EXPECT_EQ(tokens({{"content", "ab<|end|>"}}),
            (json{{"tokens", {'a', 'b', kEnd}}, {"count", 3}, {"max_model_len", kContext}}));
  EXPECT_EQ(tokens({{"prompt", "ab"}, {"model", "m"}}),
            (json{{"tokens", {'a', 'b'}}, {"count", 2}, {"max_model_len", kContext}}));
  EXPECT_EQ(tokens({{"content", ""}})["tokens"], json::array());
  const json messages{{{"role", "user"}, {"content", "a"}}};
  for (const auto& [body, param] : std::vector<std::pair<json, const char*>>{
           {json::object(), "content"},
           {{{"content", 5}}, "content"},
           {{{"prompt", {1, 2}}}, "prompt"},
           {{{"content", "a"}, {"prompt", "a"}}, "prompt"},
           {{{"content", "a"}, {"add_special", "yes"}}, "add_special"},
           {{{"prompt", "a"}, {"add_special", true}, {"add_special_tokens", true}}, "add_special_tokens"},
           {{{"content", "a"}, {"with_pieces", 1}}, "with_pieces"},
           {{{"content", "a"}, {"return_token_strs", "no"}}, "return_token_strs"},
           {{{"content", "a"}, {"add_generation_prompt", true}}, "add_generation_prompt"},
           {{{"content", "a"}, {"messages", messages}}, "messages"},
           {{{"messages", "a"}}, "messages"},
           {{{"messages", messages}, {"add_special_tokens", true}}, "add_special_tokens"},
           {{{"messages", messages}, {"chat_template_kwargs", 5}}, "chat_template_kwargs"},
           {{{"content", "a"}, {"colour", "red"}}, "colour"}})
    EXPECT_EQ(error(*post("/tokenize", body), 400)["param"], param) << body;
}

TEST_F(ServiceTest, TokenizeShowsWhatTokensStandFor) {
  const json pieces = post("/tokenize", {{"content", "a\u00e9<|end|>"}, {"with_pieces", true}})->json();
  EXPECT_EQ(pieces["tokens"], (json{{{"id", 'a'}, {"piece", "a"}},
                                    {{"id", 0xC3}, {"piece", {0xC3}}},
                                    {{"id", 0xA9}, {"piece", {0xA9}}},
                                    {{"id", kEnd}, {"piece", "<|end|>"}}}));
  EXPECT_EQ(pieces["count"], 4);
  const json spelled = post("/tokenize", {{"prompt", " a\u00e9"}, {"return_token_strs", true}})->json();
  EXPECT_EQ(spelled["tokens"], (json{' ', 'a', 0xC3, 0xA9}));
  EXPECT_EQ(spelled["token_strs"], (json{"\u0120", "a", "\u00c3", "\u00a9"})) << "as the vocabulary spells them";
}

TEST_F(ServiceTest, AChatsPromptAndItsTokens) {
  const json messages{{{"role", "user"}, {"content", "hi"}}};
  EXPECT_EQ(post("/apply-template", {{"messages", messages}})->json(), (json{{"prompt", "u:hi a:"}}));
  EXPECT_EQ(post("/apply-template", {{"messages", messages}, {"model", "m"}, {"temperature", 0.5}})->json(),
            (json{{"prompt", "u:hi a:"}}));
  const json tokens = post("/tokenize", {{"messages", messages}, {"return_token_strs", true}})->json();
  EXPECT_EQ(tokens["tokens"], (json{'u', ':', 'h', 'i', ' ', 'a', ':'}));
  EXPECT_EQ(tokens["count"], 7);
  EXPECT_EQ(tokens["token_strs"][4], "\u0120");
  EXPECT_EQ(error(*post("/apply-template", {{"messages", messages}, {"model", "x"}}), 404)["param"], "model");
  EXPECT_EQ(error(*post("/apply-template", {{"messages", json::array()}}), 400)["param"], "messages");
  EXPECT_EQ(error(*post("/apply-template", {{"messages", messages}, {"colour", 1}}), 400)["param"], "colour");
}

TEST_F(ServiceTest, Detokenize) {
  EXPECT_EQ(post("/detokenize", {{"tokens", {'h', 'i', kEnd}}})->json(),
            (json{{"content", "hi<|end|>"}, {"prompt", "hi<|end|>"}}));
  EXPECT_EQ(post("/detokenize", {{"tokens", json::array()}})->json()["content"], "");
  EXPECT_EQ(post("/detokenize", {{"tokens", {0xC3}}})->json()["content"], "\uFFFD") << "half a character";
  for (const char* tokens : {"5", "null", "\"a\"", "[-1]", "[257]", "[1.5]", "[\"a\"]", "[[1]]",
                             "[18446744073709551615]", "[9223372036854775808]"})
    EXPECT_EQ(error(*send("POST", "/detokenize", std::string(R"({"tokens": )") + tokens + "}"), 400)["param"], "tokens")
        << tokens;
  EXPECT_EQ(error(*send("POST", "/detokenize", "{}"), 400)["param"], "tokens");
  EXPECT_EQ(error(*post("/detokenize", {{"tokens", {1}}, {"colour", "red"}}), 400)["param"], "colour");
}

TEST_F(ServiceTest, FiguresOfWhatWasDone) {
  join();
  says_ = {"xyz"};
  complete({{"prompt", "ab"}, {"max_tokens", 3}});
  run_until([&] { return control_->snapshot().plans == 3 && control_->snapshot().running == 0; });
  const std::string text = metrics();
  for (const char* line :
       {"moestro_requests_total{model=\"m\",result=\"ok\"} 1", "moestro_requests_running{model=\"m\"} 0",
        "moestro_prompt_tokens_total{model=\"m\"} 2", "moestro_generated_tokens_total 3", "moestro_steps_total 3",
        "moestro_workers 1", "moestro_nonfinite_sequences_total 6", "moestro_capacity_dropped_total 15",
        "moestro_time_to_first_token_seconds_count{model=\"m\"} 1",
        "moestro_time_per_output_token_seconds_count{model=\"m\"} 2"})
    EXPECT_THAT(text, HasSubstr(line));
  const json status = send("GET", "/v1/moestro/status")->json();
  EXPECT_EQ(status["model"], "m");
  EXPECT_EQ(status["tokens"], (json{{"prompt", 2}, {"generated", 3}, {"prefix_cached", 0}}));
  EXPECT_EQ(status["tiers"]["dram"]["hits"], 9);
  EXPECT_EQ(status["workers"][0]["name"], "w");
}

TEST_F(ServiceTest, TheUseOfExpertsIsToldToThoseWhoAsk) {
  worker_.join({.model = name_, .experts = {2, 3, 1}});
  const auto exchange = post("/v1/completions", {{"prompt", "ab"}, {"max_tokens", 1}});
  PlanOutcome outcome = compute_texts(worker_.hear_plan());
  outcome.sequences[0].activations = {
      {MoeLayerId(0), ExpertId(2), 2}, {MoeLayerId(1), ExpertId(0), 1}, {MoeLayerId(1), ExpertId(1), 1}};
  worker_.answer(outcome);
  finish(*exchange);
  EXPECT_FALSE(status_with("").contains("experts"));
  const json asked = status_with("experts=1");
  EXPECT_EQ(asked["experts"]["shares"], (json{{0.0, 0.0, 1.0}, {0.5, 0.5, 0.0}}));
  EXPECT_EQ(asked["experts"]["layers"], 2);
}

TEST_F(ServiceTest, TheHistoryIsToldToThoseWhoAsk) {
  join();
  service_->sample();
  complete({{"prompt", "ab"}, {"max_tokens", 1}});
  service_->sample();
  EXPECT_FALSE(status_with("").contains("history"));
  EXPECT_FALSE(status_with("xhistory=1").contains("history"));
  for (const char* query : {"history=1", "experts=1&history=1"}) {
    const json history = status_with(query)["history"];
    ASSERT_EQ(history["samples"].size(), 2u) << query;
    EXPECT_EQ(history["members"][2], "tokens.prompt");
    EXPECT_EQ(history["samples"][0][2], 0);
    EXPECT_EQ(history["samples"][1][2], 2);
  }
  EXPECT_TRUE(status_with("experts=1&history=1").contains("experts"));
  EXPECT_GT(status_with("")["recent"]["ttft_s"]["p99"], 0.0) << "without having asked for anything";
}

/// With the tokenizer, chat template and limits of the demo model of the source tree.
class DemoTest : public ServiceTest {
 protected:
  DemoTest() : ServiceTest(demo()) {}
  static ServedModel demo() {
    auto model = ServedModel::load("demo", test::source_dir() / "models/demo");
    MOESTRO_CHECK(model.is_ok(), model.status().message());
    return std::move(*model);
  }
};

TEST_F(DemoTest, TextsComeBackFromTheirTokens) {
  for (const std::string text :
       {"Once upon a time, there was a fox.", "naïve café — 東京\n\n\tend", "<|im_start|>user\n"}) {
    const json tokens = post("/tokenize", {{"content", text}})->json()["tokens"];
    EXPECT_LT(tokens.size(), text.size()) << text;
    EXPECT_EQ(post("/detokenize", {{"tokens", tokens}})->json()["content"], text);
  }
}

TEST_F(DemoTest, AChatIsWhatTheTemplateWrites) {
  join();
  const auto exchange =
      post("/v1/chat/completions", {{"messages", {{{"role", "user"}, {"content", "Hi"}}}}, {"max_tokens", 1}});
  const Plan plan = worker_.hear_plan();
  const json written = {{"tokens", plan.sequences.at(0).tokens}};
  EXPECT_EQ(post("/detokenize", written)->json()["content"], "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  worker_.answer(compute_texts(plan));
  finish(*exchange);
  EXPECT_EQ(exchange->status, 200);
}

}  // namespace
}  // namespace moestro::orchestrator
