#pragma once
// Reads whole blobs: every slice into its place, verified as it completes while others are in flight, tried three times
// in all. A blob's slices may lie on several drives; each drive has a lane, with its own thread and ring.

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/shm/mapped_file.h"
#include "common/status.h"
#include "store/reader/lane_thread.h"
#include "store/reader/load.h"

namespace moestro::store {

class BlobLoader {
 public:
  struct Counters {
    uint64_t bytes_read = 0, retries = 0;
  };
  /// `lane_of_file`: which lane reads a file; every lane's reader knows all files by the same numbers.
  static Result<std::unique_ptr<BlobLoader>> start(std::vector<ReadLane> lanes, std::vector<uint32_t> lane_of_file);

  void load(LoadRequest request);
  /// A worker waits for it now: the rest of it goes before what nobody waits for.
  void promote(uint64_t load);
  /// What is not under way yet is not read: it ends as kCancelled, unless it was whole.
  void cancel(uint64_t load);
  /// Appends the loads that ended. Never waits.
  void pump(std::vector<LoadOutcome>& outcomes);
  /// Files number `first` and on are these from now on, on the lanes there are; -1: none. No load under way reads from
  /// those before.
  void set_files(uint32_t first, const std::vector<int>& fds, const std::vector<std::string>& names,
                 const std::vector<uint32_t>& lanes);

  size_t loads_in_flight() const { return loads_.size(); }
  /// Readable while there may be something to pump.
  int event_fd() const { return done_.get(); }
  const std::vector<std::unique_ptr<LaneThread>>& lanes() const { return lanes_; }
  Counters counters() const;

 private:
  struct Load {
    LoadRequest request;
    std::vector<uint32_t> lanes;  ///< that have a part of it
    size_t lanes_left = 0;
    std::vector<SliceHash> hashes;  ///< of the slices that are there
    Status failure;  ///< the first one
  };
  explicit BlobLoader(std::vector<uint32_t> lane_of_file) : lane_of_file_(std::move(lane_of_file)) {}
  void part_ended(LaneOutcome& part, std::vector<LoadOutcome>& outcomes);

  shm::UniqueFd done_;  ///< outlives the lanes, which ring it
  std::vector<std::unique_ptr<LaneThread>> lanes_;
  std::vector<uint32_t> lane_of_file_;
  std::unordered_map<uint64_t, Load> loads_;
  std::vector<LoadOutcome> ended_;
};

}  // namespace moestro::store
