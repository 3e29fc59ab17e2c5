#pragma once
// The source of an engine's weights: the store's client (store/client/store_client.h), or, for tests and `bench
// engine`, a whole pack read into this process (store/resident_source.h). Blobs are named by their index in the pack's
// manifest.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "common/clock.h"
#include "common/expert_copy.h"
#include "common/ids.h"
#include "common/status.h"
#include "store/pack/manifest.h"

namespace moestro::store {

class BlobSource;

/// The right to read one resident blob. Move-only; when it is destroyed, the blob can be evicted again.
class Lease {
 public:
  Lease() = default;
  /// `finds`: BlobSource::finds() of the blob, loaded before the blob was known to be resident.
  Lease(BlobSource* source, uint32_t blob, const std::byte* data, uint64_t length, uint32_t finds = 0)
      : source_(source), blob_(blob), finds_(finds), data_(data), length_(length) {}
  Lease(Lease&& other) noexcept { *this = std::move(other); }
  Lease& operator=(Lease&& other) noexcept {
    if (this != &other) {
      release();
      source_ = std::exchange(other.source_, nullptr);
      blob_ = other.blob_, finds_ = other.finds_, data_ = other.data_, length_ = other.length_;
    }
    return *this;
  }
  ~Lease() { release(); }

  explicit operator bool() const { return source_ != nullptr; }
  uint32_t blob() const { return blob_; }  ///< index in the manifest
  const std::byte* data() const { return data_; }
  uint64_t length() const { return length_; }
  /// Call this when you have finished with the bytes. False: they were found wrong in memory since the lease began, so
  /// results computed with them must not be used. The bytes may be right again by now.
  inline bool is_right() const;
  uint32_t finds() const { return finds_; }
  inline void release();

 private:
  BlobSource* source_ = nullptr;
  uint32_t blob_ = 0, finds_ = 0;
  const std::byte* data_ = nullptr;
  uint64_t length_ = 0;
};

/// How much a use of an expert says about later uses. The store's cache should keep what decoding uses. A prompt's
/// chunk uses nearly every expert, which says nothing about which are hot. So a row counts 1 / (rows of its sequence in
/// this step): a decoded token counts as one, and a whole chunk of a prompt as one token, divided over the experts like
/// its rows.
class UseWeight {
 public:
  static constexpr uint32_t kWhole = 16;
  constexpr UseWeight() = default;
  /// From the sum over rows; at least one sixteenth, at most one.
  static constexpr UseWeight of(float rows) {
    UseWeight weight;
    const float parts = rows * kWhole + 0.5F;
    weight.sixteenths_ = parts >= kWhole ? kWhole : parts < 1 ? 1 : static_cast<uint8_t>(parts);
    return weight;
  }
  constexpr uint8_t sixteenths() const { return sixteenths_; }

 private:
  uint8_t sixteenths_ = kWhole;
};

/// Why a blob is wanted. A worker's fetches are read in the order of their plans, then of their layers.
struct WantedBy {
  PlanId plan;
  MoeLayerId moe_layer;
};

/// An expert that rows of a layer were routed to.
struct Need {
  uint32_t blob = 0;
  float weight = 1;  ///< as UseWeight: the sum of those rows' shares, at most 1
  Want want = Want::kFull;
  bool skipped = false;  ///< no copy serves: nothing is to be brought
};

/// Of an expert that rows of a layer were routed to: the blobs of its copies, what those rows can do with, and the blob
/// that serves; nullopt: none.
struct Serving {
  uint32_t full = 0, low = 0;
  Want want = Want::kFull;
  std::optional<uint32_t> blob = std::nullopt;
};

/// What a step needs of a MoE layer, as its routers say.
struct LayerNeeds {
  MoeLayerId moe_layer;
  std::span<const Need> experts;
  bool complete = true;  ///< all routers of the layer have run: the step needs nothing else of it
};

/// An expert that will probably be used.
struct Foreseen {
  uint32_t blob = 0;
  float probability = 0;  ///< that the next pass of its layer uses it; calibrated
  Nanos due{0};           ///< from now until the router of its layer has probably run
};

/// What a worker's next layers will probably use.
struct Outlook {
  static constexpr size_t kExpertsMax = 1024;  ///< more are left out, from the end
  std::span<const Foreseen> experts{};  ///< the most urgent first, resident ones too
  bool scan = false;   ///< they pass by in this order, and are not used again soon: a prompt's, or a device is filled
  bool leads = false;  ///< forecasts have lately been nearer to the truth than how often each expert is used
};

/// Owned and called by one thread (the worker's engine thread). At most one Lease per blob at a time from one source.
class BlobSource {
 public:
  virtual ~BlobSource() = default;
  virtual const Manifest& manifest() const = 0;
  /// The source of the same blobs in host memory: this one, or, of a device with a memory of its own, the one below it.
  virtual BlobSource& in_host_memory() { return *this; }
  /// The memory that contains all resident blobs, for a device that reads it directly; empty: there is no single range.
  virtual std::span<const std::byte> memory() const { return {}; }
  /// Whether this process may still write memory(), as drivers ask for before they register it.
  virtual bool memory_is_writable() const { return false; }
  /// From now on a write to memory() faults.
  virtual Status forbid_writes() { return Status::ok(); }

