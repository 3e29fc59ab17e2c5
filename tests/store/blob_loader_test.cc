// Loading from drives with threads of their own: both readers, and faults in what they read.

#include "store/reader/blob_loader.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <xxhash.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "store/reader/faulty_reader.h"
#include "tests/pack/synthetic_checkpoint.h"
#include "tests/store/gated_reader.h"

namespace moestro::store {
namespace {

using ::testing::HasSubstr;
using Make = Result<std::unique_ptr<Reader>> (*)(const ReaderFiles&, uint32_t);
constexpr uint32_t kPart = 16384;
constexpr uint32_t kDepth = 4, kBackgroundDepth = 2;
constexpr uint32_t kSlices = 24;  ///< of the load; every third lies on the second drive

class BlobLoaderTest : public ::testing::TestWithParam<Make> {
 protected:
  void SetUp() override {
    for (int drive = 0; drive < 2; ++drive) {
      std::string text(kSlices * kPart, ' ');
      for (size_t i = 0; i < text.size(); ++i)
        text[i] = static_cast<char>(i * 7 + i / kPart + static_cast<size_t>(drive) * 91);
      const std::string name = "drive" + std::to_string(drive);
      testing::write_text(dir_ / name, text);
      texts_.push_back(text);
      names_.push_back(name);
      files_.emplace_back(::open((dir_ / name).c_str(), O_RDONLY | O_CLOEXEC));
    }
  }
  void start(const std::vector<Fault>& faults) {
    std::vector<DriveReader> drives;
    for (const Fault& fault : faults) {
      auto reader = GetParam()({{files_[0].get(), files_[1].get()}}, 4);
      if (!reader) GTEST_SKIP() << reader.status().message();
      auto gated = std::make_unique<GatedReader>(std::make_unique<FaultyReader>(std::move(*reader), fault), gate_);
      drives.emplace_back(std::move(gated), names_, DriveOptions{kPart, kDepth, kBackgroundDepth});
    }
    auto started = BlobLoader::start(std::move(drives), {0, 1});
    ASSERT_TRUE(started) << started.status().message();
    loader_ = std::move(*started);
  }
  LoadRequest request(uint64_t load, std::byte* into, ReadClass read_class = ReadClass::kDemand) const {
    LoadRequest request{load, into, {}, read_class};
    for (uint32_t i = 0; i < kSlices; ++i) {
      const uint32_t file = i % 3 == 2;
      request.slices.push_back(
          {file, uint64_t{i} * kPart, kPart, XXH3_64bits(texts_[file].data() + i * kPart, kPart)});
    }
    return request;
  }
  bool holds(const std::byte* memory) const {
    for (uint32_t i = 0; i < kSlices; ++i)
      if (std::memcmp(memory + i * kPart, texts_[i % 3 == 2].data() + i * kPart, kPart) != 0) return false;
    return true;
  }
  LoadOutcome next() {
    while (ended_.empty()) {
      pollfd wait{loader_->event_fd(), POLLIN, 0};
      if (::poll(&wait, 1, 20000) != 1) return {0, internal_error("no load ended"), {}};
      loader_->pump(ended_);
    }
    const LoadOutcome first = ended_.front();
    ended_.erase(ended_.begin());
    return first;
  }
  /// How many reads into `other` were given to a drive before its last one into `demanded`; the drive that has most of
  /// them.
  size_t reads_before(const std::byte* other, const std::byte* demanded) const {
    const auto lies_in = [](const ReadOp& op, const std::byte* memory) {
      return op.into >= memory && op.into < memory + kSlices * kPart;
    };
    std::array<size_t, 2> before{}, last{};
    for (const ReadOp& op : gate_.submitted()) {
      if (lies_in(op, demanded)) last[op.file] = before[op.file];
      before[op.file] += lies_in(op, other);
    }
    return std::max(last[0], last[1]);
  }
  static void no_fault(const ReadOp&, ReadResult&) {}

