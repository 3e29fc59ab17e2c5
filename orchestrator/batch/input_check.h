#pragma once
// Whether a batch's input is still what was uploaded, before a line of it is given out. A piece of it at a time.

#include <memory>
#include <optional>

#include "orchestrator/batch/file_store.h"
#include "orchestrator/state/records.h"

namespace moestro::orchestrator {

/// Why bytes of this number and sum are not the file's; none: they are. Files of before there were sums have only a
/// number.
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
