#pragma once
// How fast a drive reads, and what it wants to be read with: measured, because a network disk, a SATA drive and an NVMe
// want different things, and a table of them would be wrong on the next machine.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
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
inline constexpr uint64_t kProbeMemory = 64ULL << 20;    ///< what is read into, at best
inline constexpr uint64_t kProbeFilesMin = 512ULL
                                           << 20;  ///< a pack that is smaller is read in no time, whatever the chunk

/// Reads parts of the files into `memory`, some tens of milliseconds for each choice, and takes the smallest depth, and
/// the chunk nearest to 1 MiB, that are not clearly slower than another. Well under a second in all. Reads that fail
/// are left for those who need them: kUnavailable. Where one of `chunk_bytes` and `depth` is not 0 it stays as it is.
Result<ProbeResult> probe_reads(Reader& reader, const std::vector<ProbeFile>& files, std::span<std::byte> memory,
                                uint32_t chunk_bytes, uint32_t depth);

/// Bytes a second that the drive of `directory` reads, by a file that is made there for it and removed.
Result<uint64_t> directory_speed(const std::filesystem::path& directory);

}  // namespace moestro::store
