// In idle time: are the bytes in memory still those that were read? One slice at a time, at a bounded pace; the drive
// is not touched unless they are not.

#include <algorithm>

#include "common/log.h"
#include "store/reader/slice_hash.h"
#include "store/server/store_server.h"

namespace moestro::store {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
namespace {
constexpr milliseconds kBusy{20};
}

milliseconds StoreServer::until_scrub(milliseconds otherwise) const {
  if (!scrubber_.on()) return otherwise;
  return std::clamp(std::chrono::ceil<milliseconds>(scrubber_.due() - steady_clock::now()), milliseconds(1), otherwise);
}

void StoreServer::scrub() {
  const auto now = steady_clock::now();
  if (!scrubber_.on() || now < scrubber_.due()) return;
  if (machine_->loading() > 0 || machine_->queued() > 0 || !check_.idle()) return scrubber_.busy(now + kBusy);
  Scrubber::Place& at = scrubber_.place;
  for (uint32_t i = 0; i < machine_->entries(); ++i) {  // the next one that is there
    if (at.entry >= machine_->entries()) at = {};
    if (at.slice != 0 && machine_->generation(at.entry) != at.generation) at = {at.entry, 0, 0, 0};
    if (catalogue_.has_entry(at.entry) && machine_->state(at.entry) == Residency::kResident) break;
    scrubber_.next_entry();
  }
  if (!catalogue_.has_entry(at.entry) || machine_->state(at.entry) != Residency::kResident)
    return scrubber_.busy(now + milliseconds(100));
  const Blob& blob = catalogue_.blob(at.entry);
  const Slice& slice = blob.slices[at.slice];
  const std::byte* bytes = files_->arena() + machine_->offset(at.entry) + at.offset_in_blob;
  const bool right = checksum_of(bytes, hash_of(bytes, slice.length)) == slice.xxh3_64;
  scrubber_.looked_at(slice.length, now);
  if (!right) {
    memory_changed_ = now;
    log::error("{} has changed in memory since it was read: reading it again; workers that use it are told",
               catalogue_.describe(at.entry));
    perform(machine_->found_wrong(at.entry));
    if (machine_->state(at.entry) == Residency::kBad)
      log::error("{}; requests that need it will fail", machine_->failure(at.entry).message());
    return scrubber_.next_entry();
  }
  at.generation = machine_->generation(at.entry);
  at.offset_in_blob += slice.length;
  if (++at.slice == blob.slices.size()) scrubber_.next_entry();
}

}  // namespace moestro::store
