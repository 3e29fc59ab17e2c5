#pragma once
// A BlobSource that has every expert at hand, and records what it is told of the future. Its counters are the test's.

#include <numeric>
#include <vector>

#include "store/blob_source.h"

namespace moestro::device::testing {

class RecordingSource final : public store::BlobSource {
 public:
  static constexpr uint64_t kExpertBytes = 4096, kDenseBytes = 1000;
  struct Told {
    std::vector<store::Foreseen> experts;
    bool scan = false, leads = false;
  };

  RecordingSource(int32_t layers, int32_t experts) : experts_(experts) {
    manifest_.model_name = "recorded";
    manifest_.expert_precisions = {DType::kF32};
    manifest_.blobs.emplace_back().length = kDenseBytes;
    for (int32_t l = 0; l < layers; ++l)
      for (int32_t e = 0; e < experts; ++e) {
        store::Blob& blob = manifest_.blobs.emplace_back();
        blob.kind = store::BlobKind::kExpert, blob.length = kExpertBytes;
        blob.moe_layer = MoeLayerId(static_cast<uint32_t>(l)), blob.expert = ExpertId(static_cast<uint32_t>(e));
      }
  }
  uint32_t expert(int32_t layer, int32_t number) const { return static_cast<uint32_t>(1 + layer * experts_ + number); }
  /// Bytes of everything.
  uint64_t needed() const {
    return std::accumulate(manifest_.blobs.begin(), manifest_.blobs.end(), uint64_t{0},
                           [](uint64_t sum, const store::Blob& blob) { return sum + blob.length; });
  }

  std::vector<Told> told;        ///< every outlook
  Counters counted;              ///< what counters() says
  std::vector<std::byte> bytes;  ///< what memory() says
  std::vector<uint8_t> sixteenths;  ///< of every pin: its weight

  const store::Manifest& manifest() const override { return manifest_; }
  std::span<const std::byte> memory() const override { return bytes; }
  std::optional<store::Lease> try_pin(uint32_t blob, store::UseWeight weight) override {
    sixteenths.push_back(weight.sixteenths());
    return store::Lease(this, blob, expert_.data(), expert_.size());
  }
  Status fetch(std::span<const uint32_t>, store::WantedBy) override { return Status::ok(); }
  Result<store::Lease> next_arrival(std::chrono::milliseconds) override { return unavailable("nothing was missing"); }
  void cancel_fetches() override {}
  Status foresee(const store::Outlook& outlook) override {
    told.push_back({{outlook.experts.begin(), outlook.experts.end()}, outlook.scan, outlook.leads});
    return Status::ok();
  }
  Counters counters() const override { return counted; }

 private:
  void unpin(uint32_t) override {}

  const int32_t experts_;
  store::Manifest manifest_;
  std::vector<std::byte> expert_{kExpertBytes};
};

}  // namespace moestro::device::testing
