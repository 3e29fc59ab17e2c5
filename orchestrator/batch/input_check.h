#pragma once
// Checks that a batch's input is still what was uploaded, before a line of it is given out. One piece at a time.

#include <memory>
#include <optional>

#include "orchestrator/batch/file_store.h"
#include "orchestrator/state/records.h"

namespace moestro::orchestrator {

/// Why bytes with this count and checksum are not the file's; nullopt: they are. Files from before checksums have only
/// a count.
std::optional<std::string> difference(const FileRecord& file, const FileSum& seen);

class InputCheck {
 public:
  InputCheck(FileRecord file, std::unique_ptr<FileBytes> bytes) : file_(std::move(file)), bytes_(std::move(bytes)) {}
  /// True while there is more to read. kCorrupt: it is not what was uploaded.
  Result<bool> step();

 private:
  FileRecord file_;
  std::unique_ptr<FileBytes> bytes_;
  FileSum sum_;
};

}  // namespace moestro::orchestrator
