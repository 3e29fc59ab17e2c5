#pragma once
// A ReadLane with a thread of its own: one for each drive, so that all are read, and what comes from them verified, at once.

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "common/shm/mapped_file.h"
#include "store/reader/read_lane.h"

namespace moestro::store {

/// Called by the owner of the loads (the store's thread), which gives the drive what it asks for itself. The thread inside collects what
/// comes, and verifies it.
class LaneThread {
 public:
  /// `done_fd` is an eventfd: it is rung when outcomes are there.
  static Result<std::unique_ptr<LaneThread>> start(ReadLane lane, int done_fd);
  /// Gives up what is not under way, and waits for what is.
  ~LaneThread();

  /// What can go to the drive does so before these return: nobody has to be woken for it.
  void add(uint64_t load, ReadClass read_class, std::vector<LaneSlice> slices);
  void promote(uint64_t load);
  void cancel(uint64_t load);
  void set_files(uint32_t first, std::span<const int> fds, std::span<const std::string> names);

  /// Appends the loads that ended.
  void take(std::vector<LaneOutcome>& ended);
  LaneCounters counters() const;
  /// Loads that were added and have not ended.
  size_t loads() const { return loads_; }
  std::string_view reader_name() const { return reader_name_; }
  const Status& registered() const { return registered_; }
  const LaneOptions& options() const { return options_; }

 private:
  LaneThread(ReadLane lane, int done_fd);
  void changed();
  void tell_owner();
  void serve();
  void wait() const;
  void name_retries();

  const int done_fd_;
  const std::string reader_name_;
  const Status registered_;
  const LaneOptions options_;
  size_t loads_ = 0;  ///< owner thread
  shm::UniqueFd wake_;
  mutable std::mutex mutex_;  ///< guards what follows; never held while a checksum is computed
  ReadLane lane_;
  uint64_t retries_named_ = 0;
  std::chrono::steady_clock::time_point retries_named_at_{};
  bool told_ = false;  ///< that loads have ended
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace moestro::store
