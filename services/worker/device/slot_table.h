#pragma once
// Where experts lie in device memory, as whoever queues kernels on a device asks for it.

#include <cstdint>
#include <span>

#include "common/ids.h"
#include "common/status.h"

namespace moestro::device {

class SlotTable {
 public:
  virtual ~SlotTable() = default;
  /// The addresses of a layer's experts now, 0 for those that are not there: [experts]. What is there stays until the layer is routed or its
  /// step ends, so kernels that read what the layer will want may be queued before anybody knows what that is.
  virtual void addresses(MoeLayerId layer, std::span<uint64_t> out) = 0;
  /// Every expert of the model is there, and stays.
  virtual bool holds_all() const = 0;
  /// Kernels that read leased slots have been queued on the compute stream, which captures nothing now: those leases may go. A slot is not
  /// written again before what was queued has ended. kUnavailable: the device fell off.
  virtual Status launched() = 0;
};

}  // namespace moestro::device
