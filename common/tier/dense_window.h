#pragma once
// Which dense weights stay in host memory, or in a device's, where not all layers' do. The others take turns in a
// window: a few places, each large enough for any layer. A step passes the layers in a cycle, so a fixed part that
// stays is all that a cache could keep of them. The layers that stay are spread evenly, so that reading the next
// streamed layer overlaps with computing those before it.

#include <cstdint>
#include <vector>

#include "common/status.h"

namespace moestro::tier {

/// The experts that a worker should have room for: those of one token in two layers. One layer's compute while the
/// other's come.
constexpr uint32_t experts_of_two_layers(int64_t top_k) { return static_cast<uint32_t>(2 * top_k); }

struct DenseNeeds {
  std::vector<uint64_t> layers;  ///< bytes of the dense weights of each layer, in the order of a step
  uint64_t fixed_bytes = 0;      ///< dense weights of no layer: embedding, last norm, head
  uint64_t expert_bytes_max = 0; ///< of the largest expert
  uint64_t experts_bytes = 0;    ///< of all of them
  uint32_t workers = 1;          ///< that pass the layers, each at its own time
  uint32_t experts_at_once = 1;  ///< that a worker should have room for, if there is any
  double staying_share = 1;      ///< of the layers' bytes, the most that stays, whatever room there is
  bool on_device = false;        ///< the window is one worker's own, with places for what takes turns now
};

struct DenseWindow {
  uint32_t places = 0;           ///< 0: all layers stay
  uint64_t place_bytes = 0;
  std::vector<bool> streamed;    ///< by layer
  uint64_t streamed_bytes = 0;   ///< that a step reads
  uint32_t streamed_layers = 0;
  bool streams() const { return places > 0; }
};

/// With this much, all layers stay, unless `staying_share` says otherwise.
uint64_t bytes_if_all_stay(const DenseNeeds& needs);

/// With less memory nothing works: the fixed part, a place for each worker and at least two, and an expert for each
/// worker; or all dense weights instead of the places, if that is less.
uint64_t dense_bytes_min(const DenseNeeds& needs);

/// The division of `memory_bytes`. All layers stay where they and an expert for each worker have room. kExhausted, with
/// the numbers, below dense_bytes_min().
Result<DenseWindow> plan_dense_window(const DenseNeeds& needs, uint64_t memory_bytes);

}  // namespace moestro::tier
