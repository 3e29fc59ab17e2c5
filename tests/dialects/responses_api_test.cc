// /v1/responses over a real state and a worker that answers with a text.

#include "orchestrator/dialects/responses_api.h"

#include <gmock/gmock.h>

#include <atomic>
#include <future>

#include "tests/dialects/dialect_events.h"
#include "tests/orchestrator/api_fixture.h"
#include "tests/state/state_backends.h"

namespace moestro::orchestrator {
namespace {

using namespace testing;
using nlohmann::json;
using ::testing::HasSubstr;

constexpr int64_t kCallsContext = 256;

/// As byte_model(), with calls: each shows as its function's name and the argument `a`.
ServedModel calling_model() {
  const std::string source =
      "{% if tools %}<tool_call>{\"name\"</tool_call> {% endif %}"
      "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}"
      "{% for c in m.tool_calls %}{{ c.function.name }}({{ c.function.arguments.a }}){% endfor %} {% endfor %}"
      "{% if add_generation_prompt %}a:{% endif %}";
  ServedModel m = byte_model();
  auto chat = ChatTemplate::parse(source);
  MOESTRO_CHECK(chat.is_ok(), chat.status().message());
  m.chat_template = std::move(*chat);
  m.set_styles(source);
  m.context_max = kCallsContext;
  return m;
}

class ResponsesApiTest : public ApiTest, public ::testing::WithParamInterface<test::Backend> {
 protected:
  explicit ResponsesApiTest(ServiceOptions service = {})
      : ApiTest(calling_model(), /*queue_max=*/64, /*steps_in_flight=*/1, service), lenient_(service.lenient) {}
  void SetUp() override {
    if (GetParam() == test::Backend::kRedis && !test::RedisServer::is_installed())
      GTEST_SKIP() << "redis-server is not installed";
    says_ = {"hey"};
    box_.emplace(GetParam());
    worker_.join({.model = name_,
                  .limits = {.kv_blocks = 128,
                             .kv_block_tokens = 4,
                             .context_max = kCallsContext,
                             .step_tokens_max = 256,
                             .step_sequences_max = 4}});
    start({.lenient = lenient_});
  }
  void TearDown() override {
    if (box_) stop();
  }
  void start(ResponsesOptions options) {
    auto opened = box_->open();
    const auto post = [this](std::function<void()> work) {
      const std::lock_guard lock(mutex_);
      posted_.push_back(std::move(work));
    };
    runner_ = std::make_unique<BatchRunner>(
        std::move(opened.state), std::move(opened.files), "m", limits_,
        [this](HttpRequest r, std::shared_ptr<Exchange> e) { service_->handle(std::move(r), std::move(e)); }, post,
        [this] { return now_.load(); }, std::vector<std::string>{}, [] { return "1"; });
    api_ = std::make_unique<ResponsesApi>(*service_, *runner_, options);
    service_->extend(*api_);
  }
  void stop() {
    service_->forget_extensions();
    runner_.reset();
    api_.reset();
    const std::lock_guard lock(mutex_);
    posted_.clear();
  }
  std::shared_ptr<FakeExchange> exchange_of(const std::string& method, const std::string& path, const json& body = {}) {
    HttpRequest request{method, path.substr(0, path.find('?')), body.is_null() ? "" : body.dump()};
    if (const size_t mark = path.find('?'); mark != std::string::npos) request.query = path.substr(mark + 1);
    request.owner = request.project = project_;
    request.sees_all = project_ == "admin";
    auto exchange = std::make_shared<FakeExchange>();
    service_->handle(std::move(request), exchange);
    finish(*exchange);
    return exchange;
  }
  json ask(const std::string& method, const std::string& path, const json& body = {}, int status = 200) {
    const auto exchange = exchange_of(method, path, body);
    EXPECT_EQ(exchange->status, status) << exchange->body;
    return exchange->json();
  }
  json respond(json body, int status = 200) { return ask("POST", "/v1/responses", std::move(body), status); }
  std::string id_of(const json& body) { return respond(body).value("id", ""); }

