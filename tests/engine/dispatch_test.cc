// State by layer and micro-batch: random orders of routing, reading and releasing against a plain model of them.

#include "services/worker/engine/expert_dispatch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>

namespace moestro::engine::testing {
namespace {

/// Some experts are there, others arrive late and in any order, some cannot be read. It counts leases.
class CountedSource final : public store::BlobSource {
 public:
  CountedSource(uint32_t layers, uint32_t experts, uint32_t seed)
      : leases_(layers * experts), open_(layers), random_(seed) {
    manifest_.expert_precisions = {DType::kF32};
    for (uint32_t l = 0; l < layers; ++l)
      for (uint32_t e = 0; e < experts; ++e)
        manifest_.blobs.push_back({store::BlobKind::kExpert, MoeLayerId(l), ExpertId(e), DType::kF32, 4, {}});
    broken_ = random_() % 2 == 0 ? random_() % (layers * experts) : UINT32_MAX;
  }
  const store::Manifest& manifest() const override { return manifest_; }
  void need(const store::LayerNeeds& needs) override {
    for (const store::Need& n : needs.experts) {
      EXPECT_EQ(manifest_.blobs[n.blob].moe_layer, needs.moe_layer);
      EXPECT_TRUE(needed_.insert(n.blob).second) << "an expert that is needed is told once";
    }
    EXPECT_TRUE(open_[needs.moe_layer.value]) << "a layer is complete once";
    open_[needs.moe_layer.value] = !needs.complete;
  }
  std::optional<store::Lease> try_pin(uint32_t blob, store::UseWeight) override {
    EXPECT_TRUE(needed_.contains(blob));
    if (blob == broken_ || random_() % 2 == 0) return std::nullopt;
    return lease(blob);
  }
  Status fetch(std::span<const uint32_t> blobs, store::WantedBy why) override {
    for (const uint32_t blob : blobs) EXPECT_EQ(manifest_.blobs[blob].moe_layer, why.moe_layer);
    wanted_.insert(wanted_.end(), blobs.begin(), blobs.end());
    return Status::ok();
  }
  Result<store::Lease> next_arrival(std::chrono::milliseconds) override {
    failed_.reset();
    if (random_() % 4 == 0) return unavailable("not yet");
    std::swap(wanted_[random_() % wanted_.size()], wanted_.back());
    const uint32_t blob = wanted_.back();
    wanted_.pop_back();
    if (blob != broken_) return lease(blob);
    failed_ = blob;
    needed_.erase(blob);
    return corrupt("blob " + std::to_string(blob) + " is broken");
  }
  std::optional<uint32_t> failed_blob() const override { return failed_; }
  void cancel_fetches() override { wanted_.clear(), needed_.clear(); }
  Counters counters() const override { return {}; }

  void begin_step() {
    EXPECT_TRUE(needed_.empty()) << "of the step before";
    open_.assign(open_.size(), true);
  }
  /// Whether a router of the layer has still to run.
  bool is_open(uint32_t layer) const { return open_[layer]; }
  bool is_leased(size_t blob) const { return leases_[blob] > 0; }
  int leased() const { return std::accumulate(leases_.begin(), leases_.end(), 0); }
  size_t outstanding() const { return wanted_.size(); }
  uint32_t broken() const { return broken_; }

 private:
  store::Lease lease(uint32_t blob) {
    EXPECT_EQ(++leases_[blob], 1) << "micro-batches that share an expert share its lease";
    return {this, blob, &byte_, 1};
  }
  void unpin(uint32_t blob) override { --leases_[blob], needed_.erase(blob); }

  store::Manifest manifest_;
  std::vector<int> leases_;
  std::set<uint32_t> needed_;
  std::vector<bool> open_;
  std::mt19937 random_;
  std::byte byte_{};
  uint32_t broken_ = 0;
  std::vector<uint32_t> wanted_;
  std::optional<uint32_t> failed_;
};

class Simulation {
 public:
  explicit Simulation(uint32_t seed)
      : random_(seed),
        experts_(1 + below(9)),
        top_k_(1 + below(std::min<uint32_t>(3, experts_))),
        source_(kLayers, experts_, seed),
        dispatch_(std::move(*ExpertDispatch::create(source_, kLayers, experts_, DType::kF32))) {}

