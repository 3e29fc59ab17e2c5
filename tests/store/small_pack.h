#pragma once
// A small pack, and the bytes that each of its blobs must have.

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "store/client/store_client.h"
#include "store/pack/manifest.h"
#include "store/pack/packer.h"
#include "store/pack/slice_reader.h"
#include "tests/pack/synthetic_checkpoint.h"
#include "tests/store/memory_directory.h"

namespace moestro::store {

/// A pack of 2 MoE layers of `experts` experts each, with the bytes that every blob must have.
struct SmallPack {
  explicit SmallPack(int64_t experts = 8) : SmallPack(testing::CheckpointOptions{.experts = experts}) {}
  explicit SmallPack(const testing::CheckpointOptions& checkpoint) {
    testing::write_checkpoint(dir / "src", checkpoint);
    const auto packed = pack_checkpoint(dir / "src", dir / "pack", {}, {});
    EXPECT_TRUE(packed) << packed.status().message();
    manifest = *open_pack(dir / "pack");
    const auto reader = SliceReader::open(dir / "pack", manifest);
    for (uint32_t blob = 0; blob < manifest.blobs.size(); ++blob) {
      contents.emplace_back(manifest.blobs[blob].length);
      EXPECT_TRUE(reader && reader->read_blob(blob, contents.back()).is_ok());
      if (manifest.blobs[blob].kind == BlobKind::kDense) dense_bytes += manifest.blobs[blob].length;
      else experts_list.push_back(blob), expert_bytes = manifest.blobs[blob].length;
    }
  }
  /// Arena bytes for the dense weights and `slots` experts.
  uint64_t dram(uint32_t slots) const { return dense_bytes + slots * expert_bytes; }
  bool holds(const Lease& lease) const {
    const auto& wanted = contents[lease.blob()];
    return lease.length() == wanted.size() && std::memcmp(lease.data(), wanted.data(), wanted.size()) == 0;
  }

  testing::TemporaryDirectory dir;
  testing::MemoryDirectory arena{dir / "arena"};  ///< for a store's: on a disk, pages that are written cost far more
  Manifest manifest;
  std::vector<std::vector<std::byte>> contents;
  std::vector<uint32_t> experts_list;
  uint64_t dense_bytes = 0, expert_bytes = 0;
};

}  // namespace moestro::store
