// Files and batches from their upload to their results, over a real state and a worker that answers with a text.

#include "orchestrator/batch/batch_api.h"

#include <gmock/gmock.h>

#include <atomic>
#include <fstream>
#include <set>

#include "orchestrator/state/redis_link.h"
#include "orchestrator/state/sqlite_store.h"
#include "tests/orchestrator/api_fixture.h"
#include "tests/state/state_backends.h"

namespace moestro::orchestrator {
namespace {

using namespace testing;
using nlohmann::json;
using ::testing::HasSubstr;

class BatchApiTest : public ApiTest, public ::testing::WithParamInterface<test::Backend> {
 protected:
  void SetUp() override {
    if (GetParam() == test::Backend::kRedis && !test::RedisServer::is_installed())
      GTEST_SKIP() << "redis-server is not installed";
    says_ = {"hey"};
    box_.emplace(GetParam());
    start();
  }
  void TearDown() override {
    if (box_) stop();
  }

  void start() {
    auto opened = box_->open();
    const auto post = [this](std::function<void()> work) {
      const std::lock_guard lock(mutex_);
      posted_.push_back(std::move(work));
    };
    BatchLimits limits;
    limits.lines_in_flight = [] { return size_t{4}; };
    limits.retry_first = limits.stalled = limits.look = std::chrono::milliseconds(5);
    runner_ = std::make_unique<BatchRunner>(
        std::move(opened.state), std::move(opened.files), model_, limits,
        [this](HttpRequest r, std::shared_ptr<Exchange> e) { service_->handle(std::move(r), std::move(e)); }, post,
        [this] { return now_.load(); }, aliases_);
    api_ = std::make_unique<BatchApi>(*runner_, model_, post);
    service_->extend(*api_);
  }
  /// As a process that is killed: what it has posted is lost.
  void stop() {
    service_->forget_extensions();
    api_.reset();
    runner_.reset();
    const std::lock_guard lock(mutex_);
    posted_.clear();
  }
  json ask(const std::string& method, const std::string& path, const json& body = {}, int status = 200) {
    auto exchange = std::make_shared<FakeExchange>();
    service_->handle(as(key_, {method, path, body.is_null() ? "" : body.dump()}), exchange);
    finish(*exchange);
    EXPECT_EQ(exchange->status, status) << exchange->body;
    return exchange->json();
  }
  /// As the front door passes on a request with the key of that project; "admin" sees all.
  static HttpRequest as(const std::string& project, HttpRequest request) {
    request.owner = request.project = project;
    request.sees_all = project == "admin";
    return request;
  }
  std::shared_ptr<FakeExchange> upload_form(const std::string& form) {
    HttpRequest request{"POST", "/v1/files", ""};
    request.sink = api_->sink_for(request, "multipart/form-data; boundary=XX");
    bool taken = false;
    request.sink->take(form, [&](bool) { taken = true; });
    run_until([&] { return taken; });
    auto exchange = std::make_shared<FakeExchange>();
    service_->handle(as(key_, std::move(request)), exchange);
    finish(*exchange);
    return exchange;
  }
  static std::string form_of(const std::string& content, const std::string& purpose = "batch") {
    return "--XX\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\n" + purpose +
           "\r\n--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"../in.jsonl\"\r\n\r\n" + content +
           "\r\n--XX--\r\n";
  }
  std::string upload(const std::string& content) { return upload_form(form_of(content))->json().value("id", ""); }
  std::string create(const std::string& file, const std::string& window = "24h") {
    return ask("POST", "/v1/batches",
               {{"input_file_id", file},
                {"endpoint", "/v1/completions"},
                {"completion_window", window},
                {"metadata", {{"k", "v"}}}})
        .value("id", "");
  }
  json wait_for(const std::string& id, const std::string& status) {
    json batch;
    run_until([&] { return (batch = ask("GET", "/v1/batches/" + id))["status"] == status; });
    return batch;
  }
  std::string content(const json& id) {
    const auto exchange = std::make_shared<FakeExchange>();
    service_->handle(as(key_, {"GET", "/v1/files/" + id.get<std::string>() + "/content", ""}), exchange);
    finish(*exchange);
    std::string all;
    while (exchange->source && all.size() < exchange->source->bytes()) {
      bool ready = false;
      exchange->source->next([&](std::string piece) { all += piece, ready = true; });
      run_until([&] { return ready; });
    }
    return all;
  }
  static std::string line(const std::string& id) {
    return json{{"custom_id", id},
                {"method", "POST"},
                {"url", "/v1/completions"},
                {"body", {{"prompt", "p" + id}, {"max_tokens", 3}}}}
               .dump() +
           "\n";
  }
  static std::string lines(int n) {
    std::string all;
    for (int i = 0; i < n; ++i) all += line("id-" + std::to_string(i));
    return all;
  }
  static std::multiset<std::string> custom_ids(const std::string& text) {
    std::multiset<std::string> ids;
    std::istringstream in(text);
    for (std::string one; std::getline(in, one);) ids.insert(json::parse(one)["custom_id"].dump());
    return ids;
  }
  /// On the runner's thread alone.
  SqliteStore& sqlite() { return dynamic_cast<SqliteStore&>(runner_->state()); }
  /// Files and parts of files that are kept.
  size_t files_kept() {
    if (GetParam() == test::Backend::kSqlite)
      return static_cast<size_t>(
          std::distance(std::filesystem::directory_iterator(box_->database().string() + ".files"),
                        std::filesystem::directory_iterator()));
    RedisLink link(*parse_redis_url(box_->redis().url()), {});
    const auto blobs = link.call({"KEYS", "moestro:blob:*"}), parts = link.call({"KEYS", "moestro:part:*"});
    return blobs.is_ok() && parts.is_ok() ? (*blobs)->size() + (*parts)->size() : SIZE_MAX;
  }

