#include "services/cli/bench/store/cold_reads.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fstream>

#include "common/expert_layout.h"

namespace moestro::cli {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr size_t kPage = 4096;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

uint64_t read_ahead_of(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return 0;
  const std::string device =
      "/sys/dev/block/" + std::to_string(major(info.st_dev)) + ":" + std::to_string(minor(info.st_dev));
  for (const char* queue : {"/queue/read_ahead_kb", "/../queue/read_ahead_kb"}) {  // a partition has its drive's
    uint64_t kib = 0;
    if (std::ifstream in(device + queue); in >> kib) return kib << 10;
  }
  return 0;
}

}  // namespace

Result<std::unique_ptr<ColdReads>> ColdReads::create(const fs::path& pack, const store::Manifest& manifest,
                                                     const fs::path& arena, uint32_t depth) {
  std::unique_ptr<ColdReads> reads(new ColdReads(manifest));
  MOESTRO_ASSIGN_OR_RETURN([[maybe_unused]] const uint32_t first, reads->direct_.add(pack, manifest));
  MOESTRO_ASSIGN_OR_RETURN(reads->arena_, shm::MappedFile::open(arena, shm::MappedFile::Access::kReadWrite, 1));
  MOESTRO_ASSIGN_OR_RETURN(
      reads->ring_, store::RawReads::create(reads->direct_.fds(), {reads->arena_.data(), reads->arena_.size()}, depth));
  MOESTRO_RETURN_IF_ERROR(reads->map_files(pack));
  return reads;
}

ColdReads::~ColdReads() {
  for (Mapping& m : mapped_)
    if (m.data != nullptr) ::munmap(m.data, m.size);
}

Status ColdReads::map_files(const fs::path& pack) {
  for (const std::string& name : manifest_.files) {
    Mapping m;
    m.fd = shm::UniqueFd(::open((pack / name).c_str(), O_RDONLY | O_CLOEXEC));
    struct stat info {};
    if (!m.fd || ::fstat(m.fd.get(), &info) != 0) return io_error("cannot open " + (pack / name).string(), errno);
    m.size = static_cast<uint64_t>(info.st_size);
    void* at = m.size == 0 ? nullptr : ::mmap(nullptr, m.size, PROT_READ, MAP_SHARED, m.fd.get(), 0);
    if (at == MAP_FAILED) return io_error("cannot map " + (pack / name).string(), errno);
    m.data = static_cast<std::byte*>(at);
    read_ahead_bytes_ = read_ahead_of(m.fd.get());
    mapped_.push_back(std::move(m));
  }
  return Status::ok();
}

uint32_t ColdReads::slice_bytes_max() const {
  uint32_t most = 0;
  for (const store::Blob& blob : manifest_.blobs)
    for (const store::Slice& slice : blob.slices) most = std::max(most, slice.length);
  return most;
}

Result<double> ColdReads::by_ring(std::span<const store::Lease> held, std::span<const std::byte> arena) {
  std::vector<store::RawRead> reads;
  for (const store::Lease& lease : held) {
    std::byte* into = arena_.data() + (lease.data() - arena.data());
    for (const store::LoadSlice& slice : store::load_slices(manifest_.blobs[lease.blob()], 0)) {
      reads.push_back({slice.file, slice.offset, into, static_cast<uint32_t>(round_up(slice.length, kDiskAlign))});
      into += slice.length;
    }
  }
  const auto begin = Clock::now();
  MOESTRO_RETURN_IF_ERROR(ring_->run(reads));
  return seconds_since(begin);
}

/// Pages that a process has mapped stay, so the mapping lets go of them first.
void ColdReads::drop_pages(std::span<const uint32_t> blobs) {
  for (const uint32_t blob : blobs)
    for (const store::Slice& slice : manifest_.blobs[blob].slices) {
      const Mapping& m = mapped_[slice.file];
      const uint64_t length = std::min<uint64_t>(m.size - slice.offset, (slice.length + kPage - 1) / kPage * kPage);
      ::madvise(m.data + slice.offset, length, MADV_DONTNEED);
      ::posix_fadvise(m.fd.get(), static_cast<off_t>(slice.offset), static_cast<off_t>(length), POSIX_FADV_DONTNEED);
    }
}

Result<double> ColdReads::by_mapping(std::span<const uint32_t> blobs) {
  drop_pages(blobs);
  const auto begin = Clock::now();
  unsigned sum = 0;
  for (const uint32_t blob : blobs)
    for (const store::Slice& slice : manifest_.blobs[blob].slices)
      for (uint64_t at = 0; at < slice.length; at += kPage)
        sum +=
            static_cast<unsigned>(*const_cast<const volatile std::byte*>(mapped_[slice.file].data + slice.offset + at));
  const double seconds = seconds_since(begin);
  drop_pages(blobs);
  (void)sum;
  return seconds;
}

}  // namespace moestro::cli
