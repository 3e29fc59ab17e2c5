#pragma once
// Registers host memory with a CUDA device, so that copies read the store's arena without staging.
//
// It is registered in pieces, because a whole arena takes long and some drivers limit one registration. If the arena is
// mapped read-only, as in workers, it is registered read-only. If a driver cannot do that, it is registered as
// writable. If that is refused too, the rest of the memory stays unregistered, and copies from it are staged.

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

  /// Registers `memory`, which outlives it, from its beginning, and logs the progress. It never fails: memory that is
  /// refused is staged.
  ArenaRegistration(const CudaSlots& device, std::span<const std::byte> memory, uint64_t piece_bytes = kPiece);
  ~ArenaRegistration();
  ArenaRegistration(const ArenaRegistration&) = delete;
  ArenaRegistration& operator=(const ArenaRegistration&) = delete;

  /// The part of [data, data + bytes) that one copy may take, from its beginning: a copy must not span two
  /// registrations.
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
  uint64_t registered_bytes_ = 0;  ///< from the beginning
  bool read_only_ = true;
  std::string refused_;            ///< why the rest is not
};

}  // namespace moestro::device
