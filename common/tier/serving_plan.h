#pragma once
// How a layer's missing experts are served: by their full copies, which the link brings; by low ones; by the CPU, from
// host memory; or not at all. What a layer's tokens can do with says which ways are allowed (common/expert_copy.h).
// Among these, measured times decide:
//
// 1. Each expert takes the way that copies least, so the layer ends as soon as the link alone can make it.
// 2. Experts move to the CPU while that makes the layer end sooner.
// 3. An expert that would be served by less than its full copy gets the full one, from the link or the CPU, if the
//    layer then ends no later. So quality is given away for time alone.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/clock.h"
#include "common/expert_copy.h"

namespace moestro::tier {

enum class Way : uint8_t {
  kFull,  ///< its full copy, as soon as it is there
  kLow,   ///< its low copy
  kCpu,   ///< its full copy in host memory, by the CPU
  kSkip,
};

/// An expert whose full copy is not on the device.
struct MissingExpert {
  Want want = Want::kFull;
  Nanos full{0};  ///< the link's time for what is missing of the full copy
  std::optional<Nanos> low = std::nullopt;  ///< the same of the low copy, 0: it is there; nullopt: there are none
  std::optional<Nanos> cpu = std::nullopt;  ///< the CPU's time for its rows; nullopt: the CPU cannot compute it
};

/// What else the end of a layer depends on. 0: none, or unknown.
struct LayerLoad {
  Nanos present{0};  ///< that the device computes experts that are there
  Nanos expert{0};   ///< that it computes one that arrives
  Nanos link{0};     ///< until the link can begin with this layer
  Nanos cpu{0};      ///< until the CPU can
};

class ServingPlan {
 public:
  /// A way for each of `missing`, valid until the next call. Of the link and the CPU the link is taken if both will do:
  /// what it brings serves later tokens too.
  std::span<const Way> choose(std::span<const MissingExpert> missing, const LayerLoad& load);
  /// When the layer ends with these ways. An expert that is left out counts as computed at once: leaving it out is
  /// worth what it is waited for, not what it costs to compute.
  Nanos end(std::span<const MissingExpert> missing, const LayerLoad& load, std::span<const Way> ways);

 private:
  void begin_with_least_copying(std::span<const MissingExpert> missing);
  void move_to_cpu(std::span<const MissingExpert> missing, const LayerLoad& load);
  void improve(std::span<const MissingExpert> missing, const LayerLoad& load);
  bool improve_one(std::span<const MissingExpert> missing, const LayerLoad& load, size_t expert, Nanos until);
  bool link_has_time_for(std::span<const MissingExpert> missing, const LayerLoad& load, size_t expert, Nanos until);

  std::vector<Way> ways_, tried_;
  std::vector<size_t> order_;
  std::vector<Nanos> copies_;  ///< scratch of end()
};

}  // namespace moestro::tier
