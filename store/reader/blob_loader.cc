#include "store/reader/blob_loader.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace moestro::store {
Result<std::unique_ptr<BlobLoader>> BlobLoader::start(std::vector<DriveReader> drives,
                                                      std::vector<uint32_t> drive_of_file) {
  std::unique_ptr<BlobLoader> loader(new BlobLoader(std::move(drive_of_file)));
  loader->done_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!loader->done_) return io_error("eventfd", errno);
  for (DriveReader& drive : drives) {
    MOESTRO_ASSIGN_OR_RETURN(auto thread, DriveThread::start(std::move(drive), loader->done_.get()));
    loader->drives_.push_back(std::move(thread));
  }
  return loader;
}

void BlobLoader::load(LoadRequest request) {
  std::vector<std::vector<DriveSlice>> parts(drives_.size());
  std::byte* into = request.into;
  for (uint32_t i = 0; i < request.slices.size(); ++i) {
    const LoadSlice& slice = request.slices[i];
    parts[drive_of_file_[slice.file]].push_back({slice, into, i, slice.length, {}});
    into += slice.length;
  }
  Load load;
  for (uint32_t drive = 0; drive < parts.size(); ++drive) {
    if (parts[drive].empty()) continue;
    drives_[drive]->add(request.load, request.read_class, std::move(parts[drive]));
    load.drives.push_back(drive);
  }
  load.drives_left = load.drives.size();
  load.hashes.resize(request.slices.size());
  if (load.drives_left == 0) return ended_.push_back({request.load, Status::ok(), content_of({})});
  const uint64_t id = request.load;
  load.request = std::move(request);
  loads_.emplace(id, std::move(load));
}

void BlobLoader::promote(uint64_t id) {
  if (const auto found = loads_.find(id); found != loads_.end())
    for (const uint32_t drive : found->second.drives) drives_[drive]->promote(id);
}

void BlobLoader::cancel(uint64_t id) {
  if (const auto found = loads_.find(id); found != loads_.end())
    for (const uint32_t drive : found->second.drives) drives_[drive]->cancel(id);
}

void BlobLoader::pump(std::vector<LoadOutcome>& outcomes) {
  uint64_t rung = 0;
  [[maybe_unused]] const ssize_t cleared = ::read(done_.get(), &rung, sizeof rung);
  std::vector<DriveOutcome> parts;
  for (const auto& drive : drives_) drive->take(parts);
  for (DriveOutcome& part : parts) part_ended(part, outcomes);
  outcomes.insert(outcomes.end(), std::make_move_iterator(ended_.begin()), std::make_move_iterator(ended_.end()));
  ended_.clear();
}

void BlobLoader::part_ended(DriveOutcome& part, std::vector<LoadOutcome>& outcomes) {
  const auto found = loads_.find(part.load);
  if (found == loads_.end()) return;
  Load& load = found->second;
  if (!part.status.is_ok() && load.failure.is_ok()) {
    load.failure = std::move(part.status);
    cancel(part.load);  // the other drives need not go on
  }
  for (const DriveSlice& slice : part.slices) load.hashes[slice.index] = slice.hash;
  load.carried += part.carried;
  if (--load.drives_left > 0) return;
  outcomes.push_back(
      {part.load, load.failure, load.failure.is_ok() ? content_of(load.hashes) : ContentHash{}, load.carried});
  loads_.erase(found);
}

void BlobLoader::set_files(uint32_t first, const std::vector<int>& fds, const std::vector<std::string>& names,
                           const std::vector<uint32_t>& drives) {
  for (const auto& drive : drives_) drive->set_files(first, fds, names);
  if (drive_of_file_.size() < first + drives.size()) drive_of_file_.resize(first + drives.size());
  std::ranges::copy(drives, drive_of_file_.begin() + first);
}

BlobLoader::Counters BlobLoader::counters() const {
  Counters sum;
  for (const auto& drive : drives_) {
    const DriveCounters counters = drive->counters();
    sum.bytes_read += counters.bytes_read, sum.retries += counters.retries;
  }
  return sum;
}

}  // namespace moestro::store
