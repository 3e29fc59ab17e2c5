#include "store/pack/blob_writer.h"

#include <algorithm>
#include <new>
#include <numeric>
#include <system_error>
#include <thread>

#include "common/xxh3.h"

namespace moestro::store {

BlobWriter::BlobWriter(const Checkpoint& checkpoint, PackPlan& plan, const std::vector<File>& files, Journal& journal,
                       const PackOptions& options, const PackObserver& observer)
    : checkpoint_(checkpoint), plan_(plan), files_(files), options_(options), observer_(observer), journal_(journal) {
  for (uint32_t b = 0; b < plan_.manifest.blobs.size(); ++b) {
    Blob& blob = plan_.manifest.blobs[b];
    const auto known = journal_.finished().find(b);
    if (known == journal_.finished().end()) {
      todo_.push_back(b);
      continue;
    }
    for (size_t i = 0; i < blob.slices.size(); ++i) blob.slices[i].xxh3_64 = known->second[i];
    known_.push_back(b);
    resumed_bytes_ += blob.length;
  }
}

void BlobWriter::in_threads(size_t items, const std::function<void()>& work) {
  next_ = 0;
  threads_ = std::clamp<unsigned>(options_.jobs, 1, static_cast<unsigned>(std::max<size_t>(1, items)));
  std::vector<std::jthread> helpers;
  try {
    for (unsigned i = 1; i < threads_; ++i) helpers.emplace_back(work);
  } catch (const std::system_error&) {
    // A limit on threads: those that started, this one at least, do the work.
  }
  work();
}

void BlobWriter::check_resumed() {
  in_threads(known_.size(), [this] { check_some(); });
}

void BlobWriter::check_some() {
  std::vector<std::byte> buffer;
  for (size_t i = next_++; i < known_.size() && !stop_; i = next_++) {
    if (check_blob(known_[i], buffer)) continue;
    const std::lock_guard lock(mutex_);
    ++damaged_;
    todo_.push_back(known_[i]);
    resumed_bytes_ -= plan_.manifest.blobs[known_[i]].length;
  }
}

/// What cannot be read is not as it was written: a drive may have a place for it elsewhere.
bool BlobWriter::check_blob(uint32_t blob, std::vector<std::byte>& buffer) const {
  return std::ranges::all_of(plan_.manifest.blobs[blob].slices, [&](const Slice& slice) {
    buffer.resize(slice.length);
    return files_[slice.file].read_at(slice.offset, buffer).is_ok() &&
           XXH3_64bits(buffer.data(), buffer.size()) == slice.xxh3_64;
  });
}

Status BlobWriter::write_all() {
  done_bytes_ = resumed_bytes_;
  if (observer_.progress) observer_.progress(done_bytes_, plan_.total_bytes);
  // All precisions of an expert one after another: its source is then read from the disk once.
  std::ranges::sort(todo_, {}, [this](uint32_t b) { return std::pair(plan_.origins[b].expert, b); });
  build_each(todo_, [this](BlobBuilder& builder, uint32_t blob) { return write_blob(builder, blob); });
  const std::lock_guard lock(mutex_);
  if (error_.is_ok()) error_ = commit_locked();
  return error_;
}

void BlobWriter::fail(Status error) {
  const std::lock_guard lock(mutex_);
  if (error_.is_ok()) error_ = std::move(error);
  stop_ = true;
}

void BlobWriter::build_each(const std::vector<uint32_t>& blobs,
                            const std::function<Status(BlobBuilder&, uint32_t)>& with) {
  in_threads(blobs.size(), [&] {
    try {
      BlobBuilder builder(checkpoint_, plan_, options_.scratch_bytes_max / threads_);
      for (size_t i = next_++; i < blobs.size() && !stop_; i = next_++)
        if (Status status = with(builder, blobs[i]); !status.is_ok()) fail(std::move(status));
    } catch (const std::bad_alloc&) {
      fail(exhausted("not enough memory to pack with " + std::to_string(threads_) + " jobs; use fewer with --jobs"));
    }
  });
}

Status BlobWriter::write_blob(BlobBuilder& builder, uint32_t index) {
  Blob& blob = plan_.manifest.blobs[index];
  Journal::Hashes hashes;
  const auto write_slices = [&](std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      if (stop_) return cancelled("another job failed");
      Slice& slice = blob.slices[hashes.size()];
      slice.xxh3_64 = XXH3_64bits(bytes.data(), slice.length);
      MOESTRO_RETURN_IF_ERROR(files_[slice.file].write_at(slice.offset, bytes.first(slice.length)));
      files_[slice.file].start_writing_back(slice.offset, slice.length);
      hashes.push_back(slice.xxh3_64);
      bytes = bytes.subspan(slice.length);
    }
    return Status::ok();
  };
  MOESTRO_RETURN_IF_ERROR(builder.build(index, write_slices));
  MOESTRO_CHECK(hashes.size() == blob.slices.size(), "a blob is built whole");
  const std::lock_guard lock(mutex_);
  pending_.emplace(index, std::move(hashes));
  pending_bytes_ += blob.length;
  done_bytes_ += blob.length;
  if (observer_.progress) observer_.progress(done_bytes_, plan_.total_bytes);
  return pending_bytes_ >= options_.commit_bytes ? commit_locked() : Status::ok();
}

Status BlobWriter::compare_again() {
  std::vector<uint32_t> all(plan_.manifest.blobs.size());
  std::iota(all.begin(), all.end(), 0);
  build_each(all, [this](BlobBuilder& builder, uint32_t blob) { return compare_blob(builder, blob); });
  const std::lock_guard lock(mutex_);
  return error_;
}

Status BlobWriter::compare_blob(BlobBuilder& builder, uint32_t index) const {
  auto slice = plan_.manifest.blobs[index].slices.begin();
  return builder.build(index, [&slice](std::span<const std::byte> bytes) {
    for (; !bytes.empty(); bytes = bytes.subspan(slice++->length))
      if (XXH3_64bits(bytes.data(), slice->length) != slice->xxh3_64) return corrupt("other bytes than before");
    return Status::ok();
  });
}

Status BlobWriter::commit_locked() {
  if (pending_.empty()) return Status::ok();
  for (const File& file : files_) MOESTRO_RETURN_IF_ERROR(file.sync());
  MOESTRO_RETURN_IF_ERROR(journal_.append(pending_));
  pending_.clear();
  pending_bytes_ = 0;
  return Status::ok();
}

}  // namespace moestro::store
