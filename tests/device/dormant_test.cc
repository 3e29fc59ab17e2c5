// On the CPU with room for every expert: forecasting does nothing while nothing can be missing, and begins again at the
// first expert that was evicted.

#include <gtest/gtest.h>

#include <set>

#include "common/prediction/make_predictor.h"
#include "services/worker/device/foresight.h"
#include "services/worker/device/host_outlook.h"
#include "tests/device/demo_steps.h"
#include "tests/device/forwarding_watch.h"

namespace moestro::device::testing {
namespace {

using engine::testing::Bench;

/// Has everything but what the test evicts, until that is fetched.
class EvictingSource final : public store::BlobSource {
 public:
  explicit EvictingSource(std::unique_ptr<store::BlobSource> inner) : inner_(std::move(inner)) {}
  void evict_experts() {
    for (uint32_t b = 0; b < manifest().blobs.size(); ++b)
      if (manifest().blobs[b].kind == store::BlobKind::kExpert) evicted_.insert(b);
  }
  int outlooks = 0;

  const store::Manifest& manifest() const override { return inner_->manifest(); }
  std::span<const std::byte> memory() const override { return inner_->memory(); }
  std::optional<store::Lease> try_pin(uint32_t blob, store::UseWeight weight) override {
    if (evicted_.contains(blob)) return ++counted_.misses, std::nullopt;
    ++counted_.hits;
    return inner_->try_pin(blob, weight);
  }
  Status fetch(std::span<const uint32_t> blobs, store::WantedBy) override {
    fetched_.insert(blobs.begin(), blobs.end());
    return Status::ok();
  }
  Result<store::Lease> next_arrival(std::chrono::milliseconds) override {
    if (fetched_.empty()) return unavailable("nothing was fetched");
    const uint32_t blob = fetched_.extract(fetched_.begin()).value();
    evicted_.erase(blob);
    return std::move(*inner_->try_pin(blob));
  }
  void cancel_fetches() override { fetched_.clear(); }
  Status foresee(const store::Outlook& outlook) override {
    ++outlooks;
    for (const store::Foreseen& f : outlook.experts) evicted_.erase(f.blob);  // at once
    return Status::ok();
  }
  Counters counters() const override { return counted_; }

 private:
  void unpin(uint32_t) override {}  // leases are the inner source's

  std::unique_ptr<store::BlobSource> inner_;
  std::set<uint32_t> evicted_, fetched_;
  Counters counted_;
};

/// Every call that a predictor gets while a step runs.
class CountedPredictor final : public prediction::Predictor {
 public:
  CountedPredictor(std::unique_ptr<prediction::Predictor> inner, int& calls)
      : inner_(std::move(inner)), calls_(calls) {}
  std::string_view name() const override { return inner_->name(); }
  void begin_iteration(std::span<const prediction::IterationSequence> sequences) override {
    ++calls_;
    inner_->begin_iteration(sequences);
  }
  void routed(int32_t layer, std::span<const prediction::SequenceRoutes> routes) override {
    ++calls_;
    inner_->routed(layer, routes);
  }
  int32_t gate_lookahead() const override { return inner_->gate_lookahead(); }
  void guessed(int32_t layer, std::span<const prediction::GateGuess> guesses) override {
    ++calls_;
    inner_->guessed(layer, guesses);
  }
  void forecast(int32_t layer, prediction::Forecast& out) override {
    ++calls_;
    inner_->forecast(layer, out);
  }
  void end_iteration() override {
    ++calls_;
    inner_->end_iteration();
  }
  void end_sequence(uint64_t sequence) override { inner_->end_sequence(sequence); }

