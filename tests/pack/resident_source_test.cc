#include "store/resident_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "store/pack/packer.h"
#include "store/pack/slice_reader.h"
#include "tests/pack/synthetic_checkpoint.h"

namespace moestro::store {
namespace {

TEST(ResidentSource, HoldsEveryBlob) {
  const testing::TemporaryDirectory dir;
  testing::write_checkpoint(dir / "src", {});
  ASSERT_TRUE(pack_checkpoint(dir / "src", dir / "pack", {.experts = {DType::kF32, DType::kInt8}}, {}));
  auto opened = ResidentSource::open(dir / "pack");
  ASSERT_TRUE(opened) << opened.status().message();
  ResidentSource& source = **opened;
  const auto reader = SliceReader::open(dir / "pack", source.manifest());
  for (uint32_t b = 0; b < source.manifest().blobs.size(); ++b) {
    const auto lease = source.try_pin(b);
    ASSERT_TRUE(lease);
    EXPECT_EQ(lease->blob(), b);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(lease->data()) % 4096, 0u);
    std::vector<std::byte> bytes(source.manifest().blobs[b].length);
    ASSERT_TRUE(reader->read_blob(b, bytes).is_ok());
    ASSERT_EQ(lease->length(), bytes.size());
    EXPECT_EQ(std::memcmp(lease->data(), bytes.data(), bytes.size()), 0);
  }
  EXPECT_EQ(source.counters().hits, source.manifest().blobs.size());
}

TEST(ResidentSource, RefusesFetchesByName) {
  const testing::TemporaryDirectory dir;
  testing::write_checkpoint(dir / "src", {});
  ASSERT_TRUE(pack_checkpoint(dir / "src", dir / "pack", {}, {}));
  auto source = ResidentSource::open(dir / "pack").value();
  const uint32_t blob = 0;
  EXPECT_THAT(source->fetch({&blob, 1}, {}).message(), ::testing::HasSubstr("ResidentSource::fetch"));
  EXPECT_EQ(source->next_arrival(std::chrono::milliseconds(0)).status().code(), Code::kUnsupported);
}

TEST(ResidentSource, SaysWhatIsNoPack) {
  const testing::TemporaryDirectory dir;
  EXPECT_EQ(ResidentSource::open(dir.path()).status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace moestro::store
