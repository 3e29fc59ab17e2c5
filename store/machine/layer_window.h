#pragma once
// The places of dense weights that take turns (common/tier/dense_window.h). All are equally long and adjacent.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace moestro::store {

/// Of an arena. places 0: it has none, and all dense weights have a place of their own.
struct WindowShape {
  uint32_t places = 0;
  uint64_t place_bytes = 0;
  uint64_t bytes() const { return places * place_bytes; }
  friend bool operator==(const WindowShape&, const WindowShape&) = default;
};

class LayerWindow {
 public:
  LayerWindow() = default;
  LayerWindow(uint64_t base, WindowShape shape) : base_(base), shape_(shape), taken_(shape.places, false) {}

  const WindowShape& shape() const { return shape_; }
  /// The first free place; nullopt: none is free.
  std::optional<uint64_t> take() {
    const auto free = std::ranges::find(taken_, false);
    if (free == taken_.end()) return std::nullopt;
    *free = true;
    return base_ + static_cast<uint64_t>(free - taken_.begin()) * shape_.place_bytes;
  }
  /// Takes exactly this place. False: it is none, or not free.
  bool take_at(uint64_t offset) {
    if (shape_.places == 0 || offset < base_ || (offset - base_) % shape_.place_bytes != 0) return false;
    const uint64_t place = (offset - base_) / shape_.place_bytes;
    if (place >= shape_.places || taken_[place]) return false;
    return taken_[place] = true;
  }
  void give_back(uint64_t offset) { taken_[(offset - base_) / shape_.place_bytes] = false; }

 private:
  uint64_t base_ = 0;
  WindowShape shape_;
  std::vector<bool> taken_;
};

}  // namespace moestro::store
