#include "store/resident_source.h"

#include <sys/mman.h>

#include <cerrno>

#include "store/pack/slice_reader.h"

namespace moestro::store {

Result<std::unique_ptr<ResidentSource>> ResidentSource::open(const std::filesystem::path& pack) {
  MOESTRO_ASSIGN_OR_RETURN(Manifest manifest, open_pack(pack));
  std::unique_ptr<ResidentSource> source(new ResidentSource(std::move(manifest)));
  MOESTRO_RETURN_IF_ERROR(source->load(pack));
  return source;
}

Status ResidentSource::load(const std::filesystem::path& pack) {
  for (const Blob& blob : manifest_.blobs) {
    offsets_.push_back(mapped_bytes_);
    mapped_bytes_ += blob.length;  // a multiple of 4 KiB, so that every blob starts on a page
  }
  void* mapping = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED)
    return exhausted(pack.string() + ": no memory for its " + std::to_string(mapped_bytes_) + " bytes");
  base_ = static_cast<std::byte*>(mapping);
  madvise(mapping, mapped_bytes_, MADV_HUGEPAGE);  // fewer TLB misses where the kernel has them; nothing lost where not
  pinned_.assign(manifest_.blobs.size(), false);
  MOESTRO_ASSIGN_OR_RETURN(const SliceReader reader, SliceReader::open(pack, manifest_));
  for (uint32_t b = 0; b < manifest_.blobs.size(); ++b)
    MOESTRO_RETURN_IF_ERROR(reader.read_blob(b, {base_ + offsets_[b], manifest_.blobs[b].length}));
  return Status::ok();
}

ResidentSource::~ResidentSource() {
  if (base_ != nullptr) munmap(base_, mapped_bytes_);
}

Status ResidentSource::forbid_writes() {
  if (mprotect(base_, mapped_bytes_, PROT_READ) != 0)
    return io_error("cannot protect a pack's memory from writes", errno);
  writable_ = false;
  return Status::ok();
}

std::optional<Lease> ResidentSource::try_pin(uint32_t blob, UseWeight) {
  MOESTRO_CHECK(blob < pinned_.size(), "a blob of this pack");
  MOESTRO_CHECK(!pinned_[blob], "one lease per blob at a time");
  pinned_[blob] = true;
  ++counters_.hits;
  return Lease(this, blob, base_ + offsets_[blob], manifest_.blobs[blob].length);
}

void ResidentSource::unpin(uint32_t blob) { pinned_[blob] = false; }

Status ResidentSource::fetch(std::span<const uint32_t>, WantedBy) {
  return unsupported("ResidentSource::fetch: every blob is resident; use try_pin");
}

Result<Lease> ResidentSource::next_arrival(std::chrono::milliseconds) {
  return unsupported("ResidentSource::next_arrival: nothing is ever fetched");
}

}  // namespace moestro::store
