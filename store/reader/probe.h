#pragma once
// Measures how fast a drive reads, and with which chunk size and depth. It is measured because network disks, SATA and
// NVMe drives differ, and a table would be wrong on the next machine.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <utility>
#include <vector>

#include "common/status.h"
#include "store/reader/reader.h"

namespace moestro::store {

/// A file of the reader, and how much of it there is to read.
struct ProbeFile {
  uint32_t file = 0;
  uint64_t bytes = 0;
};

struct ProbeResult {
  uint32_t chunk_bytes = 0, depth = 0;
  uint64_t bytes_per_s = 0;
  std::chrono::milliseconds took{0};
};

inline constexpr uint32_t kProbeDepthMax = 16;           ///< the reader must have at least this depth
inline constexpr uint64_t kProbeMemory = 64ULL << 20;    ///< preferred size of the memory that is read into
inline constexpr uint64_t kProbeFilesMin = 512ULL
                                           << 20;  ///< a smaller pack is read quickly with any chunk

/// Memory in large pages where the machine has them, as an arena's: a drive fills it up to twice as fast.
class ProbeMemory {
 public:
  static Result<ProbeMemory> create(uint64_t bytes);
  ProbeMemory(ProbeMemory&& other) noexcept : mapping_(std::exchange(other.mapping_, {})), bytes_(other.bytes_) {}
  ProbeMemory& operator=(ProbeMemory&&) = delete;
  ~ProbeMemory();
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  ProbeMemory() = default;
  std::span<std::byte> mapping_, bytes_;
};

/// Reads parts of the files into `memory`, some tens of milliseconds for each choice, well under a second in all. Takes
/// the smallest depth, and the chunk size nearest to 1 MiB, that are not clearly slower than the best. kUnavailable if
/// a read fails; the fault is reported when the data is needed. `chunk_bytes` or `depth` is kept if it is not 0.
Result<ProbeResult> probe_reads(Reader& reader, const std::vector<ProbeFile>& files, std::span<std::byte> memory,
                                uint32_t chunk_bytes, uint32_t depth);

/// Bytes per second that the drive of `directory` reads, measured with a temporary file there.
Result<uint64_t> directory_speed(const std::filesystem::path& directory);

}  // namespace moestro::store