  const bool lenient_;
  BatchLimits limits_;   ///< from the next start() on
  std::string project_;  ///< whose requests are sent
  std::atomic<int64_t> now_{1'000'000'000};
  std::optional<test::StateBox> box_;
  std::unique_ptr<BatchRunner> runner_;
  std::unique_ptr<ResponsesApi> api_;
};

TEST_P(ResponsesApiTest, AResponseIsAnsweredAndCanBeGotAgain) {
  const json r = respond({{"input", "hi"}});
  EXPECT_EQ(r["status"], "completed");
  EXPECT_EQ(r["output"][0]["content"][0]["text"], "hey");
  EXPECT_EQ(r["usage"]["input_tokens"], 7) << "u:hi a:";
  EXPECT_EQ(r["store"], true);
  const std::string path = "/v1/responses/" + r["id"].get<std::string>();
  EXPECT_EQ(ask("GET", path), r);
  stop();
  start({});
  EXPECT_EQ(ask("GET", path), r) << "by the next process too";
}

TEST_P(ResponsesApiTest, LowCopiesCannotBeAskedForWhereThereAreNone) {
  const json refused = respond({{"input", "hi"}, {"moestro", {{"mixed", true}}}}, 400);
  EXPECT_THAT(refused["error"]["message"].get<std::string>(), HasSubstr("no worker with --mixed is connected"));
  const json wrong = respond({{"input", "hi"}, {"moestro", {{"mixed_max_share", 2}}}}, 400);
  EXPECT_EQ(wrong["error"]["param"], "mixed_max_share");
  EXPECT_FALSE(respond({{"input", "hi"}, {"moestro", {{"mixed", false}}}})["usage"].contains("moestro"));
}

TEST_P(ResponsesApiTest, AConversationGoesOnWithoutItsInstructions) {
  const std::string first = id_of({{"input", "hi"}, {"instructions", "old"}});
  const json second = respond({{"input", "so"}, {"previous_response_id", first}});
  EXPECT_EQ(second["usage"]["input_tokens"], std::string("u:hi a:hey u:so a:").size());
  EXPECT_EQ(second["previous_response_id"], first);
  const json third =
      respond({{"input", "go"}, {"previous_response_id", second["id"]}, {"instructions", "x"}, {"store", false}});
  EXPECT_EQ(third["usage"]["input_tokens"], std::string("s:x u:hi a:hey u:so a:hey u:go a:").size());
  EXPECT_EQ(third["store"], false);
  ask("GET", "/v1/responses/" + third["id"].get<std::string>(), {}, 404);
  EXPECT_EQ(respond({{"input", "go"}, {"previous_response_id", third["id"]}}, 404)["error"]["param"],
            "previous_response_id");
}

TEST_P(ResponsesApiTest, AStreamIsKeptBeforeItEnds) {
  const auto exchange = exchange_of("POST", "/v1/responses", {{"input", "hi"}, {"stream", true}});
  const auto events = events_in(exchange->body);
  ASSERT_EQ(events.back().name, "response.completed");
  const json response = json::parse(events.back().data["response"].dump());
  EXPECT_EQ(ask("GET", "/v1/responses/" + response["id"].get<std::string>()), response);
}

TEST_P(ResponsesApiTest, InputItems) {
  const std::string first = id_of({{"input", "hi"}});
  const std::string second = id_of({{"input", "so"}, {"previous_response_id", first}});
  const std::string path = "/v1/responses/" + second + "/input_items";
  const json all = ask("GET", path + "?order=asc");
  ASSERT_EQ(all["data"].size(), 3u);
  EXPECT_EQ(all["data"][0]["content"][0]["text"], "hi");
  EXPECT_EQ(all["data"][1]["content"][0]["text"], "hey");
  EXPECT_EQ(all["data"][2]["content"][0]["text"], "so");
  EXPECT_EQ(ask("GET", path)["data"][0], all["data"][2]) << "the newest first";
  const json page = ask("GET", path + "?order=asc&limit=1&after=" + all["first_id"].get<std::string>());
  EXPECT_EQ(page["data"], json::array({all["data"][1]}));
  EXPECT_EQ(page["has_more"], true);
}

TEST_P(ResponsesApiTest, OneThatIsKeptDamagedIsNeitherShownNorContinued) {
  std::string id = id_of({{"input", "hi"}});
  id.back() = id.back() == '0' ? '1' : '0';
  stop();
  ASSERT_TRUE(box_->open().state->put_response({id, project_, now_, R"({"response": {"output": [)"}, {0, 1000}).is_ok());
  start({});
  const std::string path = "/v1/responses/" + id, said = "the response '" + id + "' was kept and is damaged";
  for (const std::string& part : {path, path + "/input_items"})
    EXPECT_THAT(ask("GET", part, {}, 500).dump(), HasSubstr(said)) << part;
  EXPECT_THAT(respond({{"input", "on"}, {"previous_response_id", id}}, 500).dump(), HasSubstr(said));
  EXPECT_EQ(ask("DELETE", path)["deleted"], true);
  EXPECT_EQ(respond({{"input", "hi"}})["status"], "completed");
}

TEST_P(ResponsesApiTest, OneThatWasCutInACallIsContinuedWithoutTheCall) {
  const auto call = [](const std::string& name) {
    return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": {\"a\": 1}}\n</tool_call>";
  };
  const json takes_a = {{"type", "object"}, {"properties", {{"a", {{"type", "integer"}}}}}, {"required", {"a"}}};
  const json tools = {{{"type", "function"}, {"name", "f"}, {"parameters", takes_a}},
                      {{"type", "function"}, {"name", "g"}, {"parameters", takes_a}}};
  says_ = {"so " + call("f") + "\n" + call("g")};
  const size_t cut = says_[0].size() - 15;  // in the arguments of g
  for (const bool stream : {false, true}) {
    const json body{{"input", "hi"}, {"tools", tools}, {"max_output_tokens", cut}, {"stream", stream}};
    const auto exchange = exchange_of("POST", "/v1/responses", body);
    const json first = stream ? json::parse(events_in(exchange->body).back().data["response"].dump())
                              : exchange->json();
    ASSERT_EQ(first["status"], "incomplete") << first;
    ASSERT_EQ(first["output"].size(), 3u) << first;
    EXPECT_EQ(first["output"][1]["status"], "completed");
    EXPECT_EQ(first["output"][2]["status"], "incomplete");
    const auto output = [&](size_t item) {
      return json{
          {"type", "function_call_output"}, {"call_id", first["output"][item]["call_id"]}, {"output", "one"}};
    };
    json next{{"input", {output(1)}}, {"previous_response_id", first["id"]}, {"max_output_tokens", 2}};
    const json second = respond(next);
    EXPECT_EQ(second["usage"]["input_tokens"], std::string("u:hi a:sof(1) t:one a:").size());
    const std::string items = "/v1/responses/" + second["id"].get<std::string>() + "/input_items?order=asc";
    const json given = ask("GET", items)["data"];
    ASSERT_EQ(given.size(), 4u);
    EXPECT_EQ(given[2], first["output"][1]) << "the call that was cut is not among them";

    next["input"].push_back(output(2));
    const json error = respond(next, 400)["error"];
    EXPECT_EQ(error["param"], "previous_response_id");
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(first["output"][2]["call_id"].get<std::string>()));
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("leave its function_call_output out"));
    json said_again = first["output"][2];
    said_again["arguments"] = "{\"a\": 2}";
    next["input"].insert(next["input"].begin(), said_again);
    EXPECT_EQ(respond(next)["usage"]["input_tokens"], std::string("u:hi a:sof(1)g(2) t:one t:one a:").size());
  }
}

TEST_P(ResponsesApiTest, AnOutputNeedsItsCallBeforeIt) {
  const json call{{"type", "function_call"}, {"call_id", "c1"}, {"name", "f"}, {"arguments", "{}"}};
  const json output{{"type", "function_call_output"}, {"call_id", "c1"}, {"output", "one"}};
  const json tools = {{{"type", "function"}, {"name", "f"}, {"parameters", {{"properties", json::object()}}}}};
  for (const json& input : {json{output}, json{output, call}}) {
    const json error = respond({{"input", input}, {"tools", tools}}, 400)["error"];
    EXPECT_EQ(error["param"], "input");
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("'c1', which is no call before it"));
  }
  EXPECT_EQ(respond({{"input", {call, output}}, {"tools", tools}})["status"], "completed");
  const json first = respond({{"input", {call}}, {"tools", tools}});
  EXPECT_EQ(respond({{"input", {output}}, {"previous_response_id", first["id"]}})["status"], "completed")
      << "it is in what the response was given";
}

