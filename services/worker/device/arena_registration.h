#pragma once
// Registers host memory with a CUDA device, so that copies read the store's arena without staging.
//
// It is registered in pieces, because a whole arena takes long and some drivers limit one registration. Drivers have
// been seen to refuse every mapping that cannot be written (docs/decisions/0047-registration.md), so a worker maps the
// arena for writing, registers it, and then protects it from writes. A mapping that cannot be written is registered
// read-only if the driver takes that. What is refused stays unregistered, and copies from it are staged.

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

  /// Registers `memory`, which outlives it, from its beginning, and logs the progress, or warns. It never fails: memory
  /// that is refused is staged. `writable`: how it is mapped.
  ArenaRegistration(const CudaSlots& device, std::span<const std::byte> memory, bool writable,
                    uint64_t piece_bytes = kPiece);
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
  bool is_whole() const { return !memory_.empty() && registered_bytes_ == memory_.size(); }
  /// For the log: "16.0 GiB of the store's memory registered with cuda:0".
  std::string describe() const;

 private:
  bool add(std::span<const std::byte> piece);

  const CudaSlots device_;
  const std::span<const std::byte> memory_;
  const uint64_t piece_bytes_;
  uint64_t registered_bytes_ = 0;  ///< from the beginning
  const bool writable_;
  std::string refused_;            ///< why the rest is not
};

}  // namespace moestro::device
