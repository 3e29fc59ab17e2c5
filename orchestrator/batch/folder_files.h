#pragma once
// Files in one folder, each under its id; beside a state in SQLite.

#include <filesystem>

#include "common/shm/mapped_file.h"
#include "orchestrator/batch/file_store.h"

namespace moestro::orchestrator {

class FolderFiles final : public FileStore {
 public:
  /// The folder (0700) is made with the first file. One that is away then is waited for, not taken for an empty one.
  static Result<std::unique_ptr<FileStore>> open_folder(const std::filesystem::path& folder);

  Result<std::unique_ptr<PartFile>> create(const std::string& id) const override;
  /// It stays readable when it is removed meanwhile.
  Result<std::unique_ptr<FileBytes>> open(const std::string& id) const override;
  void remove(const std::string& id) const override;
  bool keeps_strays() const override { return true; }
  void sweep(const std::function<bool(const std::string& id)>& known) const override;

 private:
  explicit FolderFiles(std::filesystem::path folder) : folder_(std::move(folder)) {}
  std::filesystem::path path(const std::string& id) const { return folder_ / id; }
  std::filesystem::path folder_;
};

}  // namespace moestro::orchestrator
