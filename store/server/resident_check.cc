#include "store/server/resident_check.h"

namespace moestro::store {

void ResidentCheck::add(uint32_t entry, uint64_t check, const Blob& blob, const std::byte* bytes,
                        const ContentHash& content) {
  if (const auto known = at_.find(entry); known != at_.end()) {
    if (known->second->check == check) return jobs_.splice(jobs_.begin(), jobs_, known->second);
    jobs_.erase(known->second);  // evicted and loaded since: the former outcome would count for nothing
  }
  jobs_.push_front({entry, check, &blob, bytes, content, 0, {}});
  at_[entry] = jobs_.begin();
}

void ResidentCheck::forget(uint32_t first, uint32_t count) {
  const auto gone = [=](uint32_t entry) { return entry >= first && entry - first < count; };
  std::erase_if(at_, [&](const auto& known) { return gone(known.first); });
  std::erase_if(jobs_, [&](const Job& job) { return gone(job.entry); });
}

std::optional<ResidentCheck::Outcome> ResidentCheck::step() {
  if (jobs_.empty()) return std::nullopt;
  Job& job = jobs_.front();
  bool right = true;
  if (job.slices_done < job.blob->slices.size()) {
    const Slice& slice = job.blob->slices[job.slices_done++];
    job.hashes.push_back(hash_of(job.bytes, slice.length));
    right = checksum_of(job.bytes, job.hashes.back()) == slice.xxh3_64;
    job.bytes += slice.length;
    bytes_checked_ += slice.length;
    if (right && job.slices_done < job.blob->slices.size()) return std::nullopt;
  }
  right = right && content_of(job.hashes) == job.content;
  const Outcome outcome{job.entry, job.check, right};
  at_.erase(job.entry);
  jobs_.pop_front();
  return outcome;
}

}  // namespace moestro::store
