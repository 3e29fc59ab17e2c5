#pragma once
// Reads whole blobs, every slice into its place. Slices are verified as they complete, while others are in flight, and
// tried three times in all. A blob's slices may be on several drives. Each drive has a thread with its own
// ring.

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/shm/mapped_file.h"
#include "common/status.h"
#include "store/reader/drive_thread.h"
#include "store/reader/load.h"

namespace moestro::store {

class BlobLoader {
 public:
  struct Counters {
    uint64_t bytes_read = 0, retries = 0;
  };
  /// `drive_of_file`: the drive that a file is on. All readers use the same file numbers.
  static Result<std::unique_ptr<BlobLoader>> start(std::vector<DriveReader> drives,
                                                   std::vector<uint32_t> drive_of_file);

  void load(LoadRequest request);
  /// A worker waits for it now: the rest of it is read before loads that no worker waits for.
  void promote(uint64_t load);
  /// Reads that have not begun are dropped. The load ends as kCancelled, unless it was complete.
  void cancel(uint64_t load);
  /// Appends the loads that ended. Never waits.
  void pump(std::vector<LoadOutcome>& outcomes);
  /// Sets the files from number `first` on, for the existing drives; -1: no file. No load in progress may read from the
  /// previous files.
  void set_files(uint32_t first, const std::vector<int>& fds, const std::vector<std::string>& names,
                 const std::vector<uint32_t>& drives);

  size_t loads_in_flight() const { return loads_.size(); }
  /// Readable while there may be something to pump.
  int event_fd() const { return done_.get(); }
  const std::vector<std::unique_ptr<DriveThread>>& drives() const { return drives_; }
  Counters counters() const;

 private:
  struct Load {
    LoadRequest request;
    std::vector<uint32_t> drives;  ///< drives that a part of it is on
    size_t drives_left = 0;
    std::vector<SliceHash> hashes;  ///< of the slices that have arrived
    Status failure;  ///< the first one
    uint64_t carried = 0;  ///< by the drives that have ended
  };
  explicit BlobLoader(std::vector<uint32_t> drive_of_file) : drive_of_file_(std::move(drive_of_file)) {}
  void part_ended(DriveOutcome& part, std::vector<LoadOutcome>& outcomes);

  shm::UniqueFd done_;  ///< outlives the threads, which write to it
  std::vector<std::unique_ptr<DriveThread>> drives_;
  std::vector<uint32_t> drive_of_file_;
  std::unordered_map<uint64_t, Load> loads_;
  std::vector<LoadOutcome> ended_;
};

}  // namespace moestro::store
