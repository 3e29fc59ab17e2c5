#pragma once
// A file that only takes room. It is given up when a change that frees room finds none, and made again before anything
// else is written. So a full disk never keeps files from being deleted. One thread.

#include <filesystem>

#include "common/status.h"

namespace moestro::orchestrator {

class RoomReserve {
 public:
  static constexpr int64_t kBytes = 128 << 10;  ///< room for about five changes in SQLite's journal

  explicit RoomReserve(std::filesystem::path path) : path_(std::move(path)) {}
  /// Makes the file unless it is there. kExhausted: the disk is too full for it. A file system that cannot set room
  /// aside has no reserve, which the log says once.
  Status hold();
  /// Removes the file. False if there was none.
  bool give_up();

 private:
  Status make();
  const std::filesystem::path path_;
  bool held_ = false, impossible_ = false;
};

}  // namespace moestro::orchestrator
