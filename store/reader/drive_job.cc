#include "store/reader/drive_job.h"

#include <algorithm>

#include "common/expert_layout.h"

namespace moestro::store {
namespace {

bool follows(const DriveRead& read, const DriveSlice& slice, uint32_t chunk_bytes) {
  return slice.on_disk.file == read.file && slice.on_disk.offset == read.offset + read.length &&
         slice.into == read.into + read.length && read.length % kDiskAlign == 0 &&
         read.length + slice.on_disk.length <= chunk_bytes;
}

}  // namespace

DriveRead read_of_slice(const DriveJob& job, uint32_t index, uint32_t attempts) {
  const DriveSlice& slice = job.slices[index];
  DriveRead read;
  read.first_slice = index, read.slices = 1;
  read.file = slice.on_disk.file, read.offset = slice.on_disk.offset;
  read.into = slice.into, read.length = slice.on_disk.length;
  read.attempts = attempts;
  return read;
}

void cut_into_reads(DriveJob& job, uint32_t chunk_bytes) {
  job.reads.reserve(job.slices.size());
  bool open = false;  // the last read may grow
  for (uint32_t i = 0; i < job.slices.size(); ++i) {
    const DriveSlice& slice = job.slices[i];
    if (open && follows(job.reads.back(), slice, chunk_bytes)) {
      job.reads.back().length += slice.on_disk.length;
      ++job.reads.back().slices;
      continue;
    }
    open = slice.on_disk.length <= chunk_bytes;
    for (uint32_t at = 0; at < slice.on_disk.length; at += chunk_bytes) {
      DriveRead read = read_of_slice(job, i, 1);
      read.offset += at, read.into += at;
      read.length = std::min(chunk_bytes, slice.on_disk.length - at);
      job.reads.push_back(read);
    }
  }
}

}  // namespace moestro::store
