#pragma once
// Host memory made known to a CUDA device, so that its copies reach the store's arena without staging.
//
// In pieces, since a whole arena takes long and some drivers bound one registration. Where the arena is mapped for
// reading alone, as in workers, it is registered read-only; drivers that cannot are asked for more; where they refuse
// that, too, the rest of the memory stays unregistered, and copies from it have to be staged.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "services/worker/device/cuda_slots.h"

namespace moestro::device {

class ArenaRegistration {
 public:
  static constexpr uint64_t kPiece = uint64_t{1} << 30;

  /// Registers `memory`, which outlives it, from its begin on; says in the log how far it is. Nothing here fails: what
  /// is refused is staged.
  ArenaRegistration(const CudaSlots& device, std::span<const std::byte> memory, uint64_t piece_bytes = kPiece);
  ~ArenaRegistration();
  ArenaRegistration(const ArenaRegistration&) = delete;
  ArenaRegistration& operator=(const ArenaRegistration&) = delete;

  /// What one copy may take of [data, data + bytes), from its begin: a copy across two registrations is not one.
  struct Part {
    uint64_t bytes = 0;
    bool registered = false;
  };
  Part part(const std::byte* data, uint64_t bytes) const;

  uint64_t registered_bytes() const { return registered_bytes_; }
  /// For the log: "16.0 GiB of the store's memory registered read-only".
  std::string describe() const;

 private:
  bool add(std::span<const std::byte> piece);
  MoestroCudaResult ask(std::span<const std::byte> piece) const;

  const CudaSlots device_;
  const std::span<const std::byte> memory_;
  const uint64_t piece_bytes_;
  uint64_t registered_bytes_ = 0;  ///< from the begin
  bool read_only_ = true;
  std::string refused_;            ///< why the rest is not
};

}  // namespace moestro::device
