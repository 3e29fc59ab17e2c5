#include "store/pack/slice_reader.h"

#include "common/expert_layout.h"
#include "common/xxh3.h"
#include "store/pack/manifest_check.h"
#include "store/pack/shards.h"

namespace moestro::store {

Result<SliceReader> SliceReader::open(const std::filesystem::path& dir, const Manifest& manifest) {
  SliceReader reader(manifest);
  for (const std::filesystem::path& path : data_files(dir, manifest)) {
    MOESTRO_ASSIGN_OR_RETURN(File file, File::open_for_reading(path));
    reader.files_.push_back(std::move(file));
  }
  return reader;
}

Status SliceReader::read_slice(uint32_t blob, const Slice& slice, std::span<std::byte> out) const {
  MOESTRO_RETURN_IF_ERROR(files_[slice.file].read_at(slice.offset, out));
  if (XXH3_64bits(out.data(), out.size()) == slice.xxh3_64) return Status::ok();
  return corrupt(files_[slice.file].path() + ": bytes " + std::to_string(slice.offset) + " to " +
                 std::to_string(slice.offset + slice.length) + " differ from their checksum (" +
                 blob_label(*manifest_, blob) + "); pack the model again");
}

Status SliceReader::read_blob(uint32_t blob, std::span<std::byte> out) const {
  for (const Slice& slice : manifest_->blobs[blob].slices) {
    MOESTRO_RETURN_IF_ERROR(read_slice(blob, slice, out.first(slice.length)));
    out = out.subspan(slice.length);
  }
  return Status::ok();
}

Status SliceReader::check_blob(uint32_t blob, const Look& look) const {
  std::vector<std::byte> buffer(kSliceBytesMax);
  uint64_t offset = 0;
  for (const Slice& slice : manifest_->blobs[blob].slices) {
    const auto bytes = std::span(buffer).first(slice.length);
    MOESTRO_RETURN_IF_ERROR(read_slice(blob, slice, bytes));
    if (look) MOESTRO_RETURN_IF_ERROR(look(offset, bytes));
    offset += slice.length;
  }
  return Status::ok();
}

}  // namespace moestro::store