  std::string model_ = "m";
  std::vector<std::string> aliases_;
  std::string key_;  ///< whose requests ask() and the others send
  std::atomic<int64_t> now_{1000};
  std::optional<test::StateBox> box_;
  std::unique_ptr<BatchRunner> runner_;
  std::unique_ptr<BatchApi> api_;
};

class SqliteBatchApiTest : public BatchApiTest {};
class RedisBatchApiTest : public BatchApiTest {};

TEST_P(BatchApiTest, FilesComeAndGo) {
  const auto uploaded = upload_form(form_of("abc"));
  ASSERT_EQ(uploaded->status, 200) << uploaded->body;
  const json file = uploaded->json();
  EXPECT_EQ(file["object"], "file");
  EXPECT_EQ(file["bytes"], 3);
  EXPECT_EQ(file["purpose"], "batch");
  EXPECT_EQ(file["created_at"], 1000);
  const std::string id = file["id"];
  EXPECT_EQ(content(id), "abc");
  EXPECT_EQ(ask("GET", "/v1/files/" + id), file);
  EXPECT_EQ(ask("GET", "/v1/files")["data"], json::array({file}));
  EXPECT_EQ(ask("DELETE", "/v1/files/" + id)["deleted"], true);
  EXPECT_EQ(files_kept(), 0u);
  ask("GET", "/v1/files/" + id, {}, 404);
  ask("GET", "/v1/files/" + id + "/content", {}, 404);
}

TEST_P(BatchApiTest, AKeySeesItsOwnProjectAlone) {
  key_ = "ann";
  const std::string input = upload(lines(2));
  const std::string id = create(input);  // no worker yet: it is under way
  const auto under_way = [&] { return ask("GET", "/v1/moestro/status")["batches"]["under_way"].size(); };
  run_until([&] { return under_way() == 1; });
  const json order{{"input_file_id", input}, {"endpoint", "/v1/completions"}, {"completion_window", "24h"}};
  const auto is_closed = [&](const std::string& file) {
    for (const auto& [method, path] :
         std::vector<std::pair<std::string, std::string>>{{"GET", "/v1/files/" + file},
                                                          {"GET", "/v1/files/" + file + "/content"},
                                                          {"DELETE", "/v1/files/" + file},
                                                          {"GET", "/v1/batches/" + id},
                                                          {"POST", "/v1/batches/" + id + "/cancel"}})
      ask(method, path, {}, 404);
    EXPECT_TRUE(ask("GET", "/v1/files")["data"].empty());
    EXPECT_TRUE(ask("GET", "/v1/batches")["data"].empty());
  };
  key_ = "bob";
  is_closed(input);
  EXPECT_EQ(ask("POST", "/v1/batches", order, 400)["error"]["param"], "input_file_id");
  EXPECT_EQ(under_way(), 0u);
  key_ = "ann";
  join();
  const json batch = wait_for(id, "completed");
  EXPECT_EQ(ask("GET", "/v1/batches")["data"].size(), 1u);
  EXPECT_EQ(ask("GET", "/v1/files")["data"].size(), 2u) << "the output is whose the batch is";
  key_ = "bob";
  is_closed(batch["output_file_id"]);
  key_ = "admin";
  EXPECT_EQ(ask("GET", "/v1/files")["data"].size(), 2u);
  EXPECT_EQ(ask("GET", "/v1/batches/" + id)["id"], id);
  EXPECT_EQ(ask("DELETE", "/v1/files/" + input)["deleted"], true);
}

TEST_P(BatchApiTest, WhatIsNoFileOfOursIsNotLookedFor) {
  test::write_file(dir_ / "secret", "s");
  for (const char* path : {"/v1/files/../state.db", "/v1/files/..%2fsecret/content", "/v1/files//etc/passwd",
                           "/v1/files/file-..%2f", "/v1/batches/../x", "/v1/files/"})
    ask("GET", path, {}, 404);
  ask("PUT", "/v1/files", {}, 405);
  ask("GET", "/v1/files?limit=x", {}, 404);  // the server takes the query off
}

TEST_P(BatchApiTest, AFormThatIsWrongLeavesNothing) {
  EXPECT_EQ(upload_form(form_of("abc", "fine-tune"))->status, 400);
  EXPECT_EQ(upload_form(form_of("abc").substr(0, 150))->status, 400);
  EXPECT_EQ(upload_form("--XX\r\nContent-Disposition: form-data; name=\"color\"\r\n\r\nred\r\n--XX--")->status, 400);
  ask("POST", "/v1/files", {{"file", "x"}}, 400);
  EXPECT_EQ(files_kept(), 0u);
  EXPECT_TRUE(ask("GET", "/v1/files")["data"].empty());
}

TEST_P(BatchApiTest, ABatchRunsItsGoodLinesAndNamesTheBad) {
  join();
  const std::string input =
      upload(lines(10) + "nonsense\n" + line("id-3") + "\n" +
             R"({"custom_id":"u","method":"POST","url":"/v1/embeddings","body":{}})" + "\n" +
             R"({"custom_id":"w","method":"POST","url":"/v1/completions","body":{"max_tokens":-1}})");
  const std::string id = create(input);
  ask("DELETE", "/v1/files/" + input, {}, 409);
  const json batch = wait_for(id, "completed");
  EXPECT_EQ(batch["request_counts"], (json{{"total", 14}, {"completed", 10}, {"failed", 4}}));
  EXPECT_EQ(batch["metadata"], (json{{"k", "v"}}));
  EXPECT_GT(batch["usage"]["output_tokens"], 0);
  const std::string output = content(batch["output_file_id"]), errors = content(batch["error_file_id"]);
  const auto done = custom_ids(output);
  EXPECT_EQ(done.size(), 10u);
  EXPECT_EQ(std::set<std::string>(done.begin(), done.end()).size(), 10u);
  EXPECT_THAT(output, HasSubstr(R"("text":"hey")"));
  EXPECT_EQ(custom_ids(errors), (std::multiset<std::string>{"null", "\"id-3\"", "\"u\"", "\"w\""}));
  EXPECT_THAT(errors, HasSubstr("duplicate_custom_id"));
  run_until([&] {
    return ask("GET", "/v1/moestro/status")["batches"]["by_status"]["completed"] == 1;
  });  // published once a round of the runner
  EXPECT_THAT(send("GET", "/metrics")->body, HasSubstr("moestro_batch_lines_total{model=\"m\",result=\"ok\"} 10"));
  ask("POST", "/v1/batches/" + id + "/cancel", {}, 400);
  EXPECT_EQ(ask("DELETE", "/v1/files/" + input)["deleted"], true);
}

TEST_P(BatchApiTest, ALineWhoseSchemaCannotBeFollowedFailsAndTheBatchEnds) {
  join();
  json bad = json::parse(line("bad"));
  bad["body"]["response_format"] = {
      {"type", "json_schema"},
      {"json_schema", {{"name", "x"}, {"schema", {{"type", "string"}, {"pattern", "^x((a?){70}){70}$"}}}}}};
  const json batch = wait_for(create(upload(bad.dump() + "\n" + lines(3))), "completed");
  EXPECT_EQ(batch["request_counts"], (json{{"total", 4}, {"completed", 3}, {"failed", 1}}));
  EXPECT_EQ(json::parse(content(batch["error_file_id"]))["response"]["status_code"], 400);
}

TEST_P(BatchApiTest, ARestartGoesOnAndStoresNothingTwice) {
  join();
  const std::string id = create(upload(lines(40)));
  run_until([&] { return ask("GET", "/v1/batches/" + id)["request_counts"]["completed"].get<int>() >= 10; });
  stop();
  if (GetParam() == test::Backend::kSqlite)
    test::write_file(box_->database().string() + ".files/" + new_id("file-"), "left by a crash");
  start();
  const json batch = wait_for(id, "completed");
  EXPECT_EQ(batch["request_counts"], (json{{"total", 40}, {"completed", 40}, {"failed", 0}}));
  const auto done = custom_ids(content(batch["output_file_id"]));
  EXPECT_EQ(done.size(), 40u);
  EXPECT_EQ(std::set<std::string>(done.begin(), done.end()).size(), 40u);
  EXPECT_EQ(files_kept(), 2u);
}

TEST_P(BatchApiTest, ACancelledBatchHasWhatWasDoneAndNamesTheRest) {
  const std::string id = create(upload(lines(8)));  // no worker: its lines wait
  run_until([&] { return ask("GET", "/v1/batches/" + id)["status"] == "in_progress"; });
  EXPECT_THAT(ask("POST", "/v1/batches/" + id + "/cancel")["status"].get<std::string>(), HasSubstr("cancel"));
  const json batch = wait_for(id, "cancelled");
  EXPECT_TRUE(batch["output_file_id"].is_null());
  const std::string errors = content(batch["error_file_id"]);
  EXPECT_EQ(custom_ids(errors).size(), 8u);
  EXPECT_THAT(errors, HasSubstr("batch_cancelled"));
}

TEST_P(BatchApiTest, ABatchExpires) {
  const std::string id = create(upload(lines(3)), "60s");
  run_until([&] { return ask("GET", "/v1/batches/" + id)["status"] == "in_progress"; });
  now_ = 1060;
  const json batch = wait_for(id, "expired");
  EXPECT_EQ(batch["expired_at"], 1060);
  EXPECT_THAT(content(batch["error_file_id"]), HasSubstr("batch_expired"));
}

TEST_P(BatchApiTest, WhatWasDoneBeforeABatchExpiredStays) {
  join();
  const std::string id = create(upload(lines(200)), "60s");
  run_until([&] { return ask("GET", "/v1/batches/" + id)["request_counts"]["completed"].get<int>() >= 5; });
  now_ = 1060;
  const json batch = wait_for(id, "expired");
  const auto done = custom_ids(content(batch["output_file_id"])), rest = custom_ids(content(batch["error_file_id"]));
  EXPECT_GE(done.size(), 5u);
  EXPECT_EQ(done.size() + rest.size(), 200u);
  std::set<std::string> all(done.begin(), done.end());
  all.insert(rest.begin(), rest.end());
  EXPECT_EQ(all.size(), 200u) << "a line is in both files";
  EXPECT_EQ(batch["request_counts"]["completed"], done.size());
}

TEST_P(BatchApiTest, ABatchOfAModelThatIsNotServedWaits) {
  stop();
  model_ = "old";
  start();
  const std::string named = R"({"custom_id":"named","url":"/v1/completions","body":{"prompt":"a","model":"old"}})";
  const std::string kept = create(upload(lines(3))), cancelled = create(upload(lines(3) + named)),
                    expired = create(upload(lines(3)), "60s");
  for (const std::string& id : {kept, cancelled, expired})
    run_until([&] { return ask("GET", "/v1/batches/" + id)["status"] == "in_progress"; });
  stop();
  model_ = "m";
  start();
  join();
  wait_for(create(upload(lines(20))), "completed");
  for (const std::string& id : {kept, cancelled, expired})
    EXPECT_EQ(ask("GET", "/v1/batches/" + id)["request_counts"]["completed"], 0);
  const json under_way = ask("GET", "/v1/moestro/status")["batches"]["under_way"];
  EXPECT_EQ(under_way[0]["waits_for_model"], "old") << under_way;

  ask("POST", "/v1/batches/" + cancelled + "/cancel");
  const std::string errors = content(wait_for(cancelled, "cancelled")["error_file_id"]);
  EXPECT_EQ(custom_ids(errors).size(), 4u);
  EXPECT_THAT(errors, Not(HasSubstr("model_not_found"))) << "this server does not know that model's names";
  now_ = 1060;
  EXPECT_THAT(content(wait_for(expired, "expired")["error_file_id"]), HasSubstr("batch_expired"));
  EXPECT_EQ(ask("GET", "/v1/batches/" + kept)["status"], "in_progress");
  stop();
  aliases_ = {"old"};
  start();
  EXPECT_EQ(wait_for(kept, "completed")["request_counts"]["completed"], 3);
}

TEST_P(BatchApiTest, AnEmptyInputFails) {
  const json batch = wait_for(create(upload("\n \n")), "failed");
  EXPECT_EQ(batch["errors"]["data"][0]["code"], "empty_file");
}

TEST_P(BatchApiTest, OrdersThatAreWrong) {
  const std::string file = upload(lines(1));
  const json good{{"input_file_id", file}, {"endpoint", "/v1/completions"}, {"completion_window", "24h"}};
  for (const json& change :
       {json{{"endpoint", "/v1/images"}}, json{{"completion_window", "soon"}}, json{{"input_file_id", "../x"}},
        json{{"metadata", {{"a", 1}}}}, json{{"color", "red"}},
        json{{"output_expires_after", {{"anchor", "created_at"}, {"seconds", 5}}}}, json{{"input_file_id", nullptr}}}) {
    json order = good;
    order.update(change);
    EXPECT_TRUE(ask("POST", "/v1/batches", order, 400).contains("error")) << order;
  }
  EXPECT_TRUE(ask("GET", "/v1/batches")["data"].empty());
}

TEST_P(SqliteBatchApiTest, AFullDiskStopsABatchAndLosesNothing) {
  join();
  const std::string file = upload(lines(20));
  ASSERT_FALSE(file.empty());
  std::atomic<bool> limited{false};
  const std::string id = create(file);
  runner_->ask([&] { limited = sqlite().limit_pages(1).is_ok(); });
  run_until([&] { return limited.load(); });
  json order{{"input_file_id", file},
             {"endpoint", "/v1/completions"},
             {"completion_window", "24h"},
             {"metadata", json::object()}};
  for (int i = 0; i < 16; ++i) order["metadata"][std::to_string(i)] = std::string(512, 'x');  // more than a page
  EXPECT_EQ(ask("POST", "/v1/batches", order, 507)["error"]["type"], "insufficient_storage_error");
  EXPECT_EQ(ask("GET", "/v1/batches")["data"].size(), 1u);
  run_until([&] { return ask("GET", "/v1/moestro/status")["batches"]["stalled"].is_string(); });
  runner_->ask([&] { limited = !sqlite().limit_pages(1'000'000).is_ok(); });
  const json batch = wait_for(id, "completed");
  EXPECT_EQ(batch["request_counts"]["completed"], 20);
  EXPECT_EQ(custom_ids(content(batch["output_file_id"])).size(), 20u);
  EXPECT_TRUE(ask("GET", "/v1/moestro/status")["batches"]["stalled"].is_null());
}

/// A batch under way whose input is harmed while nothing runs, beside one whose input is as it was.
class HarmedInput : public BatchApiTest {
 protected:
  void harm(const std::function<void(const std::filesystem::path&)>& do_it) {
    const std::string file = upload(lines(60));
    harmed_ = create(file), whole_ = create(upload(lines(30)));  // no worker: their lines wait
    for (const std::string& id : {harmed_, whole_})
      run_until([&] { return ask("GET", "/v1/batches/" + id)["status"] == "in_progress"; });
    stop();
    do_it(box_->database().string() + ".files/" + file);
    start();
    join();
  }
  void expect_failed(const std::string& code) {
    const json harmed = wait_for(harmed_, "failed");
    EXPECT_EQ(harmed["errors"]["data"][0]["code"], code) << harmed;
    EXPECT_TRUE(harmed["output_file_id"].is_null());
    const json whole = wait_for(whole_, "completed");
    EXPECT_EQ(whole["request_counts"]["completed"], 30) << "others go on";
    EXPECT_TRUE(ask("GET", "/v1/moestro/status")["batches"]["stalled"].is_null());
  }
  std::string harmed_, whole_;
};

TEST_P(HarmedInput, ThatIsGoneFailsItsBatch) {
  harm([](const auto& file) { std::filesystem::remove(file); });
  expect_failed("input_file_missing");
}

TEST_P(HarmedInput, ThatIsCutShortFailsItsBatch) {
  harm([](const auto& file) { std::filesystem::resize_file(file, std::filesystem::file_size(file) / 3); });
  expect_failed("input_file_damaged");
}

TEST_P(HarmedInput, WithOneOtherByteFailsItsBatch) {
  harm([](const auto& file) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(static_cast<std::streamoff>(std::filesystem::file_size(file) / 2));
    stream << '!';
  });
  expect_failed("input_file_damaged");
}

TEST_P(HarmedInput, WhileItsLinesRunFailsItsBatchAtItsEnd) {
  join();
  const std::string file = upload(lines(3000));
  const std::string id = create(file);
  run_until([&] { return ask("GET", "/v1/batches/" + id)["request_counts"]["completed"].get<int>() >= 5; });
  const std::filesystem::path path = box_->database().string() + ".files/" + file;
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  EXPECT_EQ(wait_for(id, "failed")["errors"]["data"][0]["code"], "input_file_damaged");
}

TEST_P(HarmedInput, AFolderThatIsAwayIsWaitedFor) {
  const std::string folder = box_->database().string() + ".files";
  harm([&](const auto&) { std::filesystem::rename(folder, folder + ".away"); });
  run_until([&] { return ask("GET", "/v1/moestro/status")["batches"]["stalled"].is_string(); });
  std::filesystem::rename(folder + ".away", folder);
  EXPECT_EQ(wait_for(harmed_, "completed")["request_counts"]["completed"], 60);
}

TEST_P(RedisBatchApiTest, AStateThatGoesAwayIsWaitedFor) {
  join();
  const std::string file = upload(lines(60));
  const std::string id = create(file);
  run_until([&] { return ask("GET", "/v1/batches/" + id)["request_counts"]["completed"].get<int>() >= 5; });
  for (int kill = 0; kill < 3; ++kill) {
    box_->redis().kill();
    const auto refused = send("GET", "/v1/batches/" + id);
    finish(*refused);
    EXPECT_EQ(refused->status, 503) << refused->body;
    EXPECT_THAT(refused->json()["error"]["message"].get<std::string>(), HasSubstr("is away"));
    EXPECT_EQ(refused->header("Retry-After"), "1");
    EXPECT_EQ(upload_form(form_of("abc"))->status, 503);
    const auto interactive = send("POST", "/v1/completions", R"({"prompt": "a", "max_tokens": 2})");
    finish(*interactive);
    EXPECT_EQ(interactive->status, 200) << "serving does not need the state";
    run_until([&] { return ask("GET", "/v1/moestro/status")["batches"]["stalled"].is_string(); });
    box_->redis().start();
    run_until([&] { return ask("GET", "/v1/moestro/status")["batches"]["stalled"].is_null(); });
  }
  const json batch = wait_for(id, "completed");
  EXPECT_EQ(batch["request_counts"], (json{{"total", 60}, {"completed", 60}, {"failed", 0}}));
  const auto done = custom_ids(content(batch["output_file_id"]));
  EXPECT_EQ(done.size(), 60u);
  EXPECT_EQ(std::set<std::string>(done.begin(), done.end()).size(), 60u);
}

INSTANTIATE_TEST_SUITE_P(One, SqliteBatchApiTest, ::testing::Values(test::Backend::kSqlite),
                         [](const auto& each) { return test::backend_name(each.param); });
INSTANTIATE_TEST_SUITE_P(One, HarmedInput, ::testing::Values(test::Backend::kSqlite),
                         [](const auto& each) { return test::backend_name(each.param); });
INSTANTIATE_TEST_SUITE_P(One, RedisBatchApiTest, ::testing::Values(test::Backend::kRedis),
                         [](const auto& each) { return test::backend_name(each.param); });
INSTANTIATE_TEST_SUITE_P(Every, BatchApiTest, ::testing::Values(test::Backend::kSqlite, test::Backend::kRedis),
                         [](const auto& each) { return test::backend_name(each.param); });

}  // namespace
}  // namespace moestro::orchestrator
