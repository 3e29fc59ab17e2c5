#include "store/server/resident_check.h"

#include <xxhash.h>

namespace moestro::store {

void ResidentCheck::add(uint32_t entry, uint64_t check, const Blob& blob, const std::byte* bytes, const ContentHash& content) {
  if (const auto known = at_.find(entry); known != at_.end()) {
    if (known->second->check == check) return jobs_.splice(jobs_.begin(), jobs_, known->second);
    jobs_.erase(known->second);  // evicted and loaded since: the former outcome would count for nothing
  }
  jobs_.push_front({entry, check, &blob, bytes, content, 0, {}});
  at_[entry] = jobs_.begin();
}

std::optional<ResidentCheck::Outcome> ResidentCheck::step() {
  if (jobs_.empty()) return std::nullopt;
  Job& job = jobs_.front();
  bool right = true;
  if (job.slices_done < job.blob->slices.size()) {
    const Slice& slice = job.blob->slices[job.slices_done++];
    const XXH128_hash_t hash = XXH3_128bits(job.bytes, slice.length);
    right = XXH3_64bits(job.bytes, slice.length) == slice.xxh3_64;
    job.hashes.insert(job.hashes.end(), {slice.length, hash.low64, hash.high64});
    job.bytes += slice.length;
    bytes_checked_ += slice.length;
    if (right && job.slices_done < job.blob->slices.size()) return std::nullopt;
  }
  if (right) {
    const XXH128_hash_t all = XXH3_128bits(job.hashes.data(), job.hashes.size() * sizeof(uint64_t));
    right = ContentHash{all.low64, all.high64} == job.content;
  }
  const Outcome outcome{job.entry, job.check, right};
  at_.erase(job.entry);
  jobs_.pop_front();
  return outcome;
}

}  // namespace moestro::store
