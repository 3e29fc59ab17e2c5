#include "orchestrator/batch/upload.h"

#include <charconv>

namespace moestro::orchestrator {

namespace {
constexpr size_t kFieldBytesMax = 256;
constexpr size_t kNameBytesMax = 512;
}  // namespace

Upload::Upload(const std::string& content_type, const FileStore& files, Background& disk, Post post,
               std::function<void()> done)
    : files_(files), disk_(disk), post_(std::move(post)), done_(std::move(done)) {
  auto form =
      MultipartReader::open(content_type, {[this](const MultipartReader::Part& part) { return begin_part(part); },
                                           [this](std::string_view bytes) { return part_content(bytes); }});
  if (form.is_ok())
    form_.emplace(std::move(*form));
  else
    problem_ = form.status();
}

Upload::~Upload() { done_(); }

void Upload::take(std::string piece, std::function<void(bool)> taken) {
  const bool queued = disk_.run([self = shared_from_this(), bytes = std::move(piece), taken] {
    if (self->problem_.is_ok()) self->problem_ = self->form_->feed(bytes);
    self->post_([self, taken, more = self->problem_.is_ok()] { taken(more); });
  });
  if (queued) return;
  problem_ = exhausted("many files are being written already; try again later");
  taken(false);
}

Status Upload::begin_part(const MultipartReader::Part& part) {
  field_ = part.name;
  if (field_ == "purpose" || field_ == "expires_after[anchor]" || field_ == "expires_after[seconds]")
    return Status::ok();
  if (field_ != "file")
    return invalid_argument("the form's field '" + field_.substr(0, 60) + "' is not known here; leave it out");
  if (std::exchange(has_file_, true)) return invalid_argument("the form has two files; upload them one by one");
  record_.id = new_id("file-");
  record_.name = part.filename.substr(0, kNameBytesMax);
  MOESTRO_ASSIGN_OR_RETURN(file_, files_.create(record_.id));
  return Status::ok();
}

Status Upload::part_content(std::string_view bytes) {
  if (field_ == "file") return file_->write(bytes);
  std::string& value = field_ == "purpose" ? purpose_ : field_ == "expires_after[anchor]" ? anchor_ : seconds_;
  if (value.size() + bytes.size() > kFieldBytesMax)
    return invalid_argument("the form's field '" + field_ + "' is too long");
  value += bytes;
  return Status::ok();
}

Status Upload::read_fields() {
  if (!form_->complete()) return invalid_argument("the form has no end: its last boundary is missing");
  if (!has_file_) return invalid_argument("'file' is missing: the file to keep");
  if (purpose_.empty()) return invalid_argument("'purpose' is missing; 'batch' can be");
  if (purpose_ != "batch") return unsupported("'purpose' is '" + purpose_ + "'; files are kept for 'batch' alone here");
  record_.purpose = purpose_;
  if (anchor_.empty() && seconds_.empty()) return Status::ok();
  if (anchor_ != "created_at") return invalid_argument("'expires_after[anchor]' can only be 'created_at'");
  const auto [end, error] = std::from_chars(seconds_.data(), seconds_.data() + seconds_.size(), expires_seconds_);
  if (error != std::errc{} || end != seconds_.data() + seconds_.size() || expires_seconds_ < kFileSecondsLeast ||
      expires_seconds_ > kFileSecondsMost)
    return invalid_argument("'expires_after[seconds]' must be a number of " + std::to_string(kFileSecondsLeast) +
                            " to " + std::to_string(kFileSecondsMost));
  return Status::ok();
}

Result<FileRecord> Upload::finish() {
  MOESTRO_RETURN_IF_ERROR(problem_);
  MOESTRO_RETURN_IF_ERROR(read_fields());
  MOESTRO_RETURN_IF_ERROR(file_->commit());
  record_.bytes = file_->sum().bytes();
  record_.checksum = file_->sum().text();
  return record_;
}

}  // namespace moestro::orchestrator
