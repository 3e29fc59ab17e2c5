#pragma once
// A BlobSource in which no expert is resident at first: blobs arrive late, in random order, and released memory is
// filled with NaN, so that later reads are visible.

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "common/check.h"
#include "store/blob_source.h"

namespace moestro::engine::testing {

class LateSource final : public store::BlobSource {
 public:
  struct Options {
    uint32_t seed = 1;
    std::optional<uint32_t> broken_blob = std::nullopt;  ///< cannot be read
    bool late_dense = false;  ///< dense weights are not resident either
    std::optional<std::pair<uint32_t, uint32_t>> swapped = std::nullopt;  ///< each delivers the other's bytes
    std::function<void(uint32_t blob, std::vector<std::byte>& bytes)> edit =
        nullptr;  ///< last word on what a lease shows
    std::function<void(LateSource&, uint32_t blob)> on_lease = nullptr;  ///< right after a lease has begun
  };
  LateSource(std::unique_ptr<store::BlobSource> inner, Options options)
      : inner_(std::move(inner)), options_(options), random_(options.seed) {}
  ~LateSource() override { held_.clear(); }

  const store::Manifest& manifest() const override { return inner_->manifest(); }
  std::optional<store::Lease> try_pin(uint32_t blob, store::UseWeight = {}) override {
    if (is_dense(blob) && !options_.late_dense && blob != options_.broken_blob) return hold(blob);
    ++counters_.misses;
    return std::nullopt;
  }
  Status fetch(std::span<const uint32_t> blobs, store::WantedBy) override {
    for (const uint32_t b : blobs) wanted_.push_back(b);
    return Status::ok();
  }
  Result<store::Lease> next_arrival(std::chrono::milliseconds) override {
    failed_.reset();
    if (lost_after_ && (*lost_after_)-- == 0) {
      lost_after_.reset();
      return io_error("the store is gone");
    }
    waited_holding_ = std::max(waited_holding_, experts_held());
    if (wanted_.empty()) return unavailable("nothing was asked for");
    if (++looks_ % 3 == 1) return unavailable("not yet");
    const size_t i = random_() % wanted_.size();
    const uint32_t blob = wanted_[i];
    wanted_.erase(wanted_.begin() + static_cast<std::ptrdiff_t>(i));
    if (blob == options_.broken_blob) {
      failed_ = blob;
      return corrupt("blob " + std::to_string(blob) + " does not match its checksum");
    }
    return hold(blob);
  }
  std::optional<uint32_t> failed_blob() const override { return failed_; }
  void cancel_fetches() override { wanted_.clear(); }
  Counters counters() const override { return counters_; }
  uint32_t finds(uint32_t blob) const override {
    const auto found = finds_.find(blob);
    return found == finds_.end() ? 0 : found->second;
  }

  uint64_t finds_of_all() const override { return all_finds_; }

  /// The store finds its bytes wrong, and has read them again.
  void find_wrong(uint32_t blob) { ++finds_[blob], ++all_finds_; }
  /// It does so while a step is under way, which has looked at finds_of_all() before.
  void find_wrong_late(uint32_t blob) { ++finds_[blob]; }
  /// It cannot be read; none: everything can.
  void break_blob(std::optional<uint32_t> blob) { options_.broken_blob = blob; }
  /// After so many more calls of next_arrival, one finds the store gone.
  void lose_after(int calls) { lost_after_ = calls; }
  bool was_lost() const { return !lost_after_; }
  /// The most expert leases that were held while waiting.
  size_t waited_holding() const { return waited_holding_; }
  size_t experts_held() const {
    size_t n = 0;
    for (const Copy& c : held_) n += !is_dense(c.blob);
    return n;
  }
  /// Fetches that have not arrived.
  size_t outstanding() const { return wanted_.size(); }

 private:
  struct Copy {
    uint32_t blob;
    std::vector<std::byte> bytes;
  };
  bool is_dense(uint32_t blob) const { return manifest().blobs[blob].kind == store::BlobKind::kDense; }
  store::Lease hold(uint32_t blob) {
    uint32_t content = blob;
    if (options_.swapped && blob == options_.swapped->first) content = options_.swapped->second;
    else if (options_.swapped && blob == options_.swapped->second) content = options_.swapped->first;
    const store::Lease inner = std::move(*inner_->try_pin(content));
    if (is_dense(blob) && !options_.edit)  // where they lie, for good
      return store::Lease(this, blob, inner.data(), inner.length(), finds(blob));
    MOESTRO_CHECK(std::ranges::find(held_, blob, &Copy::blob) == held_.end(), "at most one lease per blob");
    Copy& copy = held_.emplace_back(Copy{blob, {inner.data(), inner.data() + inner.length()}});
    if (options_.edit) options_.edit(blob, copy.bytes);
    store::Lease lease(this, blob, copy.bytes.data(), copy.bytes.size(), finds(blob));
    if (options_.on_lease) options_.on_lease(*this, blob);
    return lease;
  }
  bool has(uint32_t blob) override { return is_dense(blob); }
  void unpin(uint32_t blob) override {
    const auto it = std::find_if(held_.begin(), held_.end(), [&](const Copy& c) { return c.blob == blob; });
    if (it == held_.end()) return;
    std::memset(it->bytes.data(), 0xff, it->bytes.size());  // NaN in every format but int8, whose scales are bf16
    graveyard_.push_back(std::move(it->bytes));
    if (graveyard_.size() > 64) graveyard_.pop_front();
    held_.erase(it);
  }

  std::unique_ptr<store::BlobSource> inner_;
  Options options_;
  std::mt19937 random_;
  std::deque<Copy> held_;
  std::deque<std::vector<std::byte>> graveyard_;  ///< released memory stays mapped for a while, poisoned
  std::vector<uint32_t> wanted_;
  std::optional<uint32_t> failed_;
  std::optional<int> lost_after_;
  std::map<uint32_t, uint32_t> finds_;
  uint64_t all_finds_ = 0;
  Counters counters_;
  size_t waited_holding_ = 0;
  int looks_ = 0;
};

}  // namespace moestro::engine::testing
