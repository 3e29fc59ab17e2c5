#pragma once
// A file on its way in: the form's parts are taken as they arrive, the file's bytes go to disk on a thread for that.

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
  /// `disk` runs what touches the disk; `post` brings back to the server's thread. Both, and `files`, outlive it.
  /// `done` is called once, when it is gone.
  Upload(const std::string& content_type, const FileStore& files, Background& disk, Post post,
         std::function<void()> done);
  ~Upload() override;

  void take(std::string piece, std::function<void(bool)> taken) override;

  /// On the disk's thread, when all pieces are in: the file is on disk, or why not. The record has all but the time.
  Result<FileRecord> finish();
  /// So many seconds after it was made it is to go; 0: never.
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
  std::string field_;  ///< whose content comes; "file": the file's
  std::string purpose_, anchor_, seconds_;
  bool has_file_ = false;
  int64_t expires_seconds_ = 0;
};

}  // namespace moestro::orchestrator
