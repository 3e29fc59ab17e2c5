#pragma once
// A cgroup whose processes read slowly from the drive of one directory: reads are in flight for as long as a test
// needs. Of version 1 (blkio) or 2 (io), whichever the machine has.

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "common/status.h"

namespace moestro::testing {

class ThrottledDrive {
 public:
  ThrottledDrive() = default;
  ~ThrottledDrive() {
    if (group_.empty()) return;
    (void)limit(0);
    // A process that has ended leaves its group a little later than its parent is told.
    for (int i = 0; ::rmdir(group_.c_str()) != 0 && errno == EBUSY && i < 400; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ThrottledDrive(const ThrottledDrive&) = delete;
  ThrottledDrive& operator=(const ThrottledDrive&) = delete;

  /// An error says what of this machine does not allow it.
  Status start(const std::filesystem::path& on_drive, uint64_t bytes_per_s) {
    const std::filesystem::path cgroups = "/sys/fs/cgroup";
    is_v1_ = std::filesystem::exists(cgroups / "blkio" / kV1);
    if (!is_v1_) MOESTRO_RETURN_IF_ERROR(with_io(cgroups));
    const std::filesystem::path root = is_v1_ ? cgroups / "blkio" : cgroups;
    struct stat info {};
    if (::stat(on_drive.c_str(), &info) != 0) return io_error("cannot stat " + on_drive.string(), errno);
    MOESTRO_ASSIGN_OR_RETURN(device_, whole_disk(info.st_dev, on_drive));
    const auto group = root / ("moestro-test-" + std::to_string(::getpid()));
    if (::mkdir(group.c_str(), 0700) != 0) return io_error("cannot make cgroup " + group.string(), errno);
    group_ = group;
    return limit(bytes_per_s);
  }
  /// 0: as fast as it goes.
  Status limit(uint64_t bytes_per_s) {
    const std::string number = std::to_string(bytes_per_s);
    if (is_v1_) return write(group_ / kV1, device_ + " " + number);
    return write(group_ / "io.max", device_ + " rbps=" + (bytes_per_s == 0 ? "max" : number));
  }
  Status add(pid_t pid) { return write(group_ / "cgroup.procs", std::to_string(pid)); }

 private:
  static constexpr const char* kV1 = "blkio.throttle.read_bps_device";
  /// Groups below it can limit I/O.
  static Status with_io(const std::filesystem::path& cgroups) {
    if (!names_io(cgroups / "cgroup.controllers"))
      return unsupported("no blkio cgroup (v1) and no io controller (v2) at " + cgroups.string());
    const auto below = cgroups / "cgroup.subtree_control";
    return names_io(below) ? Status::ok() : write(below, "+io");
  }
  static bool names_io(const std::filesystem::path& path) {
    std::ifstream file(path);
    for (std::string controller; file >> controller;)
      if (controller == "io") return true;
    return false;
  }
  /// "MAJOR:MINOR" of the disk that holds a file system; limits are set on disks, not on their partitions.
  static Result<std::string> whole_disk(dev_t device, const std::filesystem::path& path) {
    const std::string number = std::to_string(major(device)) + ":" + std::to_string(minor(device));
    std::error_code error;
    auto dir = std::filesystem::canonical("/sys/dev/block/" + number, error);
    if (error) return unsupported(path.string() + " is on no block device");
    if (std::filesystem::exists(dir / "partition")) dir = dir.parent_path();
    std::ifstream file(dir / "dev");
    std::string disk;
    if (!(file >> disk)) return unsupported("cannot tell which disk holds " + path.string());
    return disk;
  }
  static Status write(const std::filesystem::path& path, const std::string& text) {
    std::ofstream file(path);
    file << text << std::flush;
    return file ? Status::ok() : io_error("cannot write '" + text + "' to " + path.string(), errno);
  }

  std::filesystem::path group_;
  std::string device_;
  bool is_v1_ = false;
};

}  // namespace moestro::testing