  /// The step needs these experts. Each is told once, before try_pin() and fetch(), and is needed until its lease ends,
  /// its fetch fails, or fetches are cancelled. The layer's last call is `complete`, if only with no experts. A source
  /// that fills a memory of its own begins at once.
  virtual void need(const LayerNeeds& /*needs*/) {}

  /// Chooses the copy that serves each of a layer's experts, as they are now.
  virtual void serve(std::span<Serving> experts) {
    for (Serving& e : experts) {
      const std::optional<Copy> copy = serving_copy(e.want, has(e.full), has(e.low));
      e.blob = !copy ? std::nullopt : std::optional(*copy == Copy::kFull ? e.full : e.low);
    }
  }

  /// Pins `blob` if it is resident, without a message or system call. Empty if it is not; a later fetch of it then
  /// counts with the same weight.
  virtual std::optional<Lease> try_pin(uint32_t blob, UseWeight weight = {}) = 0;

  /// How often the bytes of `blob` have been found wrong in memory. A copy that was made at another count must not be
  /// trusted. This load is ordered after earlier reads of the blob.
  virtual uint32_t finds(uint32_t /*blob*/) const { return 0; }
  /// How often that has been found of any blob. It grows after the blob's own count: whoever sees it grown finds that
  /// one grown too.
  virtual uint64_t finds_of_all() const { return 0; }

  /// Requests blobs that try_pin did not give. Each arrives once, pinned, through next_arrival(); requesting it twice
  /// is one request. Never blocks. The caller must compute with arrivals and release them before it waits again, or
  /// other workers could starve.
  virtual Status fetch(std::span<const uint32_t> blobs, WantedBy why) = 0;

  /// The next fetched blob that has arrived. Waits at most `timeout` (then kUnavailable: call it again). An expert that
  /// cannot be read is kCorrupt or kIo with its name; the other fetched blobs still arrive. Calls may be short, even 0
  /// ms: lost requests are repeated, and requests that are never answered fail, after the same time as with long calls.
  virtual Result<Lease> next_arrival(std::chrono::milliseconds timeout) = 0;

  /// The blob of next_arrival's last error; empty if the error concerned the whole source.
  virtual std::optional<uint32_t> failed_blob() const { return std::nullopt; }

  /// Withdraws every fetch that has not arrived yet, and every need (a failed or cancelled step). Leases that still
  /// exist end later.
  virtual void cancel_fetches() = 0;

  /// Dense weights that are not kept in memory for this source: blobs that take turns there, in the order of a step.
  /// They come by the next two functions, or by try_pin(), and never through next_arrival(). cancel_fetches() withdraws
  /// them too.
  virtual std::span<const uint32_t> streamed() const { return {}; }

  /// Asks for a streamed blob that is used soon. It lands pinned. Asking twice is one request. False: leases and
  /// requests fill this worker's share of the places; ask again when one has ended.
  virtual bool ask_streamed(uint32_t /*blob*/, WantedBy /*why*/) { return true; }

  /// Waits for a streamed blob that has been asked for, at most `timeout` (then kUnavailable: call it again). Other
  /// errors name the blob.
  virtual Result<Lease> take_streamed(uint32_t /*blob*/, std::chrono::milliseconds /*timeout*/) {
    return unsupported("dense weights that take turns, from this source");
  }

  /// Replaces what this worker foresaw before. Experts are read ahead and kept by it. Nothing is pinned and nothing
  /// arrives: try_pin finds them later, or a fetch raises the priority of the rest of the read. A source that has
  /// everything does nothing.
  virtual Status foresee(const Outlook& /*outlook*/) { return Status::ok(); }

  struct Counters {
    uint64_t hits = 0, misses = 0, late = 0, fetched_bytes = 0;
    uint64_t streamed_bytes = 0;  ///< dense weights that were not in memory when they were asked for
    uint64_t brought = 0;  ///< of the hits: experts that were read since their last use here, ahead or for another
  };
  virtual Counters counters() const = 0;

 private:
  friend class Lease;
  virtual void unpin(uint32_t blob) = 0;
  /// Whether the blob is resident now.
  virtual bool has(uint32_t /*blob*/) { return true; }
};

inline bool Lease::is_right() const { return source_ != nullptr && source_->finds(blob_) == finds_; }

inline void Lease::release() {
  if (source_ != nullptr) std::exchange(source_, nullptr)->unpin(blob_);
}

}  // namespace moestro::store
