#include "store/reader/blob_loader.h"

#include <xxhash.h>

#include <cerrno>
#include <utility>

#include "common/expert_layout.h"

namespace moestro::store {
namespace {

uint32_t aligned(uint32_t length) { return static_cast<uint32_t>(round_up(length, kDiskAlign)); }

static_assert(sizeof(SliceHash) == 24, "hashed as it lies");

ContentHash content_of(const std::vector<SliceHash>& slices) {
  const XXH128_hash_t hash = XXH3_128bits(slices.data(), slices.size() * sizeof(SliceHash));
  return {hash.low64, hash.high64};
}

/// Above this length the low half of XXH3-128 is XXH3-64 (a test holds the library to it): one pass verifies a slice against its
/// checksum and gives what the content hash is made of, so that knowing the content costs no time at all.
constexpr uint32_t kOnePassBytes = 241;

uint64_t checksum_of(const std::byte* bytes, const SliceHash& hash) {
  return hash.length >= kOnePassBytes ? hash.low : XXH3_64bits(bytes, hash.length);
}

SliceHash hash_of(const std::byte* bytes, uint32_t length) {
  const XXH128_hash_t hash = XXH3_128bits(bytes, length);
  return {length, hash.low64, hash.high64};
}

}  // namespace

BlobLoader::BlobLoader(std::unique_ptr<Reader> reader, std::vector<std::string> file_names)
    : reader_(std::move(reader)), file_names_(std::move(file_names)) {}

void BlobLoader::load(LoadRequest request) {
  const uint64_t id = request.load;
  Load& load = loads_[id];
  load.request = std::move(request);
  load.slices_left = load.request.slices.size();
  load.hashes.resize(load.slices_left);
  std::byte* into = load.request.into;
  for (uint32_t i = 0; i < load.request.slices.size(); ++i) {
    reads_[next_tag_] = Read{id, i, into, 0, 1};
    queue_.push_back(next_tag_++);
    into += load.request.slices[i].length;
  }
  if (load.slices_left == 0) {
    ended_.push_back({id, Status::ok(), content_of({})});
    loads_.erase(id);
  }
  submit_queued();
}

void BlobLoader::pump(std::vector<LoadOutcome>& outcomes) {
  std::vector<ReadResult> results;
  reader_->reap(results);  // collected first, acted on after
  for (const ReadResult& result : results) complete(result.tag, result.result);
  submit_queued();
  outcomes.insert(outcomes.end(), ended_.begin(), ended_.end());
  ended_.clear();
}

void BlobLoader::submit_queued() {
  while (!queue_.empty()) {
    const uint64_t tag = queue_.front();
    Read& read = reads_.at(tag);
    Load& load = loads_.at(read.load);
    const LoadSlice& slice = load.request.slices[read.slice];
    if (!load.failure.is_ok()) {  // of a load that has failed already: not worth the disk's time
      queue_.pop_front();
      slice_ended(read, load.failure);
      reads_.erase(tag);
      continue;
    }
    const ReadOp op{slice.file, slice.offset + read.done, read.into + read.done, aligned(slice.length) - read.done, tag};
    if (!reader_->submit(op)) return;
    queue_.pop_front();
  }
}

void BlobLoader::complete(uint64_t tag, int64_t result) {
  Read& read = reads_.at(tag);
  const LoadSlice& slice = loads_.at(read.load).request.slices[read.slice];
  if (result == -EINTR || result == -EAGAIN) return queue_.push_front(tag);
  if (result < 0) return try_again(tag, read, io_error("cannot read " + where(slice), static_cast<int>(-result)));
  bytes_read_ += static_cast<uint64_t>(result);
  read.done += static_cast<uint32_t>(result);
  if (read.done < slice.length) {
    if (result == 0) return try_again(tag, read, io_error(where(slice) + " ends early: the pack is truncated"));
    read.done = static_cast<uint32_t>(read.done / kDiskAlign * kDiskAlign);  // O_DIRECT goes on at a multiple
    if (result < kDiskAlign) return try_again(tag, read, io_error("short reads of " + where(slice)));
    return queue_.push_front(tag);
  }
  const SliceHash hash = hash_of(read.into, slice.length);
  if (checksum_of(read.into, hash) != slice.xxh3_64)
    return try_again(tag, read, corrupt(where(slice) + " does not match its checksum: pack the model again"));
  loads_.at(read.load).hashes[read.slice] = hash;
  slice_ended(read, Status::ok());
  reads_.erase(tag);
}

void BlobLoader::try_again(uint64_t tag, Read& read, Status why) {
  if (read.attempts < kReadAttempts) {
    ++read.attempts, ++retries_;
    read.done = 0;
    return queue_.push_front(tag);
  }
  slice_ended(read, why);
  reads_.erase(tag);
}

void BlobLoader::slice_ended(const Read& read, const Status& status) {
  const auto found = loads_.find(read.load);
  Load& load = found->second;
  if (!status.is_ok() && load.failure.is_ok()) load.failure = status;
  if (--load.slices_left > 0) return;
  ended_.push_back({read.load, load.failure, load.failure.is_ok() ? content_of(load.hashes) : ContentHash{}});
  loads_.erase(found);
}

std::string BlobLoader::where(const LoadSlice& slice) const {
  const std::string& name = slice.file < file_names_.size() ? file_names_[slice.file] : "an unknown file";
  return name + " at offset " + std::to_string(slice.offset) + " (" + std::to_string(slice.length) + " bytes)";
}

}  // namespace moestro::store
