// A pack over several drives is read as fast as all of them together, also where one of them is much slower.

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <fstream>
#include <sstream>

#include "store/pack/shards.h"
#include "store/reader/pack_files.h"
#include "store/reader/drive_reader.h"
#include "tests/store/small_pack.h"
#include "tests/store/throttled_reader.h"

namespace moestro::store {
namespace {

struct Drives {
  uint32_t first_speed = 1,
           second_speed = 1;  ///< bytes a nanosecond, and the shares that the packer dealt slices out by
};

class DrivesTest : public ::testing::TestWithParam<Drives> {
 protected:
  void SetUp() override {
    PackOptions options;
    options.own_share = GetParam().first_speed;
    options.spread = {{pack_.dir / "second", GetParam().second_speed}};
    const auto packed = pack_checkpoint(pack_.dir / "src", pack_.dir / "spread", options, {});
    ASSERT_TRUE(packed) << packed.status().message();
    auto manifest = open_pack(pack_.dir / "spread");
    ASSERT_TRUE(manifest) << manifest.status().message();
    manifest_ = std::move(*manifest);
    for (const std::filesystem::path& path : data_files(pack_.dir / "spread", manifest_)) {
      std::stringstream bytes;
      bytes << std::ifstream(path, std::ios::binary).rdbuf();
      files_.push_back(bytes.str());
      drive_of_file_.push_back(std::filesystem::canonical(path).parent_path() ==
                               std::filesystem::canonical(pack_.dir / "second"));
    }
  }
  SmallPack pack_{testing::CheckpointOptions{.hidden = 256, .ffn = 512, .experts = 16}};
  Manifest manifest_;
  std::vector<std::string> files_;
  std::vector<size_t> drive_of_file_;
};

TEST_P(DrivesTest, AllAreReadAsFastAsTheyTogetherRead) {
  TurnedClock clock;
  const std::array speeds{GetParam().first_speed * 1000.0, GetParam().second_speed * 1000.0};
  std::array<ThrottledReader*, 2> drives{};
  std::vector<DriveReader> readers;
  for (size_t d = 0; d < 2; ++d) {
    drives[d] = new ThrottledReader(files_, speeds[d], clock);
    readers.emplace_back(std::unique_ptr<Reader>(drives[d]), std::vector<std::string>{}, DriveOptions{});
  }
  std::vector<std::vector<std::byte>> memory;
  uint64_t bytes = 0, loads = 0;
  std::array<uint64_t, 2> bytes_of{};
  for (const Blob& blob : manifest_.blobs) {
    if (blob.kind != BlobKind::kExpert) continue;
    memory.emplace_back(blob.length + 4096);
    std::array<std::vector<DriveSlice>, 2> parts;
    std::byte* into = memory.back().data();
    for (const LoadSlice& slice : load_slices(blob, 0)) {
      const size_t drive = drive_of_file_[slice.file];
      parts[drive].push_back({slice, into, 0, slice.length, {}});
      into += slice.length, bytes += slice.length, bytes_of[drive] += slice.length;
    }
    for (size_t d = 0; d < 2; ++d)
      if (!parts[d].empty()) readers[d].add(++loads, ReadClass::kDemand, std::move(parts[d]));
  }
  std::vector<DriveOutcome> ended;
  while (ended.size() < loads) {
    for (DriveReader& reader : readers) {
      do reader.step({}, ended);
      while (reader.busy());
    }
    const double next = std::min(drives[0]->next_us(INFINITY), drives[1]->next_us(INFINITY));
    if (std::isinf(next)) break;
    clock.now_us = next;
  }
  ASSERT_EQ(ended.size(), loads) << "nothing is under way, and not all is there";
  for (const DriveOutcome& outcome : ended) EXPECT_TRUE(outcome.status) << outcome.status.message();
  EXPECT_GE(static_cast<double>(bytes) / clock.now_us, 0.95 * (speeds[0] + speeds[1]))
      << bytes_of[0] << " and " << bytes_of[1] << " bytes";
}

INSTANTIATE_TEST_SUITE_P(Speeds, DrivesTest, ::testing::Values(Drives{1, 1}, Drives{3, 1}, Drives{1, 3}, Drives{7, 2}),
                         [](const auto& drives) {
                           return std::to_string(drives.param.first_speed) + "to" +
                                  std::to_string(drives.param.second_speed);
                         });

}  // namespace
}  // namespace moestro::store