  testing::TemporaryDirectory dir_;
  std::vector<std::string> texts_, names_;
  std::vector<shm::UniqueFd> files_;
  std::vector<std::byte> memory_{kSlices * kPart}, demanded_{kSlices * kPart};
  Gate gate_;
  std::unique_ptr<BlobLoader> loader_;
  std::vector<LoadOutcome> ended_;
};

TEST_P(BlobLoaderTest, LoadIsWholeWhenAllItsDrivesHaveDelivered) {
  start({no_fault, no_fault});
  if (IsSkipped()) return;
  loader_->load(request(5, memory_.data()));
  const LoadOutcome outcome = next();
  EXPECT_TRUE(outcome.status) << outcome.status.message();
  EXPECT_EQ(outcome.load, 5u);
  EXPECT_TRUE(holds(memory_.data()));
  EXPECT_GT(loader_->drives()[0]->counters().bytes_read, loader_->drives()[1]->counters().bytes_read);
  EXPECT_EQ(loader_->counters().bytes_read, kSlices * kPart);
  EXPECT_EQ(outcome.carried, kSlices * kPart) << "by both drives";
  EXPECT_EQ(loader_->loads_in_flight(), 0u);
}

TEST_P(BlobLoaderTest, FaultsOfEveryKindOnBothDrivesAreMadeGood) {
  start({random_faults({20, 10, 20, 20, 20, 100, 20, 3}), random_faults({20, 10, 20, 20, 20, 100, 20, 4})});
  if (IsSkipped()) return;
  int good = 0;
  for (uint64_t load = 1; load <= 30; ++load) {
    std::fill(memory_.begin(), memory_.end(), std::byte{});
    loader_->load(request(load, memory_.data()));
    const LoadOutcome outcome = next();
    ASSERT_EQ(outcome.load, load) << outcome.status.message();
    if (outcome.status) ASSERT_TRUE(holds(memory_.data())) << "load " << load;
    good += outcome.status.is_ok();
  }
  EXPECT_GE(good, 28) << "three in a row at one place are rare";
  EXPECT_GT(loader_->counters().retries, 10u);
}

TEST_P(BlobLoaderTest, DriveThatFailsFailsTheLoadByName) {
  start({no_fault, [](const ReadOp&, ReadResult& result) { result.result = -EIO; }});
  if (IsSkipped()) return;
  loader_->load(request(1, memory_.data()));
  const LoadOutcome outcome = next();
  EXPECT_EQ(outcome.status.code(), Code::kIo);
  EXPECT_THAT(outcome.status.message(), HasSubstr("drive1 at offset"));
  EXPECT_EQ(loader_->loads_in_flight(), 0u);
}

// Of a drive's thread. One that is about to ask for its next reads when a demand comes may do so: that is all.
constexpr size_t kPassedAtMost = 2 * kBackgroundDepth;

TEST_P(BlobLoaderTest, DemandOvertakesPrefetchesThatSaturate) {
  start({no_fault, no_fault});
  if (IsSkipped()) return;
  constexpr uint64_t kPrefetches = 40;
  gate_.close();
  for (uint64_t load = 1; load <= kPrefetches; ++load)
    loader_->load(request(load, memory_.data(), ReadClass::kPrefetch));
  loader_->load(request(100, demanded_.data()));
  gate_.open();
  for (uint64_t i = 0; i < kPrefetches + 1; ++i) {
    const LoadOutcome outcome = next();
    ASSERT_TRUE(outcome.status) << outcome.status.message();
  }
  EXPECT_TRUE(holds(demanded_.data()));
  EXPECT_LE(reads_before(memory_.data(), demanded_.data()), kPassedAtMost);
}

TEST_P(BlobLoaderTest, PromotedPrefetchOvertakesTheOthers) {
  start({no_fault, no_fault});
  if (IsSkipped()) return;
  gate_.close();
  for (uint64_t load = 1; load <= 40; ++load) loader_->load(request(load, memory_.data(), ReadClass::kPrefetch));
  loader_->load(request(41, demanded_.data(), ReadClass::kPrefetch));
  loader_->promote(41);
  gate_.open();
  for (uint64_t i = 0; i < 41; ++i) {
    const LoadOutcome outcome = next();
    ASSERT_TRUE(outcome.status) << outcome.status.message();
  }
  EXPECT_TRUE(holds(demanded_.data()));
  EXPECT_LE(reads_before(memory_.data(), demanded_.data()), kPassedAtMost);
}

TEST_P(BlobLoaderTest, CancelledLoadsEndAndTheOthersArrive) {
  start({no_fault, no_fault});
  if (IsSkipped()) return;
  gate_.close();
  for (uint64_t load = 1; load <= 20; ++load) loader_->load(request(load, memory_.data(), ReadClass::kPrefetch));
  for (uint64_t load = 1; load <= 19; ++load) loader_->cancel(load);
  gate_.open();
  uint64_t carried = 0;
  for (int i = 0; i < 20; ++i) {
    const LoadOutcome outcome = next();
    EXPECT_EQ(outcome.status.code(), outcome.load == 20 ? Code::kOk : Code::kCancelled)
        << outcome.load << ": " << outcome.status.message();
    carried += outcome.carried;
  }
  EXPECT_EQ(carried, loader_->counters().bytes_read) << "also what was under way when its load was cancelled";
  EXPECT_EQ(loader_->loads_in_flight(), 0u);
  EXPECT_LE(gate_.submitted().size(), kSlices + 2 * kPassedAtMost) << "what nobody wants is not read";
}

TEST_P(BlobLoaderTest, FilesAddedLaterAreRead) {
  start({no_fault, no_fault});
  if (IsSkipped()) return;
  testing::write_text(dir_ / "later", texts_[0]);
  const shm::UniqueFd later(::open((dir_ / "later").c_str(), O_RDONLY | O_CLOEXEC));
  loader_->set_files(2, {later.get()}, {"later"}, {1});
  LoadRequest load{7, memory_.data(), {{2, kPart, kPart, XXH3_64bits(texts_[0].data() + kPart, kPart)}}};
  loader_->load(load);
  const LoadOutcome outcome = next();
  EXPECT_TRUE(outcome.status) << outcome.status.message();
  EXPECT_EQ(loader_->drives()[1]->counters().bytes_read, kPart);
}

TEST_P(BlobLoaderTest, EndsWithReadsUnderWay) {
  start({no_fault, no_fault});
  if (IsSkipped()) return;
  gate_.close();
  for (uint64_t load = 1; load <= 20; ++load) loader_->load(request(load, memory_.data()));
  loader_.reset();
  std::fill(memory_.begin(), memory_.end(), std::byte{9});
  for (const std::byte b : memory_) ASSERT_EQ(b, std::byte{9}) << "a read landed after the loader had gone";
}

TEST_P(BlobLoaderTest, ContentIsThatOfTheBytesTheirOrderAndTheirBorders) {
  start({no_fault, no_fault});
  if (IsSkipped()) return;
  const auto content = [&](const std::vector<std::pair<uint64_t, uint32_t>>& ranges, uint64_t lie = 0) {
    LoadRequest load{1, memory_.data(), {}};
    for (const auto& [at, length] : ranges)
      load.slices.push_back({0, at, length, XXH3_64bits(texts_[0].data() + at, length) + (at == 0 ? lie : 0)});
    loader_->load(load);
    return next();
  };
  const ContentHash whole = content({{0, 8192}, {8192, 8192}, {16384, 8192}}).content;
  EXPECT_TRUE(whole.known());
  EXPECT_EQ(whole, content({{0, 8192}, {8192, 8192}, {16384, 8192}}).content);
  EXPECT_NE(whole, content({{0, 4096}, {4096, 4096}, {8192, 8192}, {16384, 8192}}).content);
  EXPECT_NE(whole, content({{16384, 8192}, {8192, 8192}, {0, 8192}}).content);
  const LoadOutcome lied = content({{0, 8192}, {8192, 8192}}, 1);
  EXPECT_EQ(lied.status.code(), Code::kCorrupt);
  EXPECT_FALSE(lied.content.known());
}

/// Whatever vectors this CPU has: the library's plain functions, which this file calls, are the reference.
TEST(SliceHash, OnePassOverASliceGivesItsChecksumToo) {
  std::vector<std::byte> bytes(1 << 20);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 131 + i / 251);
  for (const uint32_t length : {1, 16, 128, 240, 241, 256, 1023, 1024, 1025, 4096, 4100, 65536, 1'000'001, 1 << 20}) {
    const SliceHash hash = hash_of(bytes.data(), length);
    const XXH128_hash_t plain = XXH3_128bits(bytes.data(), length);
    EXPECT_EQ(hash.low, plain.low64) << length;
    EXPECT_EQ(hash.high, plain.high64) << length;
    EXPECT_EQ(checksum_of(bytes.data(), hash), XXH3_64bits(bytes.data(), length)) << length;
  }
}

INSTANTIATE_TEST_SUITE_P(Both, BlobLoaderTest, ::testing::Values(&make_uring_reader, &make_pread_reader),
                         [](const auto& kind) { return kind.index == 0 ? "uring" : "pread"; });

}  // namespace
}  // namespace moestro::store
