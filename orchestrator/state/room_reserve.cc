#include "orchestrator/state/room_reserve.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "common/log.h"
#include "common/shm/mapped_file.h"
#include "orchestrator/state/database.h"

namespace moestro::orchestrator {

Status RoomReserve::hold() {
  if (held_ || impossible_) return Status::ok();
  const Status made = make();
  held_ = made.is_ok();
  if (held_ || made.code() == Code::kExhausted) return made;
  log::warn("{}; on a full disk, files may not be deletable", made.message());
  impossible_ = true;
  return Status::ok();
}

Status RoomReserve::make() {
  const std::string what = "cannot set room aside in " + path_.string();
  const shm::UniqueFd fd(::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return opening_error(what, errno);
  struct stat found {};
  constexpr int64_t kBlock = 512;  // the unit of st_blocks
  if (::fstat(fd.get(), &found) == 0 && found.st_size == kBytes && found.st_blocks * kBlock >= kBytes)
    return Status::ok();
  const int error = ::posix_fallocate(fd.get(), 0, kBytes);
  if (error == 0) return Status::ok();
  ::unlink(path_.c_str());
  return opening_error(what, error);
}

bool RoomReserve::give_up() { return std::exchange(held_, false) && ::unlink(path_.c_str()) == 0; }

}  // namespace moestro::orchestrator