TEST_P(ResponsesApiTest, TextBehindACallComesBehindItAlsoWhenItIsContinued) {
  const json tools = {{{"type", "function"}, {"name", "f"}, {"parameters", {{"properties", {{"a", json::object()}}}}}}};
  const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";
  says_ = {"so " + call + "then" + call + "end"};
  for (const bool stream : {false, true}) {
    const auto exchange =
        exchange_of("POST", "/v1/responses", {{"input", "hi"}, {"tools", tools}, {"stream", stream}});
    const json first = stream ? json::parse(events_in(exchange->body).back().data["response"].dump())
                              : exchange->json();
    std::vector<std::string> said;
    for (const json& item : first["output"])
      said.push_back(item["type"] == "message" ? item["content"][0]["text"].get<std::string>() : "(call)");
    EXPECT_THAT(said, ::testing::ElementsAre("so", "(call)", "then", "(call)", "end")) << "stream: " << stream;
    const json next{{"input", "on"}, {"previous_response_id", first["id"]}, {"max_output_tokens", 2}};
    EXPECT_EQ(respond(next)["usage"]["input_tokens"], std::string("u:hi a:sof(1) a:thenf(1) a:end u:on a:").size());
  }
}

TEST_P(ResponsesApiTest, DeletedOnesAreGone) {
  const std::string id = id_of({{"input", "hi"}}), path = "/v1/responses/" + id;
  EXPECT_EQ(ask("DELETE", path), (json{{"id", id}, {"object", "response"}, {"deleted", true}}));
  ask("GET", path, {}, 404);
  ask("DELETE", path, {}, 404);
}

