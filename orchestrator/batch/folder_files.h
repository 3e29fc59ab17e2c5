#pragma once
// Files in one folder, each under its id. Used with a state in SQLite.

#include <filesystem>

#include "common/shm/mapped_file.h"
#include "orchestrator/batch/file_store.h"

namespace moestro::orchestrator {

class FolderFiles final : public FileStore {
 public:
  /// The folder (0700) is made with the first file. If it is missing after that, it is waited for and not treated as
  /// empty.
  static Result<std::unique_ptr<FileStore>> open_folder(const std::filesystem::path& folder);

  Result<std::unique_ptr<PartFile>> create(const std::string& id) const override;
  /// An open file stays readable if it is removed.
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