  void run() {
    for (uint64_t step = 1; step <= 6 && !::testing::Test::HasFatalFailure(); ++step) {
      begin_step(PlanId(step));
      const bool fails = below(3) == 0;
      for (uint32_t layer = 0; layer < kLayers; ++layer) {
        // The next layer may begin before the rest of this one has been computed.
        route_some(layer, layer + 1 < kLayers ? layer + 1 : layer);
        if (::testing::Test::HasFatalFailure()) return;
        if (fails && below(3) == 0) {
          dispatch_.abandon();
          EXPECT_EQ(source_.leased(), 0);
          EXPECT_EQ(source_.outstanding(), 0u);
          layers_.clear();
          break;
        }
        finish(layer);
      }
      EXPECT_EQ(source_.leased(), 0) << "a step has ended";
    }
  }

 private:
  static constexpr uint32_t kLayers = 4, kReadsOfALayer = 100;
  struct Routed {
    std::vector<std::vector<int32_t>> ids;               ///< by micro-batch; empty: not routed
    std::map<int32_t, std::set<int32_t>> users;          ///< expert -> micro-batches that have not computed it
    std::set<int32_t> asked, there;                      ///< experts
  };
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }

  void begin_step(PlanId plan) {
    source_.begin_step();
    micro_batches_.clear(), layers_.clear(), share_.clear();
    uint32_t row = 0;
    for (uint32_t count = 1 + below(4); count > 0; --count) {
      const uint32_t rows = 1 + below(6);
      micro_batches_.push_back({{row, rows}, {}});
      row += rows;
    }
    share_.assign(row, 0.25F);
    dispatch_.begin_step(plan, micro_batches_, share_);
  }

  /// A random choice of each router of `first` that has not run, and of some of `next`.
  void route_some(uint32_t first, uint32_t next) {
    std::vector<LayerPart> parts;
    for (const uint32_t layer : std::set<uint32_t>{first, next}) {
      layers_[layer].ids.resize(micro_batches_.size());
      for (size_t b = 0; b < micro_batches_.size(); ++b)
        if (layers_[layer].ids[b].empty() && (layer == first || below(2) == 0))
          parts.push_back({MoeLayerId(layer), static_cast<int32_t>(b)});
    }
    std::ranges::shuffle(parts, random_);
    for (const LayerPart part : parts) {
      route(part);
      if (below(2) == 0) arrive();
      if (below(3) == 0) compute_one(part.layer.value);
    }
  }

  void route(LayerPart part) {
    Routed& layer = layers_[part.layer.value];
    auto& ids = layer.ids[static_cast<size_t>(part.micro_batch)];
    std::vector<int32_t> all(experts_);
    for (uint32_t e = 0; e < experts_; ++e) all[e] = static_cast<int32_t>(e);
    for (uint32_t row = 0; row < micro_batches_[static_cast<size_t>(part.micro_batch)].rows.count; ++row) {
      std::ranges::shuffle(all, random_);
      ids.insert(ids.end(), all.begin(), all.begin() + top_k_);
    }
    const auto routed = dispatch_.route(part, ids, top_k_);
    for (const lanes::RoutedExpert& r : routed) {
      layer.users[r.expert].insert(part.micro_batch);
      // An expert whose lease has ended is read again.
      if (!layer.asked.insert(r.expert).second) continue;
      const auto read = static_cast<lanes::TaskId>(part.layer.value * kReadsOfALayer) + r.expert;
      if (dispatch_.acquire(read, part.layer, r.expert)) layer.there.insert(r.expert);
    }
    expect_rows(part);
    ASSERT_TRUE(dispatch_.request_missing().is_ok());
  }

