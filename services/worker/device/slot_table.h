#pragma once
// Where experts lie in device memory, as whoever queues kernels on a device asks for it.

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
  /// The addresses of a layer's experts now, 0 for those that are not there: [experts]. What is there stays until the
  /// layer is routed or its step ends, so kernels that read what the layer will want may be queued before anybody knows
  /// what that is.
  virtual void addresses(MoeLayerId layer, std::span<uint64_t> out) = 0;
  /// Every expert of the model is there, and stays.
  virtual bool holds_all() const = 0;
  /// Kernels that read leased slots have been queued on the compute stream, which captures nothing now: those leases
  /// may go. A slot is not written again before what was queued has ended. kUnavailable: the device fell off.
  virtual Status launched() = 0;

  // What is missing may be computed where it lies instead:

  /// How long the link takes for an expert, by what it has carried so far; 0: nothing yet.
  virtual Nanos copy_time() const = 0;
  /// An expert that the layer wants and no copy of which has begun, in host memory: it is not wanted on the device any
  /// more. None: it is there or on its way, or host memory has it not at hand either, and it goes on being wanted.
  virtual std::optional<store::Lease> lease_host(uint32_t blob) = 0;
};

}  // namespace moestro::device
