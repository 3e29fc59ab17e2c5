#pragma once
// Files for the packer and its readers: reads and writes at given positions, complete or an error, and durable where
// stated.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "common/status.h"

namespace moestro::store {

/// A regular file, open. Move-only. Reads and writes at given positions may run in several threads.
class File {
 public:
  static Result<File> open_for_reading(const std::filesystem::path& path);
  static Result<File> open_for_writing(
      const std::filesystem::path& path);  ///< created if it does not exist, never truncated

  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  Result<uint64_t> size() const;
  Status read_at(uint64_t offset, std::span<std::byte> out) const;  ///< all of `out`; kCorrupt if the file ends before
  Status write_at(uint64_t offset, std::span<const std::byte> bytes) const;
  /// Tells the kernel to begin writing these bytes to the drive, so that sync() waits for less. sync() has the errors.
  void start_writing_back(uint64_t offset, uint64_t size) const;
  Status reserve(uint64_t size) const;  ///< exactly this size, with allocated blocks if the file system can
  Status truncate(uint64_t size) const;
  Status sync() const;
  Result<bool> try_lock() const;  ///< exclusive, held until closed; false if another process holds it
  bool has_a_name() const;  ///< false if it was removed since it was opened

  /// What changes when a file's bytes do.
  struct Version {
    struct Time {
      int64_t seconds = 0, nanoseconds = 0;
      friend bool operator==(const Time&, const Time&) = default;
    };
    uint64_t size = 0;
    Time written;  ///< programs can set it, and archives do
    Time inode;    ///< nothing can set it, but it also changes with a link, a new name or a mode
  };
  const Version& opened() const { return opened_; }  ///< as it was when it was opened
  enum class Since {
    kNothing,
    kTouched,  ///< it got another link, name or mode, or was written to and got its time back
    kWritten,
  };
  /// What has happened to it since it was opened.
  Result<Since> since_opened() const;
  int fd() const { return fd_; }
  const std::string& path() const { return path_; }

 private:
  File(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  static Result<File> open(const std::filesystem::path& path, int flags);
  int fd_ = -1;
  std::string path_;
  Version opened_;
};

/// kInvalidArgument if it is what Git leaves in place of a file that Git LFS has not fetched.
Status check_is_no_lfs_pointer(const File& file);
/// The whole text of a file of at most `bytes_max`.
Result<std::string> read_text_file(const std::filesystem::path& path, uint64_t bytes_max);
/// The same; nullopt if there is no such file.
Result<std::optional<std::string>> read_text_file_if_any(const std::filesystem::path& path, uint64_t bytes_max);

/// Writes DIR/NAME completely or not at all: temporary file, sync, rename, sync of the directory.
Status write_file_durably(const std::filesystem::path& dir, const std::string& name, std::span<const std::byte> bytes);
Status sync_directory(const std::filesystem::path& dir);

}  // namespace moestro::store
