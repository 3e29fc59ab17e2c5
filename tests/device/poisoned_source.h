#pragma once
// Host memory whose blobs exist only while they are leased: released memory is filled with NaN at once, so that a copy
// that still reads it is visible.

#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "store/blob_source.h"

namespace moestro::device::testing {

/// `layers` of `experts` as f32, each filled with a byte of its own.
inline store::Manifest plain_manifest(uint32_t layers, uint32_t experts, uint64_t bytes) {
  store::Manifest manifest;
  manifest.model_name = "plain";
  manifest.expert_precisions = {DType::kF32};
  for (uint32_t l = 0; l < layers; ++l)
    for (uint32_t e = 0; e < experts; ++e)
      manifest.blobs.push_back({store::BlobKind::kExpert, MoeLayerId(l), ExpertId(e), DType::kF32, bytes, {}});
  return manifest;
}

class PoisonedSource final : public store::BlobSource {
 public:
  /// Of asked blobs, `late` percent have to be fetched.
  PoisonedSource(store::Manifest manifest, uint32_t seed, int late)
      : manifest_(std::move(manifest)), random_(seed), late_(late) {
    bytes_ = manifest_.blobs.size() * length();
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(4096, (bytes_ + 4095) / 4096 * 4096)));
    std::memset(memory_.get(), 0xff, bytes_);
  }

  static std::byte byte_of(uint32_t blob) { return static_cast<std::byte>(1 + blob % 250); }
  const store::Manifest& manifest() const override { return manifest_; }
  std::span<const std::byte> memory() const override { return {memory_.get(), bytes_}; }
  std::optional<store::Lease> try_pin(uint32_t blob, store::UseWeight = {}) override {
    if (static_cast<int>(random_() % 100) < late_) return std::nullopt;
    return lease(blob);
  }
  Status fetch(std::span<const uint32_t> blobs, store::WantedBy) override {
    wanted_.insert(wanted_.end(), blobs.begin(), blobs.end());
    return Status::ok();
  }
  Result<store::Lease> next_arrival(std::chrono::milliseconds) override {
    if (wanted_.empty() || random_() % 2 == 0) return unavailable("not yet");
    const uint32_t blob = wanted_.back();
    wanted_.pop_back();
    return lease(blob);
  }
  void cancel_fetches() override { wanted_.clear(); }
  Counters counters() const override { return {}; }

  int leased() const { return leased_; }
  void set_late(int late) { late_ = late; }
  /// Called before a blob is poisoned.
  std::function<void()> on_release;

 private:
  uint64_t length() const { return manifest_.blobs.front().length; }
  store::Lease lease(uint32_t blob) {
    ++leased_;
    std::byte* at = memory_.get() + blob * length();
    std::memset(at, static_cast<int>(byte_of(blob)), length());
    return {this, blob, at, length()};
  }
  void unpin(uint32_t blob) override {
    if (on_release) on_release();
    --leased_;
    std::memset(memory_.get() + blob * length(), 0xff, length());
  }

  store::Manifest manifest_;
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;  ///< whole pages: it may be registered with a device
  uint64_t bytes_ = 0;
  std::mt19937 random_;
  int late_;
  std::vector<uint32_t> wanted_;
  int leased_ = 0;
};

}  // namespace moestro::device::testing
