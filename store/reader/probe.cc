#include "store/reader/probe.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "common/expert_layout.h"
#include "common/shm/mapped_file.h"

namespace moestro::store {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kEach{40};
constexpr uint64_t kSpeedFile = 64ULL << 20;
constexpr uint32_t kMiB = 1 << 20;

/// Walks over the files, so that no two measurements read the same place.
class Places {
 public:
  explicit Places(const std::vector<ProbeFile>& files) : files_(files) {}
  ReadOp next(uint32_t length) {
    for (size_t tries = 0; at_ + length > files_[file_].bytes && tries <= files_.size(); ++tries)
      at_ = 0, file_ = (file_ + 1) % files_.size();
    const ReadOp op{files_[file_].file, at_, nullptr, length, 0};
    at_ += length;
    return op;
  }

 private:
  const std::vector<ProbeFile>& files_;
  size_t file_ = 0;
  uint64_t at_ = 0;
};

class Measurement {
 public:
  Measurement(Reader& reader, Places& places, std::span<std::byte> memory)
      : reader_(reader), places_(places), memory_(memory) {}

  /// Bytes a second in reads of `chunk`, `depth` of them under way; 0 if one of them failed.
  uint64_t speed(uint32_t chunk, uint32_t depth, milliseconds budget) {
    failed_ = false, bytes_ = 0;
    const auto begin = Clock::now();
    while (!failed_ && Clock::now() - begin < budget) {
      while (reader_.in_flight() < depth && submit(chunk)) {}
      await();
    }
    while (reader_.in_flight() > 0) await();
    const auto ns = std::chrono::nanoseconds(Clock::now() - begin).count();
    return failed_ ? 0
                   : static_cast<uint64_t>(static_cast<double>(bytes_) * 1e9 /
                                           static_cast<double>(std::max<int64_t>(ns, 1)));
  }

 private:
  bool submit(uint32_t chunk) {
    ReadOp op = places_.next(chunk);
    if (into_ + chunk > memory_.size()) into_ = 0;
    op.into = memory_.data() + into_;
    op.tag = ++tags_;
    into_ += chunk;
    return reader_.submit(op);
  }
  void await() {
    pollfd wait{reader_.event_fd(), POLLIN, 0};
    ::poll(&wait, 1, 10);
    results_.clear();
    reader_.reap(results_);
    for (const ReadResult& result : results_) {
      failed_ |= result.result <= 0 && result.result != -EAGAIN && result.result != -EINTR && result.result != -ENOMEM;
      bytes_ += static_cast<uint64_t>(std::max<int64_t>(result.result, 0));
    }
  }

  Reader& reader_;
  Places& places_;
  std::span<std::byte> memory_;
  uint64_t into_ = 0, bytes_ = 0, tags_ = 0;
  bool failed_ = false;
  std::vector<ReadResult> results_;
};

}  // namespace

Result<ProbeResult> probe_reads(Reader& reader, const std::vector<ProbeFile>& files, std::span<std::byte> memory,
                                uint32_t chunk_bytes, uint32_t depth) {
  const auto begin = Clock::now();
  const uint64_t longest = files.empty() ? 0 : std::ranges::max(files, {}, &ProbeFile::bytes).bytes;
  if (longest < 2 * kMiB || memory.size() < 2 * kMiB) return unavailable("too little to read for a measurement");
  Places places(files);
  Measurement measurement(reader, places, memory);
  (void)measurement.speed(kMiB, 2, kEach / 4);  // the first reads of a drive that has slept
  ProbeResult best{chunk_bytes != 0 ? chunk_bytes : kMiB, depth, 0, {}};
  const auto try_out = [&](uint32_t chunk, uint32_t with_depth) {
    return chunk > memory.size() || chunk > longest ? 0 : measurement.speed(chunk, with_depth, kEach);
  };
  if (depth != 0) best.bytes_per_s = try_out(best.chunk_bytes, depth);
  for (const uint32_t candidate : {1u, 2u, 4u, 8u, kProbeDepthMax}) {
    if (depth != 0) break;
    const uint64_t speed = try_out(best.chunk_bytes, candidate);
    if (speed > best.bytes_per_s * 105 / 100) best.depth = candidate, best.bytes_per_s = speed;
  }
  for (const uint32_t candidate : {kMiB / 2, 2 * kMiB}) {
    if (chunk_bytes != 0) break;
    const uint64_t speed = try_out(candidate, best.depth);
    if (speed > best.bytes_per_s * 110 / 100) best.chunk_bytes = candidate, best.bytes_per_s = speed;
  }
  if (best.bytes_per_s == 0) return unavailable("reads failed while the drive was measured");
  best.took = std::chrono::duration_cast<milliseconds>(Clock::now() - begin);
  return best;
}

Result<ProbeMemory> ProbeMemory::create(uint64_t bytes) {
  constexpr uint64_t kHugePage = uint64_t{2} << 20;
  const uint64_t all = bytes + kHugePage;
  void* const mapping = ::mmap(nullptr, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return exhausted("no memory to measure a drive with");
  ProbeMemory memory;
  memory.mapping_ = {static_cast<std::byte*>(mapping), all};
  const uint64_t ahead = (kHugePage - reinterpret_cast<uintptr_t>(mapping) % kHugePage) % kHugePage;
  memory.bytes_ = memory.mapping_.subspan(ahead, bytes);
  ::madvise(memory.bytes_.data(), bytes, MADV_HUGEPAGE);
  std::ranges::fill(memory.bytes_, std::byte{1});  // backed before it is timed
  return memory;
}

ProbeMemory::~ProbeMemory() {
  if (!mapping_.empty()) ::munmap(mapping_.data(), mapping_.size());
}

Result<uint64_t> directory_speed(const std::filesystem::path& directory) {
  std::string name = (directory / ".moestro-speed-XXXXXX").string();
  shm::UniqueFd file(::mkstemp(name.data()));
  if (!file) return io_error(directory.string() + ": no file can be made there to measure the drive", errno);
  struct Remove {
    const std::string& name;
    ~Remove() { ::unlink(name.c_str()); }
  } const remove{name};
  MOESTRO_ASSIGN_OR_RETURN(const ProbeMemory memory, ProbeMemory::create(kSpeedFile));
  auto* const words = reinterpret_cast<uint64_t*>(memory.bytes().data());
  for (uint64_t i = 0, x = 88172645463325252ULL; i < kSpeedFile / 8; ++i)
    words[i] = x ^= x << 13, x ^= x >> 7, x ^= x << 17;  // no zeros, nothing that packs
  for (uint64_t at = 0; at < kSpeedFile; at += 8 * kMiB)
    if (::pwrite(file.get(), memory.bytes().data() + at, 8 * kMiB, static_cast<off_t>(at)) != 8 * kMiB)
      return io_error(directory.string() + ": cannot write a file to measure the drive", errno);
  if (::fdatasync(file.get()) != 0)
    return io_error(directory.string() + ": cannot write a file to measure the drive", errno);
  ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
  shm::UniqueFd direct(::open(name.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
  ReaderFiles files;
  files.fds = {direct ? direct.get() : file.get()};
  auto reader = make_uring_reader(files, 8);
  if (!reader) reader = make_pread_reader(files, 8);
  if (!reader) return reader.status();
  const std::vector<ProbeFile> whole{{0, kSpeedFile}};
  Places places(whole);
  Measurement measurement(**reader, places, memory.bytes());
  const uint64_t speed = measurement.speed(kMiB, 4, milliseconds(200));
  if (speed == 0) return io_error(directory.string() + ": what was written there to measure the drive cannot be read");
  return speed;
}

}  // namespace moestro::store
