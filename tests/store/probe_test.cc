// What a drive wants to be read with.

#include "store/reader/probe.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/shm/mapped_file.h"
#include "store/reader/faulty_reader.h"
#include "tests/pack/synthetic_checkpoint.h"

namespace moestro::store {
namespace {

using Make = Result<std::unique_ptr<Reader>> (*)(const ReaderFiles&, uint32_t);

class ProbeTest : public ::testing::TestWithParam<Make> {
 protected:
  void SetUp() override {
    testing::write_text(dir_ / "f", std::string(kBytes, 'x'));
    file_.reset(::open((dir_ / "f").c_str(), O_RDONLY | O_CLOEXEC));
    auto reader = GetParam()({{file_.get()}}, kProbeDepthMax);
    if (!reader) GTEST_SKIP() << reader.status().message();
    reader_ = std::move(*reader);
  }
  static constexpr uint64_t kBytes = 8 << 20;
  testing::TemporaryDirectory dir_;
  shm::UniqueFd file_;
  std::unique_ptr<Reader> reader_;
  std::vector<std::byte> memory_{8 << 20};
};

TEST_P(ProbeTest, ChoosesAmongWhatIsPossibleAndLeavesNothingUnderWay) {
  const auto result = probe_reads(*reader_, {{0, kBytes}}, memory_, 0, 0);
  ASSERT_TRUE(result) << result.status().message();
  EXPECT_THAT((std::vector<uint32_t>{1, 2, 4, 8, 16}), ::testing::Contains(result->depth));
  EXPECT_THAT((std::vector<uint32_t>{512 << 10, 1 << 20, 2 << 20}), ::testing::Contains(result->chunk_bytes));
  EXPECT_GT(result->bytes_per_s, 0u);
  EXPECT_EQ(reader_->in_flight(), 0u);
}

TEST_P(ProbeTest, WhatIsGivenStays) {
  const auto result = probe_reads(*reader_, {{0, kBytes}}, memory_, 128 << 10, 3);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->chunk_bytes, 128u << 10);
  EXPECT_EQ(result->depth, 3u);
}

TEST_P(ProbeTest, TooLittleToReadAndReadsThatFailAreSaid) {
  EXPECT_EQ(probe_reads(*reader_, {}, memory_, 0, 0).status().code(), Code::kUnavailable);
  EXPECT_EQ(probe_reads(*reader_, {{0, 1 << 20}}, memory_, 0, 0).status().code(), Code::kUnavailable);
  FaultyReader broken(std::move(reader_), [](const ReadOp&, ReadResult& result) { result.result = -EIO; });
  EXPECT_EQ(probe_reads(broken, {{0, kBytes}}, memory_, 0, 0).status().code(), Code::kUnavailable);
}

INSTANTIATE_TEST_SUITE_P(Both, ProbeTest, ::testing::Values(&make_uring_reader, &make_pread_reader),
                         [](const auto& kind) { return kind.index == 0 ? "uring" : "pread"; });

TEST(DirectorySpeed, IsMeasuredAndLeavesNothingBehind) {
  const testing::TemporaryDirectory dir;
  const auto speed = directory_speed(dir.path());
  ASSERT_TRUE(speed) << speed.status().message();
  EXPECT_GT(*speed, 0u);
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  EXPECT_FALSE(directory_speed(dir / "absent"));
}

}  // namespace
}  // namespace moestro::store
