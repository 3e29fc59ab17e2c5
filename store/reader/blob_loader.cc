#include "store/reader/blob_loader.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace moestro::store {
Result<std::unique_ptr<BlobLoader>> BlobLoader::start(std::vector<ReadLane> lanes, std::vector<uint32_t> lane_of_file) {
  std::unique_ptr<BlobLoader> loader(new BlobLoader(std::move(lane_of_file)));
  loader->done_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!loader->done_) return io_error("eventfd", errno);
  for (ReadLane& lane : lanes) {
    MOESTRO_ASSIGN_OR_RETURN(auto thread, LaneThread::start(std::move(lane), loader->done_.get()));
    loader->lanes_.push_back(std::move(thread));
  }
  return loader;
}

void BlobLoader::load(LoadRequest request) {
  std::vector<std::vector<LaneSlice>> parts(lanes_.size());
  std::byte* into = request.into;
  for (uint32_t i = 0; i < request.slices.size(); ++i) {
    const LoadSlice& slice = request.slices[i];
    parts[lane_of_file_[slice.file]].push_back({slice, into, i, slice.length, {}});
    into += slice.length;
  }
  Load load;
  for (uint32_t lane = 0; lane < parts.size(); ++lane) {
    if (parts[lane].empty()) continue;
    lanes_[lane]->add(request.load, request.read_class, std::move(parts[lane]));
    load.lanes.push_back(lane);
  }
  load.lanes_left = load.lanes.size();
  load.hashes.resize(request.slices.size());
  if (load.lanes_left == 0) return ended_.push_back({request.load, Status::ok(), content_of({})});
  const uint64_t id = request.load;
  load.request = std::move(request);
  loads_.emplace(id, std::move(load));
}

void BlobLoader::promote(uint64_t id) {
  if (const auto found = loads_.find(id); found != loads_.end())
    for (const uint32_t lane : found->second.lanes) lanes_[lane]->promote(id);
}

void BlobLoader::cancel(uint64_t id) {
  if (const auto found = loads_.find(id); found != loads_.end())
    for (const uint32_t lane : found->second.lanes) lanes_[lane]->cancel(id);
}

void BlobLoader::pump(std::vector<LoadOutcome>& outcomes) {
  uint64_t rung = 0;
  [[maybe_unused]] const ssize_t cleared = ::read(done_.get(), &rung, sizeof rung);
  std::vector<LaneOutcome> parts;
  for (const auto& lane : lanes_) lane->take(parts);
  for (LaneOutcome& part : parts) part_ended(part, outcomes);
  outcomes.insert(outcomes.end(), std::make_move_iterator(ended_.begin()), std::make_move_iterator(ended_.end()));
  ended_.clear();
}

void BlobLoader::part_ended(LaneOutcome& part, std::vector<LoadOutcome>& outcomes) {
  const auto found = loads_.find(part.load);
  if (found == loads_.end()) return;
  Load& load = found->second;
  if (!part.status.is_ok() && load.failure.is_ok()) {
    load.failure = std::move(part.status);
    cancel(part.load);  // the other drives need not go on
  }
  for (const LaneSlice& slice : part.slices) load.hashes[slice.index] = slice.hash;
  if (--load.lanes_left > 0) return;
  outcomes.push_back({part.load, load.failure, load.failure.is_ok() ? content_of(load.hashes) : ContentHash{}});
  loads_.erase(found);
}

void BlobLoader::set_files(uint32_t first, const std::vector<int>& fds, const std::vector<std::string>& names,
                           const std::vector<uint32_t>& lanes) {
  for (const auto& lane : lanes_) lane->set_files(first, fds, names);
  if (lane_of_file_.size() < first + lanes.size()) lane_of_file_.resize(first + lanes.size());
  std::ranges::copy(lanes, lane_of_file_.begin() + first);
}

BlobLoader::Counters BlobLoader::counters() const {
  Counters sum;
  for (const auto& lane : lanes_) {
    const LaneCounters counters = lane->counters();
    sum.bytes_read += counters.bytes_read, sum.retries += counters.retries;
  }
  return sum;
}

}  // namespace moestro::store
