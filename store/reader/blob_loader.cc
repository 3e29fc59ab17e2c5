#include "store/reader/blob_loader.h"

#include <xxhash.h>

#include <cerrno>
#include <utility>

#include "common/expert_layout.h"

namespace moestro::store {
namespace {

uint32_t aligned(uint32_t length) { return static_cast<uint32_t>(round_up(length, kDiskAlign)); }

uint64_t content_of(const std::vector<LoadSlice>& slices) {
  std::vector<uint64_t> words;
  for (const LoadSlice& slice : slices) words.insert(words.end(), {slice.length, slice.xxh3_64});
  return XXH3_64bits(words.data(), words.size() * sizeof(uint64_t));
}

}  // namespace

BlobLoader::BlobLoader(std::unique_ptr<Reader> reader, std::vector<std::string> file_names)
    : reader_(std::move(reader)), file_names_(std::move(file_names)) {}

void BlobLoader::load(LoadRequest request) {
  const uint64_t id = request.load;
  Load& load = loads_[id];
  load.request = std::move(request);
  load.slices_left = load.request.slices.size();
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
  if (XXH3_64bits(read.into, slice.length) != slice.xxh3_64)
    return try_again(tag, read, corrupt(where(slice) + " does not match its checksum: pack the model again"));
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
  ended_.push_back({read.load, load.failure, content_of(load.request.slices)});
  loads_.erase(found);
}

std::string BlobLoader::where(const LoadSlice& slice) const {
  const std::string& name = slice.file < file_names_.size() ? file_names_[slice.file] : "an unknown file";
  return name + " at offset " + std::to_string(slice.offset) + " (" + std::to_string(slice.length) + " bytes)";
}

}  // namespace moestro::store
