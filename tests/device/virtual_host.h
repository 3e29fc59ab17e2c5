#pragma once
// A source of weights whose experts are in the memory of a virtual store (store/replay), on a clock that moves only
// where the engine computes or waits. The bytes are those of a source that has everything.

#include <memory>
#include <utility>
#include <vector>

#include "services/worker/device/expert_blobs.h"
#include "store/replay/virtual_store.h"
#include "tests/device/virtual_time.h"

namespace moestro::device::testing {

class VirtualHostSource final : public store::BlobSource {
 public:
  VirtualHostSource(std::unique_ptr<store::BlobSource> bytes, DType precision, store::VirtualStore& host,
                    VirtualTime& time)
      : bytes_(std::move(bytes)), host_(host), time_(time), blobs_(*ExpertBlobs::of(bytes_->manifest(), precision)) {
    key_of_.assign(bytes_->manifest().blobs.size(), kNone);
    for (tier::Key key = 0; key < blobs_.blob_of.size(); ++key) {
      key_of_[blobs_.blob_of[key]] = key;
      leases_.push_back(*bytes_->try_pin(blobs_.blob_of[key]));
    }
  }

  const store::Manifest& manifest() const override { return bytes_->manifest(); }
  /// So small that not every expert fits; nothing reads it.
  std::span<const std::byte> memory() const override { return {leases_.front().data(), 1}; }

  std::optional<store::Lease> try_pin(uint32_t blob, store::UseWeight weight) override {
    const tier::Key key = key_of_[blob];
    if (key == kNone) return bytes_->try_pin(blob, weight);
    host_.advance(time_.now());
    const float whole = static_cast<float>(weight.sixteenths()) / store::UseWeight::kWhole;
    if (host_.try_pin(key, whole) != tier::Found::kHit) return std::nullopt;
    return lease(key);
  }
  Status fetch(std::span<const uint32_t> blobs, store::WantedBy why) override {
    host_.advance(time_.now());
    std::vector<tier::Key> keys;
    for (const uint32_t blob : blobs) keys.push_back(key_of_[blob]);
    host_.fetch(keys, why.plan.value, static_cast<int32_t>(why.moe_layer.value));
    return Status::ok();
  }
  Result<store::Lease> next_arrival(std::chrono::milliseconds) override {
    host_.advance(time_.now());
    while (true) {
      if (const auto key = host_.take_arrival()) return lease(*key);
      const auto next = host_.next_event();
      if (!next) return internal_error("nothing will ever arrive");
      time_.set(std::max(time_.now(), *next));
      host_.advance(time_.now());
    }
  }
  void cancel_fetches() override {}
  Status foresee(const store::Outlook& outlook) override {
    host_.advance(time_.now());
    std::vector<tier::ForeseenKey> experts;
    for (const store::Foreseen& f : outlook.experts) experts.push_back({key_of_[f.blob], f.probability, f.due});
    host_.foresee(experts, outlook.scan, outlook.leads);
    return Status::ok();
  }
  Counters counters() const override {
    const tier::HostCounters c = host_.counters();
    return {.hits = c.hits, .misses = c.misses, .late = c.late, .fetched_bytes = 0, .brought = c.brought};
  }

 private:
  static constexpr tier::Key kNone = UINT32_MAX;
  store::Lease lease(tier::Key key) {
    const store::Lease& bytes = leases_[key];
    return store::Lease(this, bytes.blob(), bytes.data(), bytes.length());
  }
  void unpin(uint32_t blob) override {
    host_.advance(time_.now());
    host_.unpin(key_of_[blob]);
  }

  std::unique_ptr<store::BlobSource> bytes_;
  store::VirtualStore& host_;
  VirtualTime& time_;
  const ExpertBlobs blobs_;
  std::vector<store::Lease> leases_;  ///< [key]: of `bytes_`
  std::vector<tier::Key> key_of_;     ///< by blob; kNone: dense
};

}  // namespace moestro::device::testing
