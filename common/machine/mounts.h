#pragma once
// The mount table of this process.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace moestro::machine {

struct Mount {
  std::string root;   ///< part of the file system: "/" except for bind mounts and for cgroups seen from a container
  std::string point;  ///< where it is mounted
  std::string type;   ///< "tmpfs", "hugetlbfs", "cgroup2"
  std::string options;  ///< of the mount and of its file system, with commas: "rw,nosuid,pagesize=2M"
};

/// In the order in which they were mounted. `root`: "/", or a folder of fixtures. Empty if there is no mount table.
std::vector<Mount> read_mounts(const std::filesystem::path& root = "/");

/// Whether `option` ("rw", "memory") is one of the comma-separated words.
bool has_option(const std::string& options, const std::string& option);
/// "within_size" of "rw,huge=within_size" for the name "huge"; empty: no such word.
std::string option_value(const std::string& options, const std::string& name);

/// The mount that contains `path` (absolute, without symbolic links): of those with the longest matching mount point,
/// the one mounted last.
std::optional<Mount> mount_of(const std::filesystem::path& path, const std::vector<Mount>& mounts);

}  // namespace moestro::machine
