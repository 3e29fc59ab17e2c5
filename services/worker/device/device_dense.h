#pragma once
// Dense weights that take turns in a device's memory: a few places, each large enough for any of their layers. Steps
// use the layers in one order, again and again. So a place that is let go of takes the next layer in that order which
// no place has, also that of the next step: each step copies each layer once.
//
// On a CUDA device a layer is leased when its last bytes have been queued: kernels wait for them there. Layers may then
// be leased in their order, several at once. A place that is let go of is written when the kernels have ended that had
// been queued at read().
//
// One thread, the engine's, calls everything here, with the link's lock held.

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "services/worker/device/dense_link.h"
#include "services/worker/device/slot_memory.h"
#include "store/blob_source.h"

namespace moestro::device {

/// Which ones do, and how many places there are for them.
struct DenseTurns {
  std::vector<uint32_t> blobs;  ///< ascending, each of one layer; at least one
  uint32_t places = 2;
};

class DeviceDense {
 public:
  /// kUnsupported: a blob that is not of one layer. kExhausted: there is no memory for the places. `host` has all
  /// blobs; it and the link outlive this. `cuda`: the device; nullopt: an emulated one. `poison`: tests, as
  /// LinkOptions::poison_slots.
  static Result<DeviceDense> create(store::BlobSource& host, const DenseTurns& turns, DenseLink& link,
                                    const std::optional<CudaSlots>& cuda, bool poison);
  DeviceDense(DeviceDense&&) = default;

  std::span<const uint32_t> blobs() const { return blobs_; }
  bool has(uint32_t blob) const;
  /// Whose copies have begun so far.
  uint64_t bytes() const { return bytes_; }
  uint32_t places() const { return static_cast<uint32_t>(places_.size()); }

  /// As BlobSource::ask_streamed().
  bool ask(uint32_t blob, store::WantedBy why);
  /// A lease, of `owner`, if it has arrived, or kernels may follow. nullopt: not yet. Errors say why it cannot be read,
  /// or that it has no place.
  Result<std::optional<store::Lease>> lease(store::BlobSource& owner, uint32_t blob);
  /// All kernels that read the leased blob have been queued, before the last ExpertLink::launched().
  void read(uint32_t blob);
  void release(uint32_t blob);
  /// Goes on with what has arrived since the last call of anything here.
  void take_ended();
  /// Forgets what was asked for: steps begin anew. What is leased ends later, and is not to be computed with.
  void reset(std::unique_lock<std::mutex>& lock);

  // Where host memory does not have one at hand, it is fetched from there:

  bool awaits_host() const { return host_fetches_ > 0; }
  void host_has(store::Lease lease);
  /// False: it is none of these.
  bool host_failed(uint32_t blob, const Status& why);

 private:
  struct Layer {
    uint32_t blob = 0;
    int32_t layer = -1, moe_layer = 0;  ///< as DenseCopy
    uint64_t bytes = 0;
  };
  enum class State : uint8_t { kEmpty, kFetched, kCopied, kWhole, kFailed };
  struct Place {
    State state = State::kEmpty;
    bool leased = false;
    bool done = false;    ///< it has been, and those before it have not
    uint32_t finds = 0;   ///< of the host's bytes, when their copy began
    store::Lease host;    ///< until the copy has ended
    uint64_t after = 0;   ///< DenseLink::launches(): until then kernels read it
    Status failure;
  };
  DeviceDense(store::BlobSource& host, DenseLink& link, SlotMemory memory, bool poison)
      : host_(&host), link_(&link), memory_(std::move(memory)), poison_(poison) {}
  const Layer& layer_of(uint64_t number) const { return order_[number % order_.size()]; }
  Place& place_of(uint64_t number) { return places_[number % places_.size()]; }
  /// The copy of this blob that has a place, or gets one now.
  std::optional<uint64_t> find(uint32_t blob) const;
  /// Of a place whose lease may be given now.
  bool follows_leased(uint64_t number) const;
  void vacate(uint64_t number);
  bool is_leaving(uint32_t blob) const;
  void fill();
  void bring(uint64_t number);
  void copy(uint64_t number, store::Lease lease);

  store::BlobSource* host_;
  DenseLink* link_;
  SlotMemory memory_;
  bool poison_;
  std::vector<uint32_t> blobs_;
  std::vector<Layer> order_;   ///< as a step uses them
  std::vector<Place> places_;  ///< no more than layers, so that a blob has one place at most
  bool begun_ = false;         ///< since reset()
  uint64_t first_ = 0, next_ = 0;  ///< copies from `first_` on have places; `next_` begins next
  uint32_t host_fetches_ = 0;
  store::WantedBy why_;
  uint64_t bytes_ = 0;
  std::vector<std::pair<uint64_t, store::Lease>> leaving_;  ///< copies under way whose places have been let go of
  std::vector<uint64_t> ended_;  ///< scratch
};

}  // namespace moestro::device
