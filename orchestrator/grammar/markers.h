#pragma once
// Finds the first of some markers in a text that comes byte by byte.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace moestro::grammar {

struct Marker {
  std::string text;       ///< not empty
  bool at_start = false;  ///< it counts only where the text begins
};

/// An automaton of one table; immutable.
class Markers {
 public:
  using State = uint32_t;
  static constexpr State kFound = UINT32_MAX;

  explicit Markers(const std::vector<Marker>& markers);

  static State start() { return 0; }
  /// Inside of a text, with no marker begun.
  State inside() const { return inside_; }
  /// kFound: the byte ends a marker.
  State next(State at, char byte) const { return table_[at][static_cast<unsigned char>(byte)]; }
  size_t states() const { return table_.size(); }
  /// Whether a marker ends in `byte`.
  bool may_end(char byte) const { return ends_[static_cast<unsigned char>(byte)]; }

 private:
  State inside_ = 0;
  std::vector<std::array<State, 256>> table_;
  std::array<bool, 256> ends_{};
};

}  // namespace moestro::grammar
