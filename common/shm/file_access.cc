#include "common/shm/file_access.h"

#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace moestro::shm {
namespace {

constexpr uid_t kSame = static_cast<uid_t>(-1);

std::string octal(mode_t mode) {
  char text[8];
  std::snprintf(text, sizeof text, "%04o", static_cast<unsigned>(mode & 07777));
  return text;
}

Status not_given(const std::filesystem::path& name, gid_t group) {
  return io_error(
      "cannot give " + name.string() + " to group " + std::to_string(group) + "; is this user a member of it?", errno);
}

/// Whether the group has no member but this user, by the names that systems give such groups.
bool is_users_alone(gid_t group) {
  const struct passwd* user = ::getpwuid(::geteuid());
  const struct group* found = user == nullptr || user->pw_gid != group ? nullptr : ::getgrgid(group);
  return found != nullptr && found->gr_mem[0] == nullptr && std::strcmp(found->gr_name, user->pw_name) == 0;
}

constexpr int kLinksMax = 40;  // as many as the kernel follows

Status check_way(const std::filesystem::path& path, const std::string& what, int links_left) {
  std::filesystem::path at;
  for (const std::filesystem::path& part : path.parent_path()) {
    at /= part;
    if (at == at.root_path()) continue;
    const auto refused = [&](const std::string& why) {
      return invalid_argument(what + " " + path.string() + ": " + at.string() + " " + why +
                              ", who could put something else there; give another directory");
    };
    struct stat info {};
    if (::lstat(at.c_str(), &info) != 0) return io_error(what + " " + at.string(), errno);
    if (info.st_uid != ::geteuid() && info.st_uid != 0)
      return refused("belongs to user " + std::to_string(info.st_uid));
    if (S_ISLNK(info.st_mode)) {
      std::error_code error;
      const auto target = std::filesystem::read_symlink(at, error);
      if (error || links_left == 0) return io_error(what + " " + at.string(), error ? error.value() : ELOOP);
      MOESTRO_RETURN_IF_ERROR(check_way(at.parent_path() / target / ".", what, links_left - 1));
      continue;
    }
    const bool group_writes = (info.st_mode & S_IWGRP) != 0 && !is_users_alone(info.st_gid);
    if ((group_writes || (info.st_mode & S_IWOTH) != 0) && (info.st_mode & S_ISVTX) == 0)
      return refused("is open to writing by others (mode " + octal(info.st_mode) + ")");
  }
  return Status::ok();
}

}  // namespace

Status FileAccess::apply(int fd, mode_t mode, const std::filesystem::path& name) const {
  if (group && ::fchown(fd, kSame, *group) != 0) return not_given(name, *group);
  if (::fchmod(fd, mode) != 0) return io_error("cannot set the mode of " + name.string(), errno);
  return Status::ok();
}

Status FileAccess::apply(const std::filesystem::path& path, mode_t mode) const {
  if (group && ::lchown(path.c_str(), kSame, *group) != 0) return not_given(path, *group);
  if (::chmod(path.c_str(), mode) != 0) return io_error("cannot set the mode of " + path.string(), errno);
  return Status::ok();
}

Result<FileAccess> access_for_group(const std::string& name) {
  if (name.empty()) return FileAccess{};
  if (name.find_first_not_of("0123456789") == std::string::npos) {
    errno = 0;
    const unsigned long number = std::strtoul(name.c_str(), nullptr, 10);
    if (errno != 0 || number >= UINT32_MAX) return invalid_argument("group " + name + " is no group id");
    return FileAccess{static_cast<gid_t>(number)};
  }
  const struct group* found = ::getgrnam(name.c_str());
  if (found == nullptr) return invalid_argument("there is no group '" + name + "' here; give its number");
  return FileAccess{found->gr_gid};
}

Status check_private_dir(const std::filesystem::path& path, const std::string& what, bool roots_too) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return io_error(what + " " + path.string(), errno);
  if (!S_ISDIR(info.st_mode)) return invalid_argument(what + " " + path.string() + " is not a directory");
  if (info.st_uid != ::geteuid() && !(roots_too && info.st_uid == 0))
    return invalid_argument(what + " " + path.string() + " belongs to user " + std::to_string(info.st_uid) +
                            ", this is user " + std::to_string(::geteuid()) +
                            ": give a directory of its own, or start as that user");
  if ((info.st_mode & 0022) != 0 && !(roots_too && (info.st_mode & S_ISVTX) != 0))
    return invalid_argument(what + " " + path.string() + " is open to writing by others (mode " + octal(info.st_mode) +
                            "), who could replace what lies in it: chmod go-w " + path.string());
  return Status::ok();
}

Status make_private_dir(const std::filesystem::path& path, const FileAccess& access, const std::string& what) {
  std::error_code error;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), error);
  if (::mkdir(path.c_str(), 0700) == 0) return access.apply(path, access.directory());
  if (errno != EEXIST) return io_error("cannot make the " + what + " " + path.string(), errno);
  return check_private_dir(path, what);
}

Status check_way(const std::filesystem::path& path, const std::string& what) {
  return check_way(path, what, kLinksMax);
}

Status make_closed_dir(const std::filesystem::path& path, const FileAccess& access, const std::string& what) {
  if (::mkdir(path.c_str(), 0700) == 0) return access.apply(path, access.directory());
  if (errno != EEXIST) return io_error("cannot make the " + what + " " + path.string(), errno);
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return io_error(what + " " + path.string(), errno);
  if (!S_ISDIR(info.st_mode)) return invalid_argument(what + " " + path.string() + " is not a directory");
  MOESTRO_RETURN_IF_ERROR(check_private_dir(path, what));
  if (open_to_strangers(path, access))
    return invalid_argument(what + " " + path.string() + " is open to other users (mode " + octal(info.st_mode) +
                            "): chmod 700 it, or give another");
  return access.group ? access.apply(path, access.directory()) : Status::ok();
}

Status check_group_reaches(const std::filesystem::path& path, const FileAccess& access, const std::string& what) {
  if (!access.group) return Status::ok();
  std::filesystem::path at;
  for (const std::filesystem::path& part : path) {
    at /= part;
    struct stat info {};
    if (::stat(at.c_str(), &info) != 0) return io_error(what + " " + at.string(), errno);
    const mode_t entry = info.st_gid == *access.group ? S_IXGRP : S_IXOTH;
    if ((info.st_mode & entry) == 0)
      return invalid_argument("members of group " + std::to_string(*access.group) + " cannot come to the " + what +
                              " " + path.string() + ": " + at.string() + " has mode " + octal(info.st_mode) +
                              "; chmod o+x it, or give another directory");
  }
  return Status::ok();
}

bool open_to_strangers(const std::filesystem::path& path, const FileAccess& access) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return false;
  const mode_t closed = access.group && *access.group == info.st_gid ? 0007 : 0077;
  return (info.st_mode & closed) != 0;
}

}  // namespace moestro::shm
