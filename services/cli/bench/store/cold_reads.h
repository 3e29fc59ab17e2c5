#pragma once
// Reads the same slices of the same pack without a store: by io_uring alone, and through a mapping of the files.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "common/shm/mapped_file.h"
#include "common/status.h"
#include "store/blob_source.h"
#include "store/pack/manifest.h"
#include "store/reader/pack_files.h"
#include "store/reader/raw_reads.h"

namespace moestro::cli {

/// One thread. Every read finds a cold page cache: O_DIRECT bypasses it, and the mapping's pages are dropped before
/// they are read.
class ColdReads {
 public:
  /// `arena`: the payload file of the benchmark's store.
  static Result<std::unique_ptr<ColdReads>> create(const std::filesystem::path& pack, const store::Manifest& manifest,
                                                   const std::filesystem::path& arena, uint32_t depth);
  ~ColdReads();
  ColdReads(const ColdReads&) = delete;
  ColdReads& operator=(const ColdReads&) = delete;

  /// Seconds for all slices of the blobs leased by `held`, with `depth` reads in flight and no verification. They are
  /// read into the same pages that the store has filled, because the speed depends on the pages. `arena`: the client's
  /// StoreClient::memory().
  Result<double> by_ring(std::span<const store::Lease> held, std::span<const std::byte> arena);
  /// Seconds until every page of `blobs` has been touched through the mapping.
  Result<double> by_mapping(std::span<const uint32_t> blobs);

  bool registered() const { return ring_->registered(); }
  /// The kernel's read-ahead for mappings, as set for the pack's drive; 0 if unknown.
  uint64_t read_ahead_bytes() const { return read_ahead_bytes_; }
  uint32_t slice_bytes_max() const;

 private:
  explicit ColdReads(const store::Manifest& manifest) : manifest_(manifest) {}
  Status map_files(const std::filesystem::path& pack);
  void drop_pages(std::span<const uint32_t> blobs);

  struct Mapping {
    shm::UniqueFd fd;
    std::byte* data = nullptr;
    uint64_t size = 0;
  };
  const store::Manifest& manifest_;
  store::PackFiles direct_;
  shm::MappedFile arena_;  ///< writable, unlike a client's
  std::unique_ptr<store::RawReads> ring_;
  std::vector<Mapping> mapped_;
  uint64_t read_ahead_bytes_ = 0;
};

}  // namespace moestro::cli
