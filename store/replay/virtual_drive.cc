#include "store/replay/virtual_drive.h"

#include <algorithm>
#include <utility>

namespace moestro::store {

VirtualDrive::Read* VirtualDrive::find(uint64_t load) {
  const auto found = std::ranges::find(reads_, load, &Read::load);
  return found == reads_.end() ? nullptr : &*found;
}

void VirtualDrive::promote(uint64_t load) {
  if (Read* read = find(load)) read->demand = true;
}

void VirtualDrive::cancel(uint64_t load) {
  if (Read* read = find(load)) read->cancelled = !read->demand;
}

VirtualDrive::Ended VirtualDrive::end(uint64_t load) {
  const auto read = std::ranges::find(reads_, load, &Read::load);
  const Ended ended{load, read->entry, read->done, read->done == read_bytes_};
  reads_.erase(read);
  return ended;
}

std::optional<VirtualDrive::Ended> VirtualDrive::take_cancelled() {
  const auto cancelled =
      std::ranges::find_if(reads_, [this](const Read& read) { return read.cancelled && read.load != reading_; });
  if (cancelled == reads_.end()) return std::nullopt;
  return end(cancelled->load);
}

void VirtualDrive::poke(Nanos now) {
  if (reading_ || reads_.empty()) return;
  const auto demand = std::ranges::find_if(reads_, &Read::demand);
  const Read& next = demand != reads_.end() ? *demand : reads_.front();
  const double bytes = static_cast<double>(std::min(chunk_bytes_, read_bytes_ - next.done));
  took_ = Nanos(static_cast<int64_t>(bytes / speed_.bytes_per_s * 1e9)) + (next.done == 0 ? speed_.latency : Nanos{0});
  reading_ = next.load, ends_ = now + took_;
}

std::optional<VirtualDrive::Ended> VirtualDrive::finish() {
  const uint64_t load = *std::exchange(reading_, std::nullopt);
  Read& read = *find(load);
  const uint64_t bytes = std::min(chunk_bytes_, read_bytes_ - read.done);
  read.done += bytes;
  bytes_ += bytes, busy_ += took_;
  if (read.done < read_bytes_ && !read.cancelled) return std::nullopt;
  return end(load);
}

}  // namespace moestro::store
