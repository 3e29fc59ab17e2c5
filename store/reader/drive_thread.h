#pragma once
// A DriveReader on its own thread. There is one for each drive, so that all drives are read, and their data verified,
// in parallel.

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "common/shm/mapped_file.h"
#include "store/reader/drive_reader.h"

namespace moestro::store {

/// Called by the owner of the loads (the store's thread). The inner thread owns the DriveReader.
class DriveThread {
 public:
  /// `done_fd` is an eventfd: it is written when there are outcomes.
  static Result<std::unique_ptr<DriveThread>> start(DriveReader drive, int done_fd);
  /// Drops reads that have not begun, and waits for those in flight.
  ~DriveThread();

  void add(uint64_t load, ReadClass read_class, std::vector<DriveSlice> slices);
  void promote(uint64_t load);
  void cancel(uint64_t load);
  void set_files(uint32_t first, std::vector<int> fds, std::vector<std::string> names);

  /// Appends the loads that ended.
  void take(std::vector<DriveOutcome>& ended);
  DriveCounters counters() const;
  /// Loads that were added and have not ended.
  size_t loads() const { return loads_; }
  std::string_view reader_name() const { return reader_name_; }
  const Status& registered() const { return registered_; }
  const DriveOptions& options() const { return options_; }

 private:
  struct Add {
    uint64_t load;
    ReadClass read_class;
    std::vector<DriveSlice> slices;
  };
  struct Promote {
    uint64_t load;
  };
  struct Cancel {
    uint64_t load;
  };
  struct SetFiles {
    uint32_t first;
    std::vector<int> fds;
    std::vector<std::string> names;
  };
  using Command = std::variant<Add, Promote, Cancel, SetFiles>;

  DriveThread(DriveReader drive, int done_fd);
  void post(Command command);
  void serve();
  bool obey();
  void wait() const;
  void name_retries();

  DriveReader drive_;  ///< the thread's
  uint64_t retries_named_ = 0;  ///< the thread's
  std::chrono::steady_clock::time_point retries_named_at_{};
  const int done_fd_;
  const std::string reader_name_;
  const Status registered_;
  const DriveOptions options_;
  size_t loads_ = 0;  ///< owner thread
  shm::UniqueFd wake_;
  mutable std::mutex mutex_;  ///< guards what follows
  std::vector<Command> commands_;
  std::vector<DriveOutcome> outcomes_;
  DriveCounters counters_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace moestro::store
