#include "tests/orchestrator/api_fixture.h"

#include "tests/tokenizer/tiny_tokenizers.h"

namespace moestro::orchestrator::testing {

std::vector<nlohmann::json> FakeExchange::events() const {
  std::vector<nlohmann::json> all;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find("\n\n", at);
    EXPECT_NE(end, std::string::npos) << body.substr(at);
    if (end == std::string::npos) break;
    if (body[at] == ':') {  // a comment
      at = end + 2;
      continue;
    }
    EXPECT_EQ(body.compare(at, 6, "data: "), 0) << body.substr(at);
    const std::string data = body.substr(at + 6, end - at - 6);
    all.push_back(data == "[DONE]" ? nlohmann::json(data) : nlohmann::json::parse(data, nullptr, false));
    at = end + 2;
  }
  return all;
}

ServedModel byte_model() {
  auto json = moestro::testing::gpt2_like({});
  json["added_tokens"] = {moestro::testing::added_token(kEnd, "<|end|>")};
  auto tokenizer = Tokenizer::from_json(json.dump());
  MOESTRO_CHECK(tokenizer.is_ok(), tokenizer.status().message());
  auto chat = ChatTemplate::parse(
      "{% for m in messages %}{{ m.role[0] }}:{{ m.content }} {% endfor %}{% if add_generation_prompt %}a:{% endif %}");
  MOESTRO_CHECK(chat.is_ok(), chat.status().message());
  ServedModel m{"m",       std::move(*tokenizer), std::move(*chat), "", "", "<|end|>", {kEnd}, kEnd + 1, kContext,
                1700000000};
  m.hidden = kHidden;
  return m;
}

ApiTest::ApiTest(ServedModel model, size_t queue_max, size_t steps_in_flight, ServiceOptions service)
    : name_(model.name), worker_(endpoint()) {
  ControlOptions options;
  options.endpoint = endpoint();
  options.model = name_;
  options.eos_ids = model.eos_ids;
  options.queue_max = queue_max;
  options.steps_in_flight = steps_in_flight;
  options.clock = std::make_shared<TestClock>();  // stands still: the worker sends no heartbeats
  auto started = ControlPlane::start(options);
  MOESTRO_CHECK(started.is_ok(), started.status().message());
  control_ = std::move(*started);
  const auto post = [this](std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(work));
  };
  service_.emplace(std::move(model), *control_, post, service);
}

ApiTest::~ApiTest() {
  control_.reset();
  // A callback holds its completion, which holds its exchange.
  for (const auto& weak : exchanges_)
    if (const auto exchange = weak.lock()) exchange->gone = nullptr;
}

std::shared_ptr<FakeExchange> ApiTest::send(const std::string& method, const std::string& path,
                                            const std::string& body) {
  auto exchange = std::make_shared<FakeExchange>();
  exchanges_.push_back(exchange);
  service_->handle({method, path, body}, exchange);
  return exchange;
}

int64_t ApiTest::cached_tokens(const std::string& project, const nlohmann::json& body, const std::string& path) {
  const auto exchange = std::make_shared<FakeExchange>();
  HttpRequest request{"POST", path, body.dump()};
  request.project = project;
  service_->handle(std::move(request), exchange);
  finish(*exchange);
  EXPECT_EQ(exchange->status, 200) << exchange->body;
  return exchange->json()["usage"]["prompt_tokens_details"]["cached_tokens"].get<int64_t>();
}

PlanOutcome ApiTest::compute_texts(const Plan& plan) {
  return compute(plan, [this](const PlannedSequence& s, int64_t) {
    const std::string& text = says_.at(s.sampling.choice);
    const size_t at = said_[s.id]++;
    const TokenId wanted = at < text.size() ? static_cast<TokenId>(static_cast<unsigned char>(text[at])) : kEnd;
    const auto allowed = [&](TokenId id) {
      return !s.allowed || (s.allowed->at(static_cast<size_t>(id) / 32) >> (id % 32) & 1) != 0;
    };
    if (allowed(wanted)) return wanted;
    for (TokenId id = 0; id <= kEnd; ++id)
      if (allowed(id)) return id;  // the lowest that is
    ADD_FAILURE() << "a mask that allows nothing";
    return kEnd;
  });
}

bool ApiTest::run_posted() {
  std::vector<std::function<void()>> work;
  {
    const std::lock_guard lock(mutex_);
    work.swap(posted_);
  }
  for (const auto& one : work) one();
  return !work.empty();
}

void ApiTest::run_until(const std::function<bool()>& met) {
  const auto end = std::chrono::steady_clock::now() + kAnswerLimit;
  while (run_posted(), !met()) {
    MOESTRO_CHECK(std::chrono::steady_clock::now() < end, "what is waited for does not come");
    if (const auto plan = worker_.try_plan(std::chrono::milliseconds(2))) worker_.answer(compute_texts(*plan));
  }
}

void ApiTest::finish(FakeExchange& exchange) {
  run_until([&] { return exchange.done; });
}

}  // namespace moestro::orchestrator::testing
