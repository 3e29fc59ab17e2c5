#pragma once
// An upload: takes the form's parts as they arrive, and writes the file's bytes on a separate thread.

#include <memory>
#include <optional>
#include <string>

#include "orchestrator/api/background.h"
#include "orchestrator/batch/file_store.h"
#include "orchestrator/batch/multipart.h"
#include "orchestrator/http/exchange.h"
#include "orchestrator/state/records.h"

namespace moestro::orchestrator {

class Upload final : public BodySink, public std::enable_shared_from_this<Upload> {
 public:
  using Post = std::function<void(std::function<void()>)>;
  /// `disk` runs disk access; `post` returns to the server's thread. Both, and `files`, outlive it. `done` is called
  /// once, when it is destroyed.
  Upload(const std::string& content_type, const FileStore& files, Background& disk, Post post,
         std::function<void()> done);
  ~Upload() override;

  void take(std::string piece, std::function<void(bool)> taken) override;

  /// On the disk's thread, after the last piece: completes the file on disk, or returns why not. The record is complete
  /// except for the time.
  Result<FileRecord> finish();
  /// The file expires this many seconds after its creation; 0: never.
  int64_t expires_seconds() const { return expires_seconds_; }

 private:
  Status begin_part(const MultipartReader::Part& part);
  Status part_content(std::string_view bytes);
  Status read_fields();

  const FileStore& files_;
  Background& disk_;
  const Post post_;
  const std::function<void()> done_;
  std::optional<MultipartReader> form_;
  Status problem_;
  std::unique_ptr<PartFile> file_;
  FileRecord record_;
  std::string field_;  ///< field whose content is arriving; "file": the file
  std::string purpose_, anchor_, seconds_;
  bool has_file_ = false;
  int64_t expires_seconds_ = 0;
};

}  // namespace moestro::orchestrator