TEST_P(ResponsesApiTest, ProjectsDoNotSeeEachOthers) {
  project_ = "ann";
  const std::string id = id_of({{"input", "hi"}}), path = "/v1/responses/" + id;
  project_ = "bob";
  ask("GET", path, {}, 404);
  ask("GET", path + "/input_items", {}, 404);
  ask("DELETE", path, {}, 404);
  respond({{"input", "so"}, {"previous_response_id", id}}, 404);
  project_ = "admin";
  EXPECT_EQ(ask("GET", path)["id"], id);
  project_ = "ann";
  EXPECT_EQ(ask("GET", path)["id"], id);
  EXPECT_EQ(respond({{"input", "so"}, {"previous_response_id", id}})["previous_response_id"], id);
}

TEST_P(ResponsesApiTest, OldOnesAreForgotten) {
  const std::string path = "/v1/responses/" + id_of({{"input", "hi"}});
  now_ += 30 * 86400 - 1;
  ask("GET", path);
  now_ += 1;
  ask("GET", path, {}, 404);
}

TEST_P(ResponsesApiTest, WhatCannotBeKeptIsAnsweredAndSaysSo) {
  stop();
  start({.kept_bytes_max = 100});
  EXPECT_EQ(respond({{"input", "hi"}})["store"], false);
  stop();
  start({.kept_bytes_max = 0});
  EXPECT_EQ(respond({{"input", "hi"}})["store"], false);
}

TEST_P(ResponsesApiTest, AStateOfWhichTooMuchIsAskedKeepsNothing) {
  const std::string id = id_of({{"input", "hi"}});
  stop();
  limits_.questions_max = 0;
  start({});
  EXPECT_EQ(respond({{"input", "hi"}})["store"], false);
  EXPECT_EQ(ask("GET", "/v1/responses/" + id, {}, 429)["error"]["type"], "rate_limit_error");
  EXPECT_EQ(exchange_of("GET", "/v1/responses/" + id)->header("Retry-After"), "1");
}

/// What the runner's thread let go of last would take an exchange with it, and with that a key's count of its requests.
TEST_P(ResponsesApiTest, TheExchangeOfAClientThatLeavesGoesOnTheServersThread) {
  const json body{{"input", "so"}, {"previous_response_id", id_of({{"input", "hi"}})}};
  std::promise<void> held, begin, end;
  runner_->ask([&held, wait = begin.get_future().share()] { held.set_value(), wait.wait(); });
  held.get_future().wait();
  auto exchange = std::make_shared<FakeExchange>();
  const std::weak_ptr<FakeExchange> left = exchange;
  service_->handle({"POST", "/v1/responses", body.dump()}, exchange);
  runner_->ask([wait = end.get_future().share()] { wait.wait(); });  // the same turn of the thread
  begin.set_value();
  std::exchange(exchange, nullptr)->gone();
  while (!run_posted()) std::this_thread::yield();
  EXPECT_TRUE(left.expired());
  end.set_value();
}

