#pragma once
// A BlobSource whose layers' dense weights take turns in a few places. A place that is let go of is filled with NaN,
// and a layer seldom comes back to the same one, so a pointer that was not moved shows.

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "common/check.h"
#include "store/blob_source.h"

namespace moestro::engine::testing {

class StreamingSource final : public store::BlobSource {
 public:
  /// `places`: of this worker, one or more.
  StreamingSource(std::unique_ptr<store::BlobSource> inner, size_t places)
      : inner_(std::move(inner)), streamed_(store::dense_layers(inner_->manifest())), places_(places + 1) {
    size_t longest = 0;
    for (const uint32_t blob : streamed_) longest = std::max<size_t>(longest, manifest().blobs[blob].length);
    for (Place& place : places_) place.bytes.assign(longest, std::byte{0xff});
    share_ = places;
  }

  const store::Manifest& manifest() const override { return inner_->manifest(); }
  std::span<const uint32_t> streamed() const override { return streamed_; }
  bool ask_streamed(uint32_t blob, store::WantedBy) override {
    if (leased_ == blob || asked_.contains(blob)) return true;
    if (asked_.size() + leased_.has_value() >= share_) return false;
    asked_.insert(blob);
    ++asks_;
    counters_.streamed_bytes += manifest().blobs[blob].length;
    return true;
  }
  Result<store::Lease> take_streamed(uint32_t blob, std::chrono::milliseconds) override {
    if (asked_.count(blob) == 0) return exhausted("what was not asked for");
    if (broken_ == blob) {
      asked_.erase(blob);
      return corrupt("blob " + std::to_string(blob) + " does not match its checksum");
    }
    if (++waits_ % 2 == 1) return unavailable("not yet");
    return lease(blob);
  }
  std::optional<store::Lease> try_pin(uint32_t blob, store::UseWeight weight = {}) override {
    if (!std::ranges::binary_search(streamed_, blob)) return inner_->try_pin(blob, weight);
    if (asked_.count(blob) == 0 || broken_ == blob || ++looks_ % 2 == 1) return std::nullopt;
    return lease(blob);
  }
  Status fetch(std::span<const uint32_t> blobs, store::WantedBy why) override { return inner_->fetch(blobs, why); }
  Result<store::Lease> next_arrival(std::chrono::milliseconds timeout) override {
    return inner_->next_arrival(timeout);
  }
  void cancel_fetches() override { asked_.clear(); }
  Counters counters() const override { return counters_; }
  uint32_t finds(uint32_t blob) const override { return blob == wrong_ ? finds_ : 0; }

  void break_blob(std::optional<uint32_t> blob) { broken_ = blob; }
  /// From the next lease of it on, it is found wrong while it is leased; nullopt: never.
  void find_wrong(std::optional<uint32_t> blob) { wrong_ = blob; }
  uint64_t asks() const { return asks_; }
  /// The most that were leased and asked for at once.
  bool idle() const { return !leased_; }

 private:
  struct Place {
    std::vector<std::byte> bytes;
  };
  store::Lease lease(uint32_t blob) {
    MOESTRO_CHECK(!leased_, "one layer at a time");
    asked_.erase(blob);
    leased_ = blob;
    const store::Lease inner = std::move(*inner_->try_pin(blob));
    next_ = (next_ + 1) % places_.size();
    std::memcpy(places_[next_].bytes.data(), inner.data(), inner.length());
    store::Lease made(this, blob, places_[next_].bytes.data(), inner.length(), finds(blob));
    if (wrong_ == blob) ++finds_;
    return made;
  }
  void unpin(uint32_t blob) override {
    MOESTRO_CHECK(leased_ == blob, "what is let go of is what is held");
    leased_.reset();
    std::ranges::fill(places_[next_].bytes, std::byte{0xff});
  }

  std::unique_ptr<store::BlobSource> inner_;
  std::vector<uint32_t> streamed_;
  std::vector<Place> places_;
  size_t share_ = 1, next_ = 0;
  std::set<uint32_t> asked_;
  std::optional<uint32_t> leased_, broken_, wrong_;
  uint32_t finds_ = 0;
  uint64_t asks_ = 0, waits_ = 0, looks_ = 0;
  Counters counters_;
};

}  // namespace moestro::engine::testing
