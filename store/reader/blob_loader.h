#pragma once
// Reads whole blobs: every slice into its place, verified as it completes while others are in flight, tried three times in all.

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/status.h"
#include "store/layout/content_hash.h"
#include "store/reader/reader.h"

namespace moestro::store {

inline constexpr int kReadAttempts = 3;

/// A slice as the reader sees it. In the arena slices follow one another; only the last may have a length off kDiskAlign.
struct LoadSlice {
  uint32_t file = 0;
  uint64_t offset = 0;
  uint32_t length = 0;
  uint64_t xxh3_64 = 0;
};

/// What goes into a blob's content hash for each slice.
struct SliceHash {
  uint64_t length = 0, low = 0, high = 0;
};

struct LoadRequest {
  uint64_t load = 0;  ///< names this load in its outcome
  std::byte* into = nullptr;
  std::vector<LoadSlice> slices;
};

struct LoadOutcome {
  uint64_t load = 0;
  Status status;          ///< names file and offset; kCorrupt or kIo
  ContentHash content;    ///< of the bytes that were read; not known if the load failed
};

class BlobLoader {
 public:
  /// `file_names` are for messages, one per file of the reader.
  BlobLoader(std::unique_ptr<Reader> reader, std::vector<std::string> file_names);

  void load(LoadRequest request);
  /// Handles completions and keeps the reader full. Appends the loads that ended.
  void pump(std::vector<LoadOutcome>& outcomes);

  size_t loads_in_flight() const { return loads_.size(); }
  int event_fd() const { return reader_->event_fd(); }
  const Reader& reader() const { return *reader_; }
  uint64_t bytes_read() const { return bytes_read_; }
  uint64_t retries() const { return retries_; }

 private:
  struct Load {
    LoadRequest request;
    size_t slices_left = 0;
    std::vector<SliceHash> hashes;  ///< of the slices that are there
    Status failure;  ///< the first one; the load ends when no read of it is under way
  };
  struct Read {
    uint64_t load = 0;
    uint32_t slice = 0;
    std::byte* into = nullptr;  ///< of the slice
    uint32_t done = 0;          ///< bytes of the slice that are there
    int attempts = 0;
  };
  void submit_queued();
  void complete(uint64_t tag, int64_t result);
  void try_again(uint64_t tag, Read& read, Status why);
  void slice_ended(const Read& read, const Status& status);
  std::string where(const LoadSlice& slice) const;

  std::unique_ptr<Reader> reader_;
  std::vector<std::string> file_names_;
  std::unordered_map<uint64_t, Load> loads_;
  std::unordered_map<uint64_t, Read> reads_;  ///< by tag: queued or under way
  std::deque<uint64_t> queue_;
  std::vector<LoadOutcome> ended_;
  uint64_t next_tag_ = 1;
  uint64_t bytes_read_ = 0, retries_ = 0;
};

}  // namespace moestro::store
