#pragma once
// Files and batches over a real state and a worker that answers with a text.

#include <gmock/gmock.h>

#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <sstream>

#include "orchestrator/batch/batch_api.h"
#include "orchestrator/state/redis_link.h"
#include "orchestrator/state/sqlite_store.h"
#include "tests/orchestrator/api_fixture.h"
#include "tests/state/state_backends.h"

namespace moestro::orchestrator {

using namespace testing;
using nlohmann::json;
using ::testing::HasSubstr;

class BatchApiTest : public ApiTest, public ::testing::WithParamInterface<test::Backend> {
 protected:
  void SetUp() override {
    if (GetParam() == test::Backend::kRedis && !test::RedisServer::is_installed())
      GTEST_SKIP() << "redis-server is not installed";
    says_ = {"hey"};
    limits_.lines_in_flight = [] { return size_t{4}; };
    limits_.retry_first = limits_.stalled = limits_.look = std::chrono::milliseconds(5);
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
    runner_ = std::make_unique<BatchRunner>(
        std::move(opened.state), std::move(opened.files), model_, limits_,
        [this](HttpRequest r, std::shared_ptr<Exchange> e) { service_->handle(std::move(r), std::move(e)); }, post,
        [this] { return now_.load(); }, aliases_, [this] { return *version_.load(); });
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

  BatchLimits limits_;  ///< from the next start() on
  std::string model_ = "m";
  std::vector<std::string> aliases_;
  std::atomic<std::shared_ptr<const std::string>> version_{std::make_shared<const std::string>("1")};
  std::string key_;  ///< whose requests ask() and the others send
  std::atomic<int64_t> now_{1000};
  std::optional<test::StateBox> box_;
  std::unique_ptr<BatchRunner> runner_;
  std::unique_ptr<BatchApi> api_;
};

}  // namespace moestro::orchestrator