TEST_P(ResponsesApiTest, LargeOnesAreReadElsewhere) {
  const auto body = [](const std::string& input) {
    return json{{"input", input}, {"metadata", {{"filler", std::string(100 << 10, 'x')}}}};
  };
  const std::string id = id_of(body("hi"));
  json next = body("so");
  next["previous_response_id"] = id;
  EXPECT_EQ(respond(next)["output"][0]["content"][0]["text"], "hey");
  EXPECT_EQ(ask("GET", "/v1/responses/" + id)["id"], id);
}

TEST_P(ResponsesApiTest, Refusals) {
  EXPECT_EQ(respond({{"input", "hi"}, {"background", true}}, 400)["error"]["param"], "background");
  EXPECT_THAT(respond({{"input", std::string(500, 'x')}}, 400)["error"]["param"], "input");
  EXPECT_EQ(respond({{"input", "a"}, {"previous_response_id", "../x"}}, 404)["error"]["param"], "previous_response_id");
  EXPECT_EQ(exchange_of("GET", "/v1/responses")->header("Allow"), "POST");
  ask("GET", "/v1/responses/resp_1", {}, 404);
  ask("GET", "/v1/responses/resp_" + std::string(24, '0'), {}, 404);
  ask("POST", "/v1/responses/resp_" + std::string(24, '0') + "/cancel", {}, 404);
  ask("GET", "/v1/responses/resp_" + std::string(24, '0') + "?stream=true", {}, 400);
}

class LenientResponsesApiTest : public ResponsesApiTest {
 protected:
  LenientResponsesApiTest() : ResponsesApiTest({.lenient = true}) {}
};

TEST_P(LenientResponsesApiTest, WhatIsIgnoredIsNamed) {
  const auto ignored = [&](json more) {
    json body{{"input", "hi"}};
    body.update(more);
    const auto exchange = exchange_of("POST", "/v1/responses", body);
    EXPECT_TRUE(exchange->streaming || exchange->status == 200) << exchange->body;
    return exchange->header("X-Moestro-Ignored");
  };
  const json schema{{"type", "json_schema"}, {"name", "n"}, {"schema", {{"type", "null"}}}, {"colour", 1}};
  const json tool{{"type", "function"}, {"name", "f"}, {"parameters", {{"type", "object"}}}, {"colour", 1}};
  EXPECT_EQ(ignored({{"colour", 1}}), "colour");
  EXPECT_EQ(ignored({{"colour", 1}, {"stream", true}}), "colour");
  EXPECT_EQ(ignored({{"text", {{"colour", 1}}}}), "text.colour");
  EXPECT_EQ(ignored({{"text", {{"format", schema}}}}), "text.format.colour");
  EXPECT_EQ(ignored({{"text", {{"format", {{"type", "text"}, {"colour", 1}}}}}}), "text.format.colour");
  EXPECT_EQ(ignored({{"reasoning", {{"colour", 1}}}}), "reasoning.colour");
  EXPECT_EQ(ignored({{"moestro", {{"colour", 1}}}}), "moestro.colour");
  EXPECT_EQ(ignored({{"tools", {tool}}, {"tool_choice", "none"}}), "tools.colour");
  json unnamed = schema;
  unnamed.erase("schema");
  const json error = respond({{"input", "hi"}, {"text", {{"format", unnamed}}}}, 400)["error"];
  EXPECT_EQ(error["param"], "text.format") << "what is not known may be the schema";
  EXPECT_EQ(respond({{"input", "hi"}, {"reasoning", {{"effort", "high"}}}}, 400)["error"]["param"], "reasoning.effort");
}

INSTANTIATE_TEST_SUITE_P(States, LenientResponsesApiTest, ::testing::Values(test::Backend::kSqlite));
INSTANTIATE_TEST_SUITE_P(States, ResponsesApiTest, ::testing::Values(test::Backend::kSqlite, test::Backend::kRedis),
                         [](const auto& each) { return test::backend_name(each.param); });

}  // namespace
}  // namespace moestro::orchestrator
