// What each model is guaranteed and may have: the arithmetic, then a machine under random histories of three models
// that share some experts. With every read that begins: its models are not above their maxima, and no other was taken
// below its guarantee for it; at the end: every fetch has ended.

#include "store/machine/shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <random>

#include "common/policy/lru_policy.h"
#include "store/machine/store_machine.h"
#include "tests/store/fake_shared_state.h"

namespace moestro::store {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Shares, ABlobOfSeveralModelsCountsAPartToEach) {
  Shares shares;
  shares.add(0b011, 100), shares.add(0b001, 40);
  EXPECT_EQ(shares.used(0), 90u);
  EXPECT_EQ(shares.used(1), 50u);
  shares.remove(0b011, 100);
  EXPECT_EQ(shares.used(0), 40u);
  EXPECT_EQ(shares.used(1), 0u);
}

TEST(Shares, EvictionKeepsGuaranteesAndAModelAtItsMaximumUsesItsOwn) {
  Shares shares;
  shares.set_bounds(0, {.guaranteed = 100, .maximal = 200});
  shares.add(0b01, 110), shares.add(0b10, 50);
  EXPECT_TRUE(shares.may_evict(0b01, 10, {.wanting = 0b10}));
  EXPECT_FALSE(shares.may_evict(0b01, 11, {.wanting = 0b10}));
  EXPECT_TRUE(shares.may_evict(0b01, 50, {.wanting = 0b01})) << "for its own sake";
  EXPECT_EQ(shares.over_maximum(0b01, 90), 0u);
  EXPECT_EQ(shares.over_maximum(0b11, 182), 0b01u) << "half of it";
  EXPECT_FALSE(shares.may_evict(0b10, 10, {.wanting = 0b01, .over = 0b01})) << "does not help";
  EXPECT_FALSE(shares.may_evict(0b11, 30, {.wanting = 0b10})) << "takes model 0 to 95";
  EXPECT_TRUE(shares.may_evict(0b11, 30, {.wanting = 0b10, .shared_too = true})) << "nothing else is left";
}

PinGroup group(uint64_t guaranteed, uint64_t maximal, uint64_t largest, std::vector<uint64_t> reserves) {
  return {guaranteed, maximal, largest, std::move(reserves)};
}

TEST(Shares, PinSharesFitTogetherWithWhatIsGuaranteed) {
  const auto even = pin_shares(100, {group(0, 1000, 0, {10, 10}), group(0, 1000, 0, {20})});
  ASSERT_TRUE(even);
  EXPECT_THAT((*even)[0], ElementsAre(30, 30));
  EXPECT_THAT((*even)[1], ElementsAre(40));
  const auto kept = pin_shares(100, {group(50, 1000, 10, {}), group(0, 1000, 0, {20})});
  ASSERT_TRUE(kept);
  EXPECT_THAT((*kept)[1], ElementsAre(40)) << "what the absent model is guaranteed, and one blob, stay out of reach";
  const auto bounded = pin_shares(100, {group(0, 15, 0, {10}), group(0, 1000, 0, {10})});
  ASSERT_TRUE(bounded);
  EXPECT_THAT((*bounded)[0], ElementsAre(15));
  EXPECT_THAT(pin_shares(100, {group(0, 15, 0, {10, 10})}).status().message(),
              HasSubstr("its maximum in store.shares leaves 15"));
  EXPECT_THAT(pin_shares(100, {group(80, 1000, 10, {}), group(0, 1000, 0, {20})}).status().message(),
              HasSubstr("need 110 bytes"));
}

constexpr uint32_t kShareModels = 3, kModelExperts = 14, kEntries = kShareModels * kModelExperts, kSlots = 4;

class ThreeModels {
 public:
  explicit ThreeModels(uint64_t seed) : random_(seed) {
    shared_.resize(kEntries);
    shared_.on_evicting = [this](uint32_t entry) { note(entry); };
    machine_ = std::move(
        *StoreMachine::create({.arena_bytes = 20 * kPage, .loading_bytes_max = 3 * kPage, .poison_freed = true},
                              std::vector<MachineBlob>(kEntries, MachineBlob{false, kPage, 1}),
                              std::make_unique<policy::LruPolicy>(), shared_));
    for (uint32_t model = 0; model < kShareModels; ++model)
      machine_->set_owners(model * kModelExperts, kModelExperts, ModelMask{1} << model);
    machine_->set_model_share(0, {.guaranteed = 5 * kPage, .maximal = 9 * kPage});
    machine_->set_model_share(1, {.guaranteed = 3 * kPage});
    machine_->set_model_share(2, {.maximal = 6 * kPage});
    for (uint32_t slot = 0; slot < kSlots; ++slot) EXPECT_TRUE(machine_->attach(slot, kPage, "w", model_of(slot)));
  }

