#pragma once
// Who may reach the files and sockets of a program: its own user, and the members of one group where the operator named
// one (programs in containers, each with a user of its own).

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
  }  ///< not even by its owner: that one writes through the descriptor it made it with
  mode_t shared() const { return group ? 0660 : 0600; }
  /// Gives what is open at `fd`, or lies at `path`, to the group, if there is one, with `mode`.
  Status apply(int fd, mode_t mode, const std::filesystem::path& name) const;
  Status apply(const std::filesystem::path& path, mode_t mode) const;
};

/// A group by its name or number; empty: none. kInvalidArgument if there is no such group.
Result<FileAccess> access_for_group(const std::string& group);

/// Why `path` is no place for files or sockets that others must not replace: not a directory, of another user (root's
/// passes if `roots_too`), or open to writing by group or others (a sticky one passes if `roots_too`).
Status check_private_dir(const std::filesystem::path& path, const std::string& what, bool roots_too = false);

/// Makes `path` (its parents with the usual mode) for `access`, or checks it as above. `what` names it in errors: "run
/// directory".
Status make_private_dir(const std::filesystem::path& path, const FileAccess& access, const std::string& what);

/// That nobody but this user and root decides what the absolute `path` leads to: each directory above it is one's of
/// these two and closed to writing by others (a sticky one keeps others from replacing what is in it), and so is each
/// link. A group that is the user's alone, as many systems give, is not others.
Status check_way(const std::filesystem::path& path, const std::string& what);

/// Makes `path` for `access`, or checks that it is a directory of this user, not a link to one, which nobody else may
/// enter; a group of `access` may from now on.
Status make_closed_dir(const std::filesystem::path& path, const FileAccess& access, const std::string& what);

/// That members of the group of `access`, if there is one, can come to the directory `path` and enter it.
Status check_group_reaches(const std::filesystem::path& path, const FileAccess& access, const std::string& what);

/// Whether users beyond the owner, and beyond the group of `access`, may enter the directory. False if it cannot be
/// seen.
bool open_to_strangers(const std::filesystem::path& path, const FileAccess& access);

}  // namespace moestro::shm
