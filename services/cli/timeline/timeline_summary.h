#pragma once
// What the timelines of a box say: its processes, and what their steps waited for longest.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/status.h"
#include "services/cli/timeline/step_shares.h"
#include "services/cli/timeline/timeline_file.h"

namespace moestro::cli {

struct StallTotal {
  uint64_t count = 0;
  Nanos time{0};
};

struct ProcessSummary {
  std::string file, name;
  int64_t pid = 0;
  StepShares steps = {};
  StallTotal stalls = {};
  std::map<std::string, StallTotal> stalls_by_cause = {};
};

struct LongStall {
  size_t process = 0;  ///< of TimelineSummary::processes
  TimelineEvent stall;
};

struct TimelineSummary {
  static constexpr size_t kLongStalls = 10;
  std::vector<ProcessSummary> processes;  ///< in the order of the files
  std::vector<LongStall> longest;         ///< the longest first
  Nanos begin = Nanos::max();             ///< of the first slice of all files

  /// Adds the processes of a file. Errors as of read_timeline().
  Status add_file(const std::filesystem::path& path);

 private:
  Status add(const std::string& file, size_t first_of_file, const TimelineEvent& event);
  void add_stall(size_t process, const TimelineEvent& stall);
};

}  // namespace moestro::cli
