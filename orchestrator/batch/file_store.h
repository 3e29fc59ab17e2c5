#pragma once
// The bytes of files, each by its id in one folder. A file is there whole and on disk, or not at all. Any thread, a PartFile one at a time.

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "common/shm/mapped_file.h"
#include "common/status.h"

namespace moestro::orchestrator {

/// A file that is being written; gone unless it was committed.
class PartFile {
 public:
  PartFile(PartFile&&) noexcept = default;
  PartFile& operator=(PartFile&&) = delete;
  ~PartFile();
  /// kExhausted if the disk is full.
  Status write(std::string_view bytes);
  /// On disk under its name when it returns.
  Status commit();
  uint64_t bytes() const { return bytes_; }

 private:
  friend class FileStore;
  PartFile(std::filesystem::path path, shm::UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  Status flush();
  std::filesystem::path path_;  ///< without ".part"
  shm::UniqueFd fd_;
  std::string buffer_;
  uint64_t bytes_ = 0;
};

class FileStore {
 public:
  /// Makes the folder (0700) if it is not there.
  static Result<FileStore> open(const std::filesystem::path& folder);

  Result<PartFile> create(const std::string& id) const;
  /// To be read; it stays readable when it is removed meanwhile.
  Result<shm::UniqueFd> read(const std::string& id) const;
  std::filesystem::path path(const std::string& id) const { return folder_ / id; }
  void remove(const std::string& id) const;
  /// Removes what is not `known`: parts and files whose record a crash has kept from being written.
  void sweep(const std::function<bool(const std::string& id)>& known) const;

 private:
  explicit FileStore(std::filesystem::path folder) : folder_(std::move(folder)) {}
  std::filesystem::path folder_;
};

/// `prefix` and 24 random hexadecimal digits.
std::string new_id(const std::string& prefix);
bool is_id(const std::string& text, const std::string& prefix);

}  // namespace moestro::orchestrator
