// How reading is set up: a reader for each drive, and what each drive wants to be read with.

#include <sys/stat.h>

#include <algorithm>

#include "common/log.h"
#include "store/server/store_server.h"

namespace moestro::store {
namespace {

constexpr uint32_t kLoadDepth = 32;  ///< of one expert: 32 MiB of it, in chunks of the usual size
static_assert(kLoadDepth >= kProbeDepthMax);
/// What a thread verifies of memory that a drive has just written; less than it has of memory (`moestro_store_bench
/// checksums`).
constexpr uint64_t kVerifiedBytesPerS = 16'000'000'000;

}  // namespace

Status StoreServer::start_reader(const StoreOptions& options) {
  const PackFiles& files = catalogue_.files();
  for (const std::string& path : files.buffered())
    log::warn("{} does not allow O_DIRECT: it is read through the page cache", path);
  if (options.read_faults) log::warn("reads go wrong on purpose (store.inject_read_faults)");
  std::vector<DriveReader> drives;
  uint32_t read_bytes = 0;
  for (uint32_t drive = 0; drive < std::max<size_t>(files.drive_count(), 1); ++drive) {
    MOESTRO_ASSIGN_OR_RETURN(auto reader, make_reader(options, drive));
    if (const Status registered = reader->registered(); !registered && drive == 0)
      log::warn("{}; reads go on without, which costs some CPU", registered.message());
    const DriveOptions chosen = measure_drive(*reader, drive, options);
    read_bytes = std::max(read_bytes, chosen.chunk_bytes);
    if (options.read_faults)
      reader = std::make_unique<FaultyReader>(std::move(reader), random_faults(*options.read_faults));
    if (options.wrap_reader) reader = options.wrap_reader(std::move(reader));
    drives.emplace_back(std::move(reader), files.names(), chosen);
  }
  machine_->set_read_bytes(read_bytes);
  MOESTRO_ASSIGN_OR_RETURN(loader_, BlobLoader::start(std::move(drives), files.drives()));
  return Status::ok();
}

Result<std::unique_ptr<Reader>> StoreServer::make_reader(const StoreOptions& options, uint32_t drive) const {
  const ReaderFiles files{catalogue_.files().fds(), files_->lock_fd(), {files_->arena(), files_->table().arena_bytes}};
  const uint32_t depth = options.read_depth != 0 ? options.read_depth : kProbeDepthMax;  // of a pool: a thread each
  // Through the page cache a ring reads with threads of the kernel's, which are more and know less of each other than a
  // pool.
  if (options.io == IoKind::kAuto && catalogue_.files().is_buffered(drive)) {
    log::warn("the drive of {} is read with a pool of pread threads", catalogue_.files().drive_path(drive));
    return make_pread_reader(files, depth);
  }
  if (options.io != IoKind::kPread) {
    auto reader = make_uring_reader(files, options.read_depth != 0 ? depth : kLoadDepth);
    if (reader || options.io == IoKind::kUring) return reader;
    if (drive == 0) log::warn("{}; reading with a pool of pread threads instead", reader.status().message());
  }
  return make_pread_reader(files, depth);
}

/// Memory for a measurement: pages of the arena that nothing lies in, so that the answer is about them too. In a new
/// arena nothing lies anywhere yet, not even in the places of dense weights.
std::span<std::byte> StoreServer::probe_memory() const {
  if (const auto free = machine_->free_range(kProbeMemory)) return {files_->arena() + *free, kProbeMemory};
  if (!new_arena_) return {};
  return {files_->arena(), std::min(kProbeMemory, files_->table().arena_bytes)};
}

DriveOptions StoreServer::measure_drive(Reader& reader, uint32_t drive, const StoreOptions& options) {
  DriveOptions chosen;
  if (options.read_chunk != 0) chosen.chunk_bytes = options.read_chunk;
  chosen.load_depth = kLoadDepth;
  if (options.read_depth != 0) chosen.depth = chosen.load_depth = options.read_depth;
  drive_speeds_.resize(std::max<size_t>(drive_speeds_.size(), drive + 1));
  const PackFiles& files = catalogue_.files();
  std::vector<ProbeFile> to_read;
  uint64_t bytes = 0;
  for (uint32_t file = 0; file < files.drives().size(); ++file) {
    struct stat info {};
    if (files.drives()[file] != drive || ::fstat(files.fds()[file], &info) != 0) continue;
    to_read.push_back({file, static_cast<uint64_t>(info.st_size)});
    bytes += static_cast<uint64_t>(info.st_size);
  }
  const bool worth_it = bytes >= options.probe_bytes_min || window_.places > 0;  // whose forecast needs the rate
  const std::span<std::byte> memory = probe_memory();
  if (!worth_it || memory.empty() || (options.read_chunk != 0 && options.read_depth != 0)) return chosen;
  const auto measured = probe_reads(reader, to_read, memory, options.read_chunk, options.read_depth);
  if (!measured) {
    log::warn("the drive of {} was not measured: {}", files.drive_path(drive), measured.status().message());
    return chosen;
  }
  // Measured with nothing else to do. The drive's thread also computes checksums, and others may read from the drive:
  // with fewer under way it runs dry.
  chosen.chunk_bytes = measured->chunk_bytes;
  chosen.depth = options.read_depth != 0 ? options.read_depth : std::max(chosen.depth, measured->depth);
  chosen.verified_per_read =
      static_cast<uint32_t>(std::clamp<uint64_t>(kVerifiedBytesPerS / measured->bytes_per_s, 4, 8));
  drive_speeds_[drive] = measured->bytes_per_s;
  log::info("the drive of {} reads {} MiB/s by {}: chunks of {} KiB, {} at once (measured in {} ms)",
            files.drive_path(drive), measured->bytes_per_s >> 20, reader.name(), chosen.chunk_bytes >> 10, chosen.depth,
            measured->took.count());
  return chosen;
}

}  // namespace moestro::store
