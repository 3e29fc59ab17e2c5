#include "orchestrator/dialects/translated_exchange.h"

#include <gmock/gmock.h>

#include "tests/orchestrator/api_fixture.h"

namespace moestro::orchestrator {
namespace {

using ::testing::ElementsAre;
using testing::FakeExchange;

/// Says what it was given.
class Echo final : public AnswerTranslator {
 public:
  void read_whole(const RequestJson& answer) override { text_ = "whole " + answer.dump(); }
  std::string whole() override { return text_; }
  std::string chunk(const RequestJson& chunk) override { return "<" + chunk.dump() + ">"; }
  std::string end() override { return "<end>"; }
  std::string failed(const ApiError& error) override { return "<failed " + error.message + ">"; }
  void settle(std::function<void()> then) override {
    if (late)
      later = std::move(then);
    else
      then();
  }
  bool late = false;
  std::function<void()> later;

 private:
  std::string text_;
};

class TranslatedExchangeTest : public ::testing::Test {
 protected:
  TranslatedExchangeTest() { *slot_ = std::make_unique<Echo>(); }
  Echo& echo() { return static_cast<Echo&>(**slot_); }
  std::shared_ptr<TranslatedExchange> make() {
    const auto shape = [](const ApiError& e, const std::string&) { return "error " + e.message; };
    return std::make_shared<TranslatedExchange>(inner_, shape, slot_, pool_, "");
  }
  /// Runs what the pool has posted, until the answer is there.
  void wait_answered() {
    std::unique_lock lock(mutex_);
    while (!inner_->done) {
      posted_.wait(lock, [&] { return !work_.empty(); });
      const auto work = std::exchange(work_, {});
      lock.unlock();
      for (const auto& one : work) one();
      lock.lock();
    }
  }

  const std::shared_ptr<FakeExchange> inner_ = std::make_shared<FakeExchange>();
  const TranslatedExchange::Slot slot_ = std::make_shared<std::unique_ptr<AnswerTranslator>>();
  std::mutex mutex_;
  std::condition_variable posted_;
  std::vector<std::function<void()>> work_;
  ReadingPool pool_{{.threads = 1}, [this](std::function<void()> work) {
                      const std::lock_guard lock(mutex_);
                      work_.push_back(std::move(work));
                      posted_.notify_all();
                    }};
};

constexpr const char* kStream = "data: {\"a\":1}\n\n: prompt 1/2\n\ndata: {\"b\":\"\\n\\n\"}\n\ndata: [DONE]\n\n";

TEST_F(TranslatedExchangeTest, StreamsAreTheSameWhereverTheyAreCut) {
  const std::string stream = kStream;
  for (size_t piece = 1; piece <= stream.size(); ++piece) {
    inner_->body.clear(), inner_->streaming = inner_->done = false;
    const auto exchange = make();
    exchange->begin_stream({{"X", "y"}});
    for (size_t at = 0; at < stream.size(); at += piece) exchange->write(stream.substr(at, piece));
    exchange->end_stream();
    ASSERT_EQ(inner_->body, "<{\"a\":1}>: prompt 1/2\n\n<{\"b\":\"\\n\\n\"}><end>") << piece;
    EXPECT_TRUE(inner_->done);
    EXPECT_EQ(inner_->header("X"), "y");
  }
}

TEST_F(TranslatedExchangeTest, AnErrorIsTheLastOfAStream) {
  const auto exchange = make();
  exchange->begin_stream({});
  exchange->write("data: {\"a\":1}\n\n");
  exchange->write("data: {\"error\":{\"message\":\"full\",\"type\":\"rate_limit_error\"}}\n\n");
  exchange->write("data: [DONE]\n\n");
  exchange->end_stream();
  EXPECT_EQ(inner_->body, "<{\"a\":1}><failed full>");
  EXPECT_TRUE(inner_->done);
}

TEST_F(TranslatedExchangeTest, TheEndWaitsUntilAllIsSettled) {
  echo().late = true;
  const auto exchange = make();
  exchange->begin_stream({});
  exchange->write("data: {}\n\ndata: [DONE]\n\n");
  exchange->end_stream();
  EXPECT_EQ(inner_->body, "<{}>");
  EXPECT_FALSE(inner_->done);
  echo().later();
  EXPECT_EQ(inner_->body, "<{}><end>");
  EXPECT_TRUE(inner_->done);
}

TEST_F(TranslatedExchangeTest, WholeAnswersAndErrors) {
  make()->respond(200, "application/json", "{\"a\":1}", {{"X", "y"}});
  EXPECT_EQ(inner_->body, "whole {\"a\":1}");
  EXPECT_EQ(inner_->header("X"), "y");
  inner_->done = false;
  make()->respond(429, "application/json", "{\"error\":{\"message\":\"full\"}}", {{"Retry-After", "1"}});
  EXPECT_EQ(inner_->body, "error full");
  EXPECT_EQ(inner_->status, 429);
  EXPECT_EQ(inner_->header("Retry-After"), "1");
}

TEST_F(TranslatedExchangeTest, LongAnswersAreTurnedElsewhere) {
  const std::string answer = "{\"a\":\"" + std::string(200 << 10, 'x') + "\"}";
  make()->respond(200, "application/json", answer, {});
  EXPECT_FALSE(inner_->done);
  wait_answered();
  EXPECT_EQ(inner_->body, "whole " + answer);
}

TEST_F(TranslatedExchangeTest, BackpressureAndLeavingPassThrough) {
  const auto exchange = make();
  EXPECT_FALSE(exchange->crowded());
  inner_->is_crowded = true;
  EXPECT_TRUE(exchange->crowded());
  int drained = 0, gone = 0;
  exchange->on_drained([&] { ++drained; });
  exchange->on_gone([&] { ++gone; });
  inner_->drained();
  inner_->gone();
  EXPECT_EQ(drained, 1);
  EXPECT_EQ(gone, 1);
}

}  // namespace
}  // namespace moestro::orchestrator
