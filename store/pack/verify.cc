#include "store/pack/verify.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <system_error>
#include <thread>

#include "store/pack/blob_numbers.h"
#include "store/pack/copied_files.h"
#include "store/pack/slice_reader.h"

namespace moestro::store {

Result<VerifyReport> verify_pack(const std::filesystem::path& dir, const Manifest& manifest, unsigned jobs,
                                 const std::function<void(uint64_t, uint64_t)>& progress) {
  MOESTRO_ASSIGN_OR_RETURN(const SliceReader reader, SliceReader::open(dir, manifest));
  MOESTRO_ASSIGN_OR_RETURN(const BlobNumbers numbers, BlobNumbers::of(manifest));
  uint64_t total = 0;
  for (const Blob& b : manifest.blobs) total += b.length;
  std::atomic<uint32_t> next{0};
  std::mutex mutex;  // guards report, first_bad and the calls of progress
  VerifyReport report;
  uint32_t first_bad = UINT32_MAX;
  const auto work = [&] {
    for (uint32_t b = next++; b < manifest.blobs.size(); b = next++) {
      Status status = reader.check_blob(
          b, [&](uint64_t offset, std::span<const std::byte> bytes) { return numbers.check(b, offset, bytes); });
      const std::lock_guard lock(mutex);
      report.bytes += manifest.blobs[b].length;
      if (progress) progress(report.bytes, total);
      if (status.is_ok()) continue;
      ++report.blobs_bad;
      if (b < first_bad) first_bad = b, report.first_error = std::move(status);
    }
  };
  {
    std::vector<std::jthread> helpers;
    try {
      for (unsigned i = 1; i < std::min<size_t>(jobs, manifest.blobs.size()); ++i) helpers.emplace_back(work);
    } catch (const std::system_error&) {
      // A limit on threads: those that started, this one at least, do the work.
    }
    work();
  }
  for (const CopiedFile& file : manifest.copied) {
    Status status = check_copied_file(dir, file);
    if (status.is_ok()) continue;
    ++report.copied_bad;
    if (report.first_error.is_ok()) report.first_error = std::move(status);
  }
  return report;
}

}  // namespace moestro::store