  void run() {
    for (int i = 0; i < 1500 && !::testing::Test::HasFatalFailure(); ++i) {
      const auto slot = static_cast<uint32_t>(random_() % kSlots);
      if (random_() % 4 == 0) want(slot);
      if (random_() % 2 == 0) advance(slot);
      if (random_() % 2 == 0) complete_a_read();
      perform(machine_->poll());
    }
    for (int round = 0; round < 3000 && !::testing::Test::HasFatalFailure(); ++round) {
      bool outstanding = !reads_.empty();
      for (uint32_t slot = 0; slot < kSlots; ++slot)
        advance(slot), outstanding |= !workers_[slot].waiting.empty() || !workers_[slot].asked.empty();
      complete_a_read();
      perform(machine_->poll());
      if (!outstanding) return;
    }
    ADD_FAILURE() << "a fetch never ended";
  }

 private:
  struct Worker {
    std::set<uint32_t> waiting, asked, holding;  ///< entries of its model
  };
  static uint32_t model_of(uint32_t slot) { return slot % kShareModels; }
  /// The first 5 experts of models 0 and 1 are the same; those of model 2 are its own.
  static ContentHash content(uint32_t entry) {
    const bool same = entry < 2 * kModelExperts && entry % kModelExperts < 5;
    return {1 + (same ? entry % kModelExperts : 100 + entry), 1};
  }

  void want(uint32_t slot) {
    Worker& worker = workers_[slot];
    for (int i = 0; i < 8; ++i) {
      const auto entry = static_cast<uint32_t>(model_of(slot) * kModelExperts + random_() % kModelExperts);
      if (!worker.asked.contains(entry) && !worker.holding.contains(entry)) worker.waiting.insert(entry);
    }
  }
  /// Computes on what it has and lets go, then asks for as much as its share allows.
  void advance(uint32_t slot) {
    Worker& worker = workers_[slot];
    worker.holding.clear();
    std::vector<uint32_t> ask;
    while (!worker.waiting.empty() && (worker.asked.size() + 1) * kPage <= shared_.shares[slot]) {
      ask.push_back(*worker.waiting.begin());
      worker.asked.insert(ask.back());
      worker.waiting.erase(worker.waiting.begin());
    }
    pin(slot);
    const std::vector<uint32_t> again(worker.asked.begin(),
                                      worker.asked.end());  // idempotent, and finds what became an alias
    perform(machine_->fetch(slot, {1, 0}, again));
  }
  void pin(uint32_t slot) {
    shared_.pins[slot].clear();
    for (const auto* set : {&workers_[slot].asked, &workers_[slot].holding})
      for (const uint32_t entry : *set) shared_.pins[slot].insert(machine_->resolve(entry));
  }

  void complete_a_read() {
    if (reads_.empty()) return;
    const auto at = reads_.begin() + static_cast<long>(random_() % reads_.size());
    const Action read = *at;
    reads_.erase(at);
    perform(machine_->read_done(read.entry, read.load, Status::ok(), content(read.source)));
  }

  void perform(const Actions& actions) {
    for (const Action& action : actions) {
      if (action.kind == Action::Kind::kPoison && hurt_.contains(action.entry)) hurt_models_ |= hurt_[action.entry];
      if (action.kind == Action::Kind::kRead) {
        ASSERT_EQ(hurt_models_ & ~owners(action.entry), 0u) << "for entry " << action.entry;
        for (uint32_t model = 0; model < kShareModels; ++model)
          if ((owners(action.entry) >> model & 1) != 0)
            ASSERT_LE(machine_->model_bytes(model), machine_->model_share(model).maximal) << "model " << model;
        hurt_models_ = 0;
        reads_.push_back(action);
      }
      if (action.kind != Action::Kind::kNotify) continue;
      Worker& worker = workers_[action.slot];
      const std::set<uint32_t> asked = worker.asked;
      for (const uint32_t entry : asked)
        if (machine_->resolve(entry) == action.entry && shared_.state(action.entry) == Residency::kResident)
          worker.asked.erase(entry), worker.holding.insert(entry);
      pin(action.slot);
    }
    hurt_models_ = 0;
  }

  ModelMask owners(uint32_t entry) const {
    ModelMask mask = 0;
    for (uint32_t other = 0; other < kEntries; ++other)
      if (machine_->resolve(other) == machine_->resolve(entry)) mask |= ModelMask{1} << other / kModelExperts;
    return mask;
  }
  /// Before the store gives up `entry`: the model that has it alone and would be below its guarantee after that.
  void note(uint32_t entry) {
    const ModelMask mask = owners(entry);
    const auto model = static_cast<uint32_t>(std::countr_zero(mask));
    const bool hurts =
        std::popcount(mask) == 1 && machine_->model_bytes(model) < machine_->model_share(model).guaranteed + kPage;
    if (hurts && machine_->model_share(model).guaranteed > 0) hurt_[entry] = mask;
    else hurt_.erase(entry);
  }

  std::mt19937_64 random_;
  FakeSharedState shared_;
  std::unique_ptr<StoreMachine> machine_;
  std::array<Worker, kSlots> workers_;
  std::vector<Action> reads_;
  std::map<uint32_t, ModelMask> hurt_;
  ModelMask hurt_models_ = 0;
};

TEST(SharesSimulation, MaximaAndGuaranteesHoldAndEveryFetchEnds) {
  for (uint64_t seed = 1; seed <= 150 && !::testing::Test::HasFatalFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ThreeModels(seed).run();
  }
}

}  // namespace
}  // namespace moestro::store