 private:
  std::unique_ptr<prediction::Predictor> inner_;
  int& calls_;
};

class CountingWatch final : public ForwardingWatch {
 public:
  using ForwardingWatch::ForwardingWatch;
  int layers = 0;
  void routed(MoeLayerId layer, std::span<const int32_t> ids, std::span<const lanes::RoutedExpert> experts,
              std::span<const float> uses) override {
    ++layers;
    ForwardingWatch::routed(layer, ids, experts, uses);
  }
};

class Dormant : public ::testing::Test {
 protected:
  Dormant()
      : bench_(demo_model(), demo_engine(Nanos{0}, true), [this](std::unique_ptr<store::BlobSource> inner) {
          auto wrapped = std::make_unique<EvictingSource>(std::move(inner));
          source_ = wrapped.get();
          return wrapped;
        }) {
    auto made = HostOutlook::create(*source_, DType::kBF16, nullptr, clock_);
    MOESTRO_CHECK(made.is_ok(), made.status().message());
    outlook_ = std::move(*made);
    layers_ = outlook_->layers();
    const auto top_k = static_cast<int32_t>(bench_.engine().spec().moe().top_k);
    auto predictor = prediction::make_predictor(
        "auto", {.shape = {.layers = layers_, .experts = outlook_->experts(), .top_k = top_k}});
    MOESTRO_CHECK(predictor.is_ok(), predictor.status().message());
    foresight_ = std::make_unique<Foresight>(
        *outlook_, std::make_unique<CountedPredictor>(std::move(*predictor), predictor_calls_), top_k);
    watch_ = std::make_unique<CountingWatch>(*foresight_);
    bench_.engine().set_expert_watch(watch_.get());
    next_ = demo_prompt(1, 16, bench_.engine().spec().vocab);
  }
  ~Dormant() override { bench_.engine().set_expert_watch(nullptr); }

  void steps(int count) {
    while (count-- > 0) {
      bench_.add(1, next_).sample = true;
      const auto outcome = bench_.run();
      ASSERT_TRUE(outcome.is_ok() && outcome->sequences[0].status.is_ok());
      next_ = {outcome->sequences[0].sampled.at(0).id};
      counted_tokens_ += !outcome->sequences[0].activations.empty();
      misses_ += outcome->expert_misses;
    }
  }

  const SteadyClock clock_;
  EvictingSource* source_ = nullptr;
  Bench bench_;
  std::unique_ptr<HostOutlook> outlook_;
  std::unique_ptr<Foresight> foresight_;
  std::unique_ptr<CountingWatch> watch_;
  int32_t layers_ = 0;
  int predictor_calls_ = 0, counted_tokens_ = 0;
  uint64_t misses_ = 0;
  std::vector<TokenId> next_;
};

TEST_F(Dormant, WhileNothingIsMissingNobodyIsAskedOrTold) {
  steps(8);
  const int calls = predictor_calls_, outlooks = source_->outlooks, layers = watch_->layers;
  EXPECT_GT(calls, 0);
  const int tokens = counted_tokens_;
  steps(50);
  EXPECT_EQ(predictor_calls_, calls);
  EXPECT_EQ(source_->outlooks, outlooks);
  EXPECT_EQ(watch_->layers, layers) << "routes are not even reported";
  EXPECT_EQ(foresight_->gate_lookahead(), 0);
  EXPECT_EQ(counted_tokens_, tokens + 50) << "activation counts go on, the orchestrator's history learns from them";
}

TEST_F(Dormant, WakesWhereSomethingWasEvictedAndSleepsAgain) {
  steps(20);
  const int calls = predictor_calls_, outlooks = source_->outlooks, layers = watch_->layers;
  source_->evict_experts();
  steps(1);
  EXPECT_GT(misses_, 0u);
  const uint64_t misses = misses_;
  steps(1);
  EXPECT_EQ(watch_->layers, layers + layers_);
  EXPECT_GT(source_->outlooks, outlooks);
  EXPECT_GE(predictor_calls_, calls + 2 * layers_);
  steps(30);
  EXPECT_LT(misses_, 2 * misses) << "what was foreseen came before it was used";
  const int again = predictor_calls_;
  steps(20);
  EXPECT_EQ(predictor_calls_, again);
}

}  // namespace
}  // namespace moestro::device::testing
