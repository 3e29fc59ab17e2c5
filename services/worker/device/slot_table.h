#pragma once
// The addresses of experts in device memory, for the code that queues kernels on the device.

#include <cstdint>
#include <optional>
#include <span>

#include "common/clock.h"
#include "common/ids.h"
#include "common/status.h"
#include "store/blob_source.h"

namespace moestro::device {

class SlotTable {
 public:
  virtual ~SlotTable() = default;
  /// The current addresses of a layer's experts, 0 for those that are absent: [experts]. Present experts stay until the
  /// layer is routed or its step ends, so kernels that read the layer's experts may be queued before its routes are
  /// known.
  virtual void addresses(MoeLayerId layer, std::span<uint64_t> out) = 0;
  /// Whether every expert of the model is present and stays.
  virtual bool holds_all() const = 0;
  /// Kernels that read leased slots have been queued on the compute stream, which is not capturing now; their leases
  /// may be released. A slot is not written again before the queued work has ended. kUnavailable: the device has
  /// failed.
  virtual Status launched() = 0;

  // Dense weights that take turns on the device, leased as BlobSource::streamed(). What is queued after a lease began
  // finds their bytes there:

  /// How many of them can be leased at once, in the order of a step; 0: all dense weights stay.
  virtual uint32_t dense_places() const { return 0; }
  /// All kernels that read the leased blob had been queued by the last launched(). Its place is not written before they
  /// have ended.
  virtual void dense_read(uint32_t /*blob*/) {}

  // Missing experts can be computed in host memory instead:

  struct Missing {
    uint32_t blob = 0;
    Nanos cpu{0};         ///< the CPU's time for it
    bool on_cpu = false;  ///< set by choose_for_cpu(): it is to be leased in host memory
  };
  /// Which missing experts of a layer the CPU computes, while the link brings the others (common/tier/serving_plan.h).
  virtual void choose_for_cpu(std::span<Missing> missing) = 0;
  /// From now on no copy of an expert that a layer needs begins before decided() or a wait for an arrival.
  virtual void lend() = 0;
  /// Leases an expert that the layer needs in host memory; the device then no longer needs it, and what has been copied
  /// of it stays. nullopt: it is present, or host memory does not have it; it is still needed on the device.
  virtual std::optional<store::Lease> lease_host(uint32_t blob) = 0;
  /// What the host computes has been leased; the link brings the other missing experts.
  virtual void decided() = 0;
};

}  // namespace moestro::device
