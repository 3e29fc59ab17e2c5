#pragma once
// The API with its own control plane and a worker that answers with given texts. Everything but the control thread runs
// on the test's thread, as it does on the server's thread.

#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "orchestrator/api/service.h"
#include "tests/cli/temp_dir.h"
#include "tests/orchestrator/fake_worker.h"

namespace moestro::orchestrator::testing {

/// Records the API's answers.
class FakeExchange final : public Exchange {
 public:
  void respond(int status_code, const std::string& type, std::string text, const Headers& more) override {
    EXPECT_FALSE(done || streaming) << "two answers";
    status = status_code, content_type = type, body = std::move(text), headers = more;
    done = true;
    gone = nullptr;
  }
  void respond_from(const std::string& type, std::shared_ptr<BodySource> from, const Headers& more) override {
    respond(200, type, "", more);
    source = std::move(from);
  }
  void begin_stream(const Headers& more) override { streaming = true, headers = more; }
  void write(std::string text) override {
    EXPECT_TRUE(streaming && !done);
    body += text;
  }
  void end_stream() override {
    done = true;
    gone = nullptr;
  }
  void on_gone(std::function<void()> callback) override { gone = std::move(callback); }
  bool crowded() const override { return is_crowded; }
  void on_drained(std::function<void()> callback) override { drained = std::move(callback); }

  nlohmann::json json() const { return nlohmann::json::parse(body, nullptr, false); }
  std::string header(const std::string& name) const {
    for (const auto& [key, value] : headers)
      if (key == name) return value;
    return "";
  }
  /// The objects of a stream; "[DONE]" is the string of it.
  std::vector<nlohmann::json> events() const;

  int status = 0;
  std::string content_type, body;
  Headers headers;
  std::shared_ptr<BodySource> source;
  bool streaming = false, done = false;
  std::function<void()> gone;  ///< call it as the client that leaves
  bool is_crowded = false;
  std::function<void()> drained;
};

/// Tokens are bytes, their ids the bytes' values; kEnd ends a text.
inline constexpr TokenId kEnd = 256;
inline constexpr int64_t kContext = 64;
ServedModel byte_model();

class ApiTest : public ::testing::Test {
 protected:
  /// One step in flight: a test answers plan by plan.
  explicit ApiTest(ServedModel model = byte_model(), size_t queue_max = 64, size_t steps_in_flight = 1,
                   ServiceOptions service = {});
  ~ApiTest() override;

  void join() { worker_.join({.model = name_}); }
  /// Hands a request to the API; the answer may not be complete.
  std::shared_ptr<FakeExchange> send(const std::string& method, const std::string& path, const std::string& body = "");
  std::shared_ptr<FakeExchange> post(const std::string& path, const nlohmann::json& body) {
    return send("POST", path, body.dump());
  }
  /// Computes with says_ until the answer is complete.
  void finish(FakeExchange& exchange);
  std::shared_ptr<FakeExchange> complete(const nlohmann::json& body, const std::string& path = "/v1/completions") {
    auto exchange = post(path, body);
    finish(*exchange);
    return exchange;
  }
  /// How many tokens of a request's prompts its project found in the KV cache.
  int64_t cached_tokens(const std::string& project, const nlohmann::json& body, const std::string& path);
  /// Does what the control thread has posted; false if it has posted nothing.
  bool run_posted();
  /// The same, until `met`.
  void run_until(const std::function<bool()>& met);
  PlanOutcome compute_texts(const Plan& plan);

  std::vector<std::string> says_{""};  ///< by choice: what the worker says, a byte a token, and then kEnd; where that
                                       ///< is not allowed, the lowest that is

  test::TempDir dir_;
  const std::string name_;
  std::mutex mutex_;
  std::vector<std::function<void()>> posted_;
  std::unique_ptr<ControlPlane> control_;
  std::optional<Service> service_;
  FakeWorker worker_;

 private:
  std::string endpoint() const { return "ipc://" + (dir_ / "o.sock").string(); }
  std::map<SequenceId, size_t> said_;
  std::vector<std::weak_ptr<FakeExchange>> exchanges_;
};

}  // namespace moestro::orchestrator::testing
