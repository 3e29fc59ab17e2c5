#include "store/reader/pack_files.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "store/pack/shards.h"

namespace moestro::store {
namespace {
/// No link to elsewhere, and no waiting for the other end of a pipe in place of a file.
constexpr int kOpen = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
}  // namespace

Result<uint32_t> PackFiles::add(const std::filesystem::path& pack, const Manifest& manifest) {
  MOESTRO_RETURN_IF_ERROR(check_shards(pack, manifest));
  const std::vector<std::filesystem::path> paths = data_files(pack, manifest);
  std::vector<shm::UniqueFd> opened;  // all of them, or none is taken
  for (const std::filesystem::path& file : paths) {
    const std::string path = file.string();
    shm::UniqueFd fd(::open(path.c_str(), kOpen | O_DIRECT));
    if (!fd && errno == EINVAL) {
      fd.reset(::open(path.c_str(), kOpen));
      buffered_.push_back(path);
    }
    if (!fd) return io_error("cannot open " + path, errno);
    struct stat info {};
    if (::fstat(fd.get(), &info) != 0) return io_error("cannot stat " + path, errno);
    if (!S_ISREG(info.st_mode)) return corrupt(path + ": is not a plain file; nothing outside a pack is read for it");
    ::fcntl(fd.get(), F_SETFL, ::fcntl(fd.get(), F_GETFL) & ~O_NONBLOCK);  // else io_uring would not wait for the drive
    opened.push_back(std::move(fd));
  }
  const uint32_t first = free_run(opened.size());
  for (uint32_t i = 0; i < opened.size(); ++i) {
    names_[first + i] = paths[i].string();
    MOESTRO_RETURN_IF_ERROR(note_drive(first + i, opened[i].get(), names_[first + i]));
  }
  std::ranges::move(opened, files_.begin() + first);
  return first;
}

void PackFiles::close(uint32_t first, uint32_t count) {
  for (uint32_t i = first; i < first + count; ++i) files_[i].reset(), names_[i].clear();
}

uint32_t PackFiles::free_run(size_t count) {
  size_t first = 0;
  for (size_t i = 0; i < files_.size() && i < first + count; ++i)
    if (files_[i]) first = i + 1;
  const size_t size = std::max(files_.size(), first + count);
  files_.resize(size), names_.resize(size), drives_.resize(size);
  return static_cast<uint32_t>(first);
}

Status PackFiles::note_drive(uint32_t file, int fd, const std::string& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return io_error("cannot stat " + path, errno);
  const auto known = std::ranges::find(devices_, info.st_dev);
  drives_[file] = static_cast<uint32_t>(known - devices_.begin());
  if (known == devices_.end()) {
    devices_.push_back(info.st_dev);
    drive_paths_.push_back(std::filesystem::path(path).parent_path().string());
  }
  return Status::ok();
}

bool PackFiles::is_buffered(uint32_t drive) const {
  for (size_t file = 0; file < files_.size(); ++file)
    if (files_[file] && drives_[file] == drive && (::fcntl(files_[file].get(), F_GETFL) & O_DIRECT) == 0) return true;
  return false;
}

std::vector<int> PackFiles::fds() const {
  std::vector<int> fds;
  for (const shm::UniqueFd& file : files_) fds.push_back(file.get());
  return fds;
}

std::vector<LoadSlice> load_slices(const Blob& blob, uint32_t first_file) {
  std::vector<LoadSlice> slices;
  for (const Slice& slice : blob.slices)
    slices.push_back({first_file + slice.file, slice.offset, slice.length, slice.xxh3_64});
  return slices;
}

}  // namespace moestro::store
