#pragma once
// The reads of one drive: which chunk is read next, what happens to reads that fail, and the checksum of every slice as
// it completes, while others are in flight. A state machine around a Reader, without a thread of its own
// (drive_thread.h has that).

#include <array>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "store/reader/drive_job.h"
#include "store/reader/reader.h"

namespace moestro::store {

inline constexpr uint32_t kReadAttempts = 3;
/// A read that the kernel has no room for (EAGAIN, ENOMEM) is tried again after this pause, for two seconds in all.
inline constexpr std::chrono::milliseconds kRefusedPause{1};
inline constexpr uint32_t kRefusalsMax = 2000;

struct DriveOptions {
  uint32_t chunk_bytes = 1 << 20;
  uint32_t depth = 8;  ///< reads in flight at once
  /// The same for loads that no worker waits for. A new demand has at most this many reads before it on the drive.
  uint32_t background_depth = 2;
  /// The same if all demanded reads in flight belong to one load, if this is more than `depth`. The drive is then idle
  /// once between two loads, not after every `depth` reads.
  uint32_t load_depth = 0;
  /// The number of reads that a thread verifies in the time of one read of the drive.
  uint32_t verified_per_read = 8;
};

struct DriveOutcome {
  uint64_t load = 0;
  Status status;  ///< names file and offset
  std::vector<DriveSlice> slices;  ///< with their hashes, if all is well
  uint64_t carried = 0;  ///< bytes that the drive has read for it, also if it failed or was cancelled
};

struct DriveCounters {
  uint64_t bytes_read = 0, retries = 0, reads = 0;
};

class DriveReader {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  /// `file_names` are for messages, one per file of the reader.
  DriveReader(std::unique_ptr<Reader> reader, std::vector<std::string> file_names, DriveOptions options);

  void add(uint64_t load, ReadClass read_class, std::vector<DriveSlice> slices);
  /// The rest of a load is read before loads that no worker waits for.
  void promote(uint64_t load);
  /// Reads that have not begun are dropped. The load ends as kCancelled, unless it was complete.
  void cancel(uint64_t load);
  Status set_files(uint32_t first, std::span<const int> fds, std::span<const std::string> names);

  /// Handles completions, keeps the drive busy, and verifies one of the completed reads. So between two verifications
  /// the drive gets new reads, and the caller can take new orders. Appends the loads that ended.
  void step(TimePoint now, std::vector<DriveOutcome>& ended);
  /// True if more reads must be verified: call step() again at once.
  bool busy() const { return !there_.empty(); }
  /// When to step although nothing completes.
  std::optional<TimePoint> step_at() const { return step_at_; }

  size_t loads() const { return jobs_.size(); }
  const DriveCounters& counters() const { return counters_; }
  /// Why a read was last tried again.
  const std::string& retried_for() const { return retried_for_; }
  const Reader& reader() const { return *reader_; }
  const DriveOptions& options() const { return options_; }
  void set_options(const DriveOptions& options) { options_ = options; }

 private:
  struct Flight {
    DriveJob* job = nullptr;
    DriveRead read;
  };
  DriveJob* next_job(TimePoint now);
  bool has_room_for(const DriveJob& job) const;
  bool leaves_too_few() const;
  void submit(TimePoint now);
  bool submit_one(DriveJob& job);
  void complete(const ReadResult& result, TimePoint now);
  void arrived(DriveJob& job, const DriveRead& read);
  void verify(DriveJob& job, uint32_t slice, uint32_t attempts);
  void read_again(DriveJob& job, DriveRead read);
  void failed(DriveJob& job, DriveRead read, const Status& why);
  void end_if_done(DriveJob& job);
  std::string where(uint32_t file, uint64_t offset, uint64_t length) const;

  std::unique_ptr<Reader> reader_;
  std::vector<std::string> file_names_;
  DriveOptions options_;
  std::unordered_map<uint64_t, DriveJob> jobs_;
  uint32_t demanded_in_flight_ = 0;  ///< reads in flight of demanded loads
  std::array<std::deque<DriveJob*>, kReadClasses> queues_;  ///< those that have reads to submit
  std::vector<Flight> flights_;         ///< by tag; reused
  std::vector<uint32_t> free_flights_;
  std::vector<Flight> there_;           ///< completed, to be verified; oldest first
  std::vector<ReadResult> results_;
  std::vector<DriveOutcome> ended_;
  std::optional<TimePoint> step_at_, refused_until_;
  DriveCounters counters_;
  std::string retried_for_;
};

}  // namespace moestro::store
