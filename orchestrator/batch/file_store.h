#pragma once
// The bytes of files, by id. A file exists completely and durably, or not at all. Any thread may call this; a PartFile
// is used by one thread at a time.

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "common/status.h"
#include "orchestrator/batch/file_sum.h"

namespace moestro::orchestrator {

/// A file that is being written. It is removed unless it was committed.
class PartFile {
 public:
  virtual ~PartFile() = default;
  /// kExhausted if there is no room.
  Status write(std::string_view bytes) {
    sum_.add(bytes);
    return append(bytes);
  }
  /// Durable when it returns. The file exists as soon as the state has its record.
  virtual Status commit() = 0;
  /// Of what was written.
  const FileSum& sum() const { return sum_; }

 private:
  virtual Status append(std::string_view bytes) = 0;
  FileSum sum_;
};

/// A file that is read. One thread at a time.
class FileBytes {
 public:
  virtual ~FileBytes() = default;
  /// Bytes from `offset`, at most `size`; empty only at the end of the file.
  virtual Result<std::string> read(uint64_t offset, size_t size) = 0;
};

class FileStore {
 public:
  virtual ~FileStore() = default;
  virtual Result<std::unique_ptr<PartFile>> create(const std::string& id) const = 0;
  /// kNotFound: the file is gone. kUnavailable: the place of all files is gone.
  virtual Result<std::unique_ptr<FileBytes>> open(const std::string& id) const = 0;
  /// Call it when the state no longer has, or never got, the file's record.
  virtual void remove(const std::string& id) const = 0;
  /// Removes what is not `known`: parts and files whose record a crash has kept from being written. Nothing where that
  /// goes by itself.
  virtual bool keeps_strays() const = 0;
  virtual void sweep(const std::function<bool(const std::string& id)>& known) const = 0;
};

/// `prefix` followed by 24 random hexadecimal digits.
std::string new_id(const std::string& prefix);
bool is_id(const std::string& text, const std::string& prefix);

}  // namespace moestro::orchestrator
