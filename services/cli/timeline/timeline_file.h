#pragma once
// Reads the Chrome trace that `--timeline` writes: one event per line, also of a process that was killed.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "common/clock.h"
#include "common/status.h"

namespace moestro::cli {

struct TimelineEvent {
  enum class Kind : uint8_t { kProcessName, kTrackName, kSlice };
  Kind kind = Kind::kSlice;
  int64_t pid = 0, track = 0;
  std::string name = {};    ///< of the process, the track or the slice
  // Of slices:
  Nanos begin{0}, end{0};   ///< by the monotonic clock, which the processes of a machine share
  uint64_t plan = 0;        ///< of the step
  int64_t layer = -1, expert = -1;
  std::string tier = {}, cause = {};  ///< of stalls
};

/// Gives every event that has a meaning here to `take`, in the order of the file. An incomplete last line is left out.
/// kNotFound, kInvalidArgument, kIo, kCorrupt: the file, the line and what is wrong; or the error of `take`, with the
/// line.
Status read_timeline(const std::filesystem::path& path, const std::function<Status(const TimelineEvent&)>& take);

}  // namespace moestro::cli
