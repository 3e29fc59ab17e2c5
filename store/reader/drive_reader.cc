#include "store/reader/drive_reader.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "common/expert_layout.h"

namespace moestro::store {
namespace {
uint32_t aligned(uint32_t length) { return static_cast<uint32_t>(round_up(length, kDiskAlign)); }
size_t index_of(ReadClass read_class) { return static_cast<size_t>(read_class); }
}  // namespace

DriveReader::DriveReader(std::unique_ptr<Reader> reader, std::vector<std::string> file_names, DriveOptions options)
    : reader_(std::move(reader)), file_names_(std::move(file_names)), options_(options) {}

void DriveReader::add(uint64_t load, ReadClass read_class, std::vector<DriveSlice> slices) {
  DriveJob& job = jobs_[load];
  job.load = load, job.read_class = read_class;
  job.slices = std::move(slices);
  job.slices_left = job.slices.size();
  for (DriveSlice& slice : job.slices) slice.left = slice.on_disk.length;
  cut_into_reads(job, options_.chunk_bytes);
  if (job.has_reads()) queues_[index_of(read_class)].push_back(&job);
  else end_if_done(job);
}

void DriveReader::promote(uint64_t load) {
  const auto found = jobs_.find(load);
  if (found == jobs_.end() || found->second.read_class == ReadClass::kDemand) return;
  DriveJob& job = found->second;
  std::erase(queues_[index_of(std::exchange(job.read_class, ReadClass::kDemand))], &job);
  demanded_in_flight_ += job.in_flight;
  if (job.has_reads()) queues_[0].push_back(&job);
}

void DriveReader::cancel(uint64_t load) {
  const auto found = jobs_.find(load);
  if (found == jobs_.end() || !found->second.has_reads()) return;  // the rest is under way: it will be whole
  DriveJob& job = found->second;
  if (job.failure.is_ok()) job.failure = cancelled("nobody wants it any more");
  end_if_done(job);
}

Status DriveReader::set_files(uint32_t first, std::span<const int> fds, std::span<const std::string> names) {
  if (file_names_.size() < first + names.size()) file_names_.resize(first + names.size());
  std::ranges::copy(names, file_names_.begin() + first);
  MOESTRO_RETURN_IF_ERROR(reader_->set_files(first, fds));
  return Status::ok();
}

void DriveReader::step(TimePoint now, std::vector<DriveOutcome>& ended) {
  step_at_.reset();
  results_.clear();
  reader_->reap(results_);  // collected first, acted on after
  for (const ReadResult& result : results_) complete(result, now);
  submit(now);  // the drive goes on while a checksum is computed
  if (!there_.empty()) {
    const auto urgent =
        std::ranges::min_element(there_, {}, [](const Flight& flight) { return flight.job->read_class; });
    const Flight next = *urgent;
    there_.erase(urgent);
    arrived(*next.job, next.read);
    if (there_.empty()) submit(now);
  }
  ended.insert(ended.end(), std::make_move_iterator(ended_.begin()), std::make_move_iterator(ended_.end()));
  ended_.clear();
}

/// The job whose read goes next: the most urgent, and within a class the oldest.
DriveJob* DriveReader::next_job(TimePoint now) {
  if (refused_until_ && now < *refused_until_) return nullptr;
  for (const auto& queue : queues_)
    if (!queue.empty()) return has_room_for(*queue.front()) ? queue.front() : nullptr;
  return nullptr;
}

bool DriveReader::has_room_for(const DriveJob& job) const {
  if (job.read_class != ReadClass::kDemand)
    return reader_->in_flight() < std::min(options_.depth, options_.background_depth);
  const bool alone = demanded_in_flight_ == job.in_flight;
  return demanded_in_flight_ < (alone ? std::max(options_.depth, options_.load_depth) : options_.depth) &&
         !leaves_too_few();
}

/// A drive may report all that is under way at once, when its queue is empty (virtio drives do). What comes last is
/// verified while it rests; so as few reads are kept back for the end as last as long as the rest is being verified.
/// One that reports each read by itself has as many as it wants to the end.
bool DriveReader::leaves_too_few() const {
  size_t left = 0;
  for (const DriveJob* job : queues_[index_of(ReadClass::kDemand)])
    left += job->again.size() + job->reads.size() - job->next_read;
  return demanded_in_flight_ >= std::max<size_t>(options_.depth, options_.verified_per_read * left);
}

void DriveReader::submit(TimePoint now) {
  bool taken = true;
  while (DriveJob* job = taken ? next_job(now) : nullptr) {
    taken = submit_one(*job);
    if (taken && !job->has_reads()) std::erase(queues_[index_of(job->read_class)], job);
  }
  const bool waits = std::ranges::any_of(queues_, [](const auto& queue) { return !queue.empty(); });
  // Nothing under way will wake us, or the kernel keeps back what it was given.
  if ((waits && reader_->in_flight() == 0) || reader_->unsent()) step_at_ = now + kRefusedPause;
}

bool DriveReader::submit_one(DriveJob& job) {
  const bool again = !job.again.empty();
  if (free_flights_.empty()) {
    free_flights_.push_back(static_cast<uint32_t>(flights_.size()));
    flights_.emplace_back();
  }
  const uint32_t tag = free_flights_.back();
  const DriveRead& read = again ? job.again.back() : job.reads[job.next_read];
  if (!reader_->submit(
          {read.file, read.offset + read.done, read.into + read.done, aligned(read.length) - read.done, tag}))
    return false;
  free_flights_.pop_back();
  flights_[tag] = {&job, read};
  if (again) job.again.pop_back();
  else ++job.next_read;
  ++job.in_flight;
  if (job.read_class == ReadClass::kDemand) ++demanded_in_flight_;
  ++counters_.reads;
  return true;
}

void DriveReader::complete(const ReadResult& result, TimePoint now) {
  const auto tag = static_cast<uint32_t>(result.tag);
  DriveJob& job = *flights_[tag].job;
  DriveRead read = flights_[tag].read;
  free_flights_.push_back(tag);
  --job.in_flight;
  if (job.read_class == ReadClass::kDemand) --demanded_in_flight_;
  if (result.result > 0)
    counters_.bytes_read += static_cast<uint64_t>(result.result), job.carried += static_cast<uint64_t>(result.result);
  if (!job.failure.is_ok()) return end_if_done(job);
  const bool no_room = result.result == -EAGAIN || result.result == -ENOMEM;
  if ((no_room || result.result == -EINTR) && ++read.refusals < kRefusalsMax) {
    if (no_room) refused_until_ = now + kRefusedPause;
    return read_again(job, read);
  }
  if (result.result < 0)
    return failed(
        job, read,
        io_error("cannot read " + where(read.file, read.offset, read.length), static_cast<int>(-result.result)));
  const uint64_t there = read.done + static_cast<uint64_t>(result.result);
  if (there >= read.length) {
    ++job.unverified;
    return there_.push_back({&job, read});
  }
  if (result.result == 0)
    return failed(job, read,
                  io_error(where(read.file, read.offset, read.length) + " ends early: the pack is truncated"));
  read.done = static_cast<uint32_t>(there / kDiskAlign * kDiskAlign);  // O_DIRECT goes on at a multiple
  if (result.result < kDiskAlign)
    return failed(job, read, io_error("short reads of " + where(read.file, read.offset, read.length)));
  read_again(job, read);
}

void DriveReader::read_again(DriveJob& job, DriveRead read) {
  if (!job.has_reads()) queues_[index_of(job.read_class)].push_front(&job);
  job.again.push_back(read);
}

void DriveReader::failed(DriveJob& job, DriveRead read, const Status& why) {
  if (read.attempts < kReadAttempts) {
    ++read.attempts, ++counters_.retries;
    retried_for_ = why.message();
    read.done = 0;
    return read_again(job, read);
  }
  job.failure = why;
  end_if_done(job);
}

void DriveReader::arrived(DriveJob& job, const DriveRead& read) {
  --job.unverified;
  if (!job.failure.is_ok()) return end_if_done(job);
  if (read.slices == 1) {
    DriveSlice& slice = job.slices[read.first_slice];
    slice.left -= read.length;
    if (slice.left == 0) verify(job, read.first_slice, read.attempts);
  } else {
    for (uint32_t i = 0; i < read.slices && job.failure.is_ok(); ++i) {
      job.slices[read.first_slice + i].left = 0;
      verify(job, read.first_slice + i, read.attempts);
    }
  }
  end_if_done(job);
}

void DriveReader::verify(DriveJob& job, uint32_t index, uint32_t attempts) {
  DriveSlice& slice = job.slices[index];
  slice.hash = hash_of(slice.into, slice.on_disk.length);
  if (checksum_of(slice.into, slice.hash) == slice.on_disk.xxh3_64) {
    --job.slices_left;
    return;
  }
  slice.left = slice.on_disk.length;
  const std::string mismatch =
      where(slice.on_disk.file, slice.on_disk.offset, slice.on_disk.length) + " does not match its checksum";
  if (attempts < kReadAttempts) {
    ++counters_.retries;
    retried_for_ = mismatch;
    return read_again(job, read_of_slice(job, index, attempts + 1));
  }
  job.failure = corrupt(mismatch + ": pack the model again");
}

void DriveReader::end_if_done(DriveJob& job) {
  if (!job.failure.is_ok()) {
    std::erase(queues_[index_of(job.read_class)], &job);  // the rest is not worth the drive's time
    if (job.in_flight + job.unverified > 0) return;
  } else if (job.slices_left > 0) {
    return;
  }
  ended_.push_back({job.load, job.failure, std::move(job.slices), job.carried});
  jobs_.erase(job.load);
}

std::string DriveReader::where(uint32_t file, uint64_t offset, uint64_t length) const {
  const std::string& name = file < file_names_.size() ? file_names_[file] : "an unknown file";
  return name + " at offset " + std::to_string(offset) + " (" + std::to_string(length) + " bytes)";
}

}  // namespace moestro::store
