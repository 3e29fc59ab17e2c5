#pragma once
// Who may reach the files and sockets of a program: its own user, and the members of one group if the operator named
// one (for programs in containers, each with its own user).

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>

#include "common/status.h"

namespace moestro::shm {

struct FileAccess {
  std::optional<gid_t> group = std::nullopt;

  mode_t directory() const { return group ? 0750 : 0700; }
  mode_t read_only() const {
    return group ? 0440 : 0400;
  }  ///< not even by its owner, which writes through the descriptor that it made the file with
  /// The arena: its own user may map it for writing, because a GPU's driver registers no other mapping.
  mode_t arena() const { return group ? 0640 : 0600; }
  mode_t shared() const { return group ? 0660 : 0600; }
  /// Gives the open file `fd`, or the file at `path`, to the group, if there is one, with `mode`.
  Status apply(int fd, mode_t mode, const std::filesystem::path& name) const;
  Status apply(const std::filesystem::path& path, mode_t mode) const;
};

/// A group by its name or number; empty: none. kInvalidArgument if there is no such group.
Result<FileAccess> access_for_group(const std::string& group);

/// An error if `path` is unsafe for files or sockets that others must not replace: it is not a directory, it belongs to
/// another user (root's is accepted if `roots_too`), or group or others may write to it (a sticky one is accepted if
/// `roots_too`).
Status check_private_dir(const std::filesystem::path& path, const std::string& what, bool roots_too = false);

/// Makes `path` (its parents with the usual mode) for `access`, or checks it as above. `what` names it in errors: "run
/// directory".
Status make_private_dir(const std::filesystem::path& path, const FileAccess& access, const std::string& what);

/// Checks that only this user and root decide what the absolute `path` leads to. Each directory above it, and each
/// link, must belong to one of the two and must not be writable by others (a sticky directory keeps others from
/// replacing what is in it). A group whose only member is the user, as many systems create, does not count as others.
Status check_way(const std::filesystem::path& path, const std::string& what);

/// Makes `path` for `access`, or checks that it is a directory of this user, not a link, which no other user may enter.
/// A group of `access` may enter it from now on.
Status make_closed_dir(const std::filesystem::path& path, const FileAccess& access, const std::string& what);

/// Checks that members of the group of `access`, if there is one, can reach the directory `path` and enter it.
Status check_group_reaches(const std::filesystem::path& path, const FileAccess& access, const std::string& what);

/// Whether users beyond the owner, and beyond the group of `access`, may enter the directory. False if that cannot be
/// determined.
bool open_to_strangers(const std::filesystem::path& path, const FileAccess& access);

}  // namespace moestro::shm
