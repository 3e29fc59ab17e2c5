#include "orchestrator/batch/redis_files.h"

#include <algorithm>
#include <charconv>
#include <mutex>

#include "common/log.h"

namespace moestro::orchestrator {

namespace {
constexpr size_t kPieceBytes = 256 << 10;
}

/// A connection of their own: bytes come and go on other threads than the state's.
struct RedisFiles::Shared {
  Shared(RedisPlace place, std::string host_name, std::chrono::seconds life, RedisLink::Limits limits)
      : link(std::move(place), limits), host(std::move(host_name)), part_life(std::to_string(life.count())) {}
  std::string part(const std::string& id) const { return "moestro:part:" + id + ":" + host; }
  Result<RedisReply> call(const RedisLink::Words& words) {
    const std::lock_guard lock(mutex);
    return link.call(words);
  }
  std::mutex mutex;
  RedisLink link;
  const std::string host, part_life;
};

namespace {

class RedisPart final : public PartFile {
 public:
  RedisPart(std::shared_ptr<RedisFiles::Shared> shared, std::string id)
      : shared_(std::move(shared)), id_(std::move(id)), key_(shared_->part(id_)) {}
  ~RedisPart() override {
    if (!committed_ && pieces_ > 0) (void)shared_->call({"UNLINK", key_}).is_ok();  // else it goes by itself
  }
  /// What an earlier try has left must not mix with this one.
  Status begin() { return shared_->call({"UNLINK", key_}).status(); }
  Status commit() override {
    if (!buffer_.empty()) MOESTRO_RETURN_IF_ERROR(put(buffer_));
    buffer_.clear();
    MOESTRO_RETURN_IF_ERROR(check_whole());
    committed_ = true;
    return Status::ok();
  }

 private:
  Status append(std::string_view bytes) override {
    buffer_ += bytes;
    size_t at = 0;
    for (; buffer_.size() - at >= kPieceBytes; at += kPieceBytes)
      MOESTRO_RETURN_IF_ERROR(put(std::string_view(buffer_).substr(at, kPieceBytes)));
    buffer_.erase(0, at);
    return Status::ok();
  }
  /// A Redis that was away for long may have let the first pieces go.
  Status check_whole() {
    MOESTRO_ASSIGN_OR_RETURN(const RedisReply pieces, shared_->call({"HLEN", key_}));
    if (pieces->integer() == static_cast<int64_t>(pieces_)) return Status::ok();
    return unavailable("a part of the file is gone from Redis; upload it again");
  }
  Status put(std::string_view piece) {
    const std::string number = std::to_string(pieces_);
    const std::lock_guard lock(shared_->mutex);
    const RedisLink::Words both[] = {{"HSET", key_, number, piece}, {"EXPIRE", key_, shared_->part_life}};
    MOESTRO_RETURN_IF_ERROR(shared_->link.calls(both).status());
    ++pieces_;
    return Status::ok();
  }

  const std::shared_ptr<RedisFiles::Shared> shared_;
  const std::string id_, key_;
  std::string buffer_;
  uint64_t pieces_ = 0;
  bool committed_ = false;
};

class RedisBytes final : public FileBytes {
 public:
  RedisBytes(std::shared_ptr<RedisFiles::Shared> shared, const std::string& id, uint64_t total)
      : shared_(std::move(shared)), key_("moestro:blob:" + id), total_(total) {}
  Result<std::string> read(uint64_t offset, size_t size) override {
    std::string bytes;
    size = static_cast<size_t>(std::min<uint64_t>(size, total_ - std::min(total_, offset)));
    while (bytes.size() < size) {
      const uint64_t at = offset + bytes.size(), number = at / kPieceBytes, within = at % kPieceBytes;
      if (number != number_) MOESTRO_RETURN_IF_ERROR(fetch(number));
      bytes += piece_.substr(within, size - bytes.size());
    }
    return bytes;
  }

 private:
  Status fetch(uint64_t number) {
    const std::string field = std::to_string(number);
    MOESTRO_ASSIGN_OR_RETURN(const RedisReply piece, shared_->call({"HGET", key_, field}));
    if (piece->text().size() != std::min<uint64_t>(kPieceBytes, total_ - number * kPieceBytes))
      return not_found("the file was removed while it was read");
    piece_ = piece->text();
    number_ = number;
    return Status::ok();
  }

  static constexpr uint64_t kNone = UINT64_MAX;
  const std::shared_ptr<RedisFiles::Shared> shared_;
  const std::string key_;
  const uint64_t total_;
  std::string piece_;
  uint64_t number_ = kNone;  ///< of the piece that is here
};

}  // namespace

RedisFiles::RedisFiles(RedisPlace place, std::string host, std::chrono::seconds part_life, RedisLink::Limits limits)
    : shared_(std::make_shared<Shared>(std::move(place), std::move(host), part_life, limits)) {}
RedisFiles::~RedisFiles() = default;

Result<std::unique_ptr<PartFile>> RedisFiles::create(const std::string& id) const {
  auto part = std::make_unique<RedisPart>(shared_, id);
  MOESTRO_RETURN_IF_ERROR(part->begin());
  return std::unique_ptr<PartFile>(std::move(part));
}

Result<std::unique_ptr<FileBytes>> RedisFiles::open(const std::string& id) const {
  const std::string key = "moestro:file:" + id;
  MOESTRO_ASSIGN_OR_RETURN(const RedisReply bytes, shared_->call({"HGET", key, "bytes"}));
  uint64_t total = 0;
  const std::string_view text = bytes->text();
  if (std::from_chars(text.data(), text.data() + text.size(), total).ec != std::errc{})
    return not_found("there is no file " + id + " in " + shared_->link.place().shown());
  return std::unique_ptr<FileBytes>(std::make_unique<RedisBytes>(shared_, id, total));
}

void RedisFiles::remove(const std::string& id) const {
  const std::string key = shared_->part(id);
  if (const Status removed = shared_->call({"UNLINK", key}).status(); !removed.is_ok())
    log::warn("cannot remove a part of {}: {}", id, removed.message());
}

}  // namespace moestro::orchestrator