  /// By token, then by rank, as a plain loop finds them.
  std::vector<std::pair<int32_t, int32_t>> rows_of(const Routed& layer, size_t b, int32_t expert) const {
    std::vector<std::pair<int32_t, int32_t>> rows;
    for (size_t i = 0; i < layer.ids[b].size(); ++i)
      if (layer.ids[b][i] == expert)
        rows.emplace_back(static_cast<int32_t>(micro_batches_[b].rows.first + i / top_k_),
                          static_cast<int32_t>(i % top_k_));
    return rows;
  }
  static std::vector<std::pair<int32_t, int32_t>> plain(std::span<const kernels::RoutedRow> rows) {
    std::vector<std::pair<int32_t, int32_t>> out;
    for (const kernels::RoutedRow& r : rows) out.emplace_back(r.token, r.rank);
    return out;
  }
  void expect_rows(LayerPart part) {
    const Routed& layer = layers_[part.layer.value];
    const bool all = std::ranges::none_of(layer.ids, [](const auto& ids) { return ids.empty(); });
    EXPECT_EQ(dispatch_.is_routed(part.layer), all);
    EXPECT_EQ(source_.is_open(part.layer.value), !all);
    for (int32_t e = 0; e < static_cast<int32_t>(experts_); ++e) {
      const auto b = static_cast<size_t>(part.micro_batch);
      EXPECT_EQ(plain(dispatch_.rows(part, e)), rows_of(layer, b, e));
      if (!all) continue;
      std::vector<std::pair<int32_t, int32_t>> joined;
      for (size_t each = 0; each < layer.ids.size(); ++each)
        for (const auto& row : rows_of(layer, each, e)) joined.push_back(row);
      EXPECT_EQ(plain(dispatch_.rows({part.layer, lanes::kAllMicroBatches}, e)), joined);
      EXPECT_FLOAT_EQ(dispatch_.uses(part.layer)[static_cast<size_t>(e)], 0.25F * static_cast<float>(joined.size()));
    }
  }

  void arrive() {
    if (source_.outstanding() == 0) return;
    const uint32_t before = static_cast<uint32_t>(source_.outstanding());
    const auto read = dispatch_.wait();
    ASSERT_TRUE(read.is_ok()) << read.status().message();
    ASSERT_EQ(source_.outstanding(), before - 1);
    Routed& layer = layers_[static_cast<uint32_t>(*read) / kReadsOfALayer];
    const auto expert = static_cast<int32_t>(static_cast<uint32_t>(*read) % kReadsOfALayer);
    EXPECT_TRUE(layer.asked.contains(expert));
    EXPECT_TRUE(layer.there.insert(expert).second) << "a read ends once";
  }

  /// Some micro-batch's rows of some expert that is there, or those of all.
  bool compute_one(uint32_t number) {
    Routed& layer = layers_[number];
    for (const int32_t expert : layer.there) {
      std::set<int32_t>& users = layer.users[expert];
      if (users.empty()) continue;
      const uint32_t blob = dispatch_.blob(MoeLayerId(number), expert);
      const bool broken = blob == source_.broken();
      EXPECT_EQ(source_.is_leased(blob), !broken);
      EXPECT_EQ(dispatch_.data(MoeLayerId(number), expert) == nullptr, broken);
      if (broken)
        EXPECT_NE(dispatch_.failure(MoeLayerId(number), expert).message().find("is broken"), std::string::npos);
      const bool all = below(4) == 0 && dispatch_.is_routed(MoeLayerId(number));
      const uint32_t any = below(static_cast<uint32_t>(users.size()));
      const int32_t part = all ? lanes::kAllMicroBatches : *std::next(users.begin(), any);
      EXPECT_TRUE(dispatch_.release({MoeLayerId(number), part}, expert).is_ok());
      if (all) users.clear();
      else users.erase(part);
      EXPECT_EQ(source_.is_leased(blob), !broken && !users.empty()) << "until the last row of the last of them";
      if (users.empty()) layer.asked.erase(expert), layer.there.erase(expert);
      return true;
    }
    return false;
  }

  void finish(uint32_t number) {
    for (int turns = 0; std::ranges::any_of(layers_[number].users, [](const auto& u) { return !u.second.empty(); });
         ++turns) {
      ASSERT_LT(turns, 10'000) << "nothing moves";
      if (!compute_one(number)) arrive();
    }
    for (int32_t e = 0; e < static_cast<int32_t>(experts_); ++e)
      EXPECT_FALSE(source_.is_leased(dispatch_.blob(MoeLayerId(number), e))) << "a layer has ended";
  }

  std::mt19937 random_;
  const uint32_t experts_, top_k_;
  CountedSource source_;
  ExpertDispatch dispatch_;
  std::vector<MicroBatch> micro_batches_;
  std::vector<float> share_;
  std::map<uint32_t, Routed> layers_;
};

TEST(ExpertDispatch, AnyOrderOfMicroBatchesAndTwoLayersKeepsOneLeaseOfAnExpertAsLongAsItIsNeeded) {
  for (uint32_t seed = 1; seed <= 1000; ++seed) {
    SCOPED_TRACE(seed);
    Simulation(seed).run();
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace moestro::engine::testing
