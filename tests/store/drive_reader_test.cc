// One drive's reads, over a reader that misbehaves on purpose.

#include "store/reader/drive_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <cerrno>
#include <cstring>
#include <map>

#include "store/reader/faulty_reader.h"
#include "tests/store/memory_reader.h"

namespace moestro::store {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using std::chrono::milliseconds;
constexpr uint32_t kBlock = 4096, kSlice = 2 * kBlock;

std::string file_of(size_t bytes) {
  std::string file(bytes, ' ');
  for (size_t i = 0; i < file.size(); ++i) file[i] = static_cast<char>(i * 31 + i / 4096);
  return file;
}

std::vector<DriveSlice> slices_of(const std::string& file, std::byte* into, uint64_t from = 0,
                                 uint64_t to = UINT64_MAX) {
  std::vector<DriveSlice> slices;
  for (uint64_t at = from; at < std::min<uint64_t>(file.size(), to); at += kSlice) {
    const auto length = static_cast<uint32_t>(std::min<uint64_t>(kSlice, file.size() - at));
    slices.push_back({{0, at, length, XXH3_64bits(file.data() + at, length)}, into + at, 0, 0, {}});
  }
  return slices;
}

struct Outcome {
  Status status;
  DriveCounters counters;
  bool same = false;
};

using Faults = std::multimap<uint64_t, int64_t>;  ///< offset -> -errno, at most so many bytes, or kFlip: once each
constexpr int64_t kFlip = INT64_MAX;

Fault at_offsets(Faults faults) {
  return [faults](const ReadOp& op, ReadResult& result) mutable {
    const auto found = faults.find(op.offset);
    if (found == faults.end()) return;
    if (found->second == kFlip) op.into[5] ^= std::byte{1};
    else result.result = std::min(result.result, found->second);
    faults.erase(found);
  };
}

/// Loads five slices and a shorter one with these faults.
Outcome load_with(Fault fault, uint32_t chunk_bytes = kSlice, size_t file_bytes = SIZE_MAX) {
  const std::string file = file_of(5 * kSlice + kBlock + 100);
  std::vector<std::byte> memory(7 * kSlice);
  auto reader =
      std::make_unique<FaultyReader>(std::make_unique<MemoryReader>(file.substr(0, file_bytes), 3), std::move(fault));
  DriveReader drive(std::move(reader), {"PACK/experts-000.bin"},
                {.chunk_bytes = chunk_bytes,
                 .depth = 2,
                 .background_depth = 2,
                 .load_depth = 6,
                 .verified_per_read = 1});  // the reader takes 3; some are kept back
  drive.add(1, ReadClass::kDemand, slices_of(file, memory.data()));
  std::vector<DriveOutcome> ended;
  auto now = std::chrono::steady_clock::time_point{};
  for (int i = 0; i < 20000 && ended.empty(); ++i) drive.step(now += milliseconds(1), ended);
  if (ended.size() != 1) return {internal_error("the load never ended"), {}, false};
  EXPECT_EQ(drive.loads(), 0u);
  EXPECT_EQ(drive.reader().in_flight(), 0u) << "memory of a load that ended is still being written";
  return {ended[0].status, drive.counters(), std::memcmp(memory.data(), file.data(), file.size()) == 0};
}

class DriveReaderChunks : public ::testing::TestWithParam<uint32_t> {};

TEST_P(DriveReaderChunks, ReadsAllSlices) {
  const Outcome loaded = load_with(at_offsets({}), GetParam());
  EXPECT_TRUE(loaded.status) << loaded.status.message();
  EXPECT_TRUE(loaded.same);
  EXPECT_EQ(loaded.counters.retries, 0u);
  const uint64_t chunk = GetParam(), bytes = 5 * kSlice + kBlock + 100;
  if (chunk >= kSlice) EXPECT_EQ(loaded.counters.reads, (bytes + chunk - 1) / chunk);
}

TEST_P(DriveReaderChunks, RandomFaultsAreMadeGoodOrNamed) {
  int good = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Outcome loaded = load_with(random_faults({40, 20, 40, 40, 40, 100, 40, seed}), GetParam());
    if (loaded.status) EXPECT_TRUE(loaded.same);
    else EXPECT_THAT(loaded.status.message(), HasSubstr("PACK/experts-000.bin at offset"));
    good += loaded.status.is_ok();
  }
  EXPECT_GT(good, 150);
}

INSTANTIATE_TEST_SUITE_P(Chunks, DriveReaderChunks, ::testing::Values(kBlock, kSlice, 3 * kSlice, 64 * kSlice));

TEST(DriveReader, ShortReadsInterruptionsAndPassingErrorsAreMadeGood) {
  const Outcome loaded = load_with(at_offsets({{0, 4096},
                                               {8192, -EINTR},
                                               {16384, -EAGAIN},
                                               {16384, -ENOMEM},
                                               {24576, -EIO},
                                               {24576, -EIO},
                                               {32768, kFlip},
                                               {40960, 100}}));
  EXPECT_TRUE(loaded.status) << loaded.status.message();
  EXPECT_TRUE(loaded.same);
  EXPECT_EQ(loaded.counters.retries, 4u);
}

TEST(DriveReader, LastingErrorNamesFileAndOffset) {
  for (const auto& [error, words] :
       std::map<int, std::string>{{EIO, "Input/output error"}, {ENOSPC, "No space left"}}) {
    const Outcome loaded = load_with(at_offsets({{8192, -error}, {8192, -error}, {8192, -error}}));
    EXPECT_EQ(loaded.status.code(), Code::kIo);
    EXPECT_THAT(loaded.status.message(), HasSubstr("PACK/experts-000.bin at offset 8192"));
    EXPECT_THAT(loaded.status.message(), HasSubstr(words));
  }
}

TEST(DriveReader, KernelThatNeverHasRoomIsAnErrorInTheEnd) {
  const Outcome loaded = load_with([](const ReadOp& op, ReadResult& result) {
    if (op.offset == 8192) result.result = -ENOMEM;
  });
  EXPECT_EQ(loaded.status.code(), Code::kIo);
  EXPECT_THAT(loaded.status.message(), HasSubstr("Cannot allocate memory"));
}

TEST(DriveReader, WrongByteIsCorruptAfterThreeReads) {
  const Outcome loaded = load_with(at_offsets({{16384, kFlip}, {16384, kFlip}, {16384, kFlip}}));
  EXPECT_EQ(loaded.status.code(), Code::kCorrupt);
  EXPECT_EQ(loaded.counters.retries, 2u);
  EXPECT_THAT(loaded.status.message(), HasSubstr("offset 16384"));
}

TEST(DriveReader, TruncatedFileIsSaid) {
  const Outcome loaded = load_with(at_offsets({}), kSlice, 5 * kSlice);
  EXPECT_EQ(loaded.status.code(), Code::kIo);
  EXPECT_THAT(loaded.status.message(), HasSubstr("truncated"));
}

/// A reader of depth 4 (2 in the background) whose reads the test completes one by one.
class DriveReaderOrder : public ::testing::Test {
 protected:
  void add(uint64_t load, ReadClass read_class, uint64_t first_slice, uint64_t slices) {
    drive_.add(load, read_class,
              slices_of(file_, memory_.data(), first_slice * kSlice, (first_slice + slices) * kSlice));
  }
  void step() { drive_.step({}, ended_); }
  std::vector<uint64_t> submitted() const {
    std::vector<uint64_t> slices;
    for (const uint64_t offset : reader_->submitted) slices.push_back(offset / kSlice);
    return slices;
  }
  const std::string file_ = file_of(64 * kSlice);
  std::vector<std::byte> memory_{64 * kSlice};
  MemoryReader* reader_ = new MemoryReader(file_, 4);
  DriveReader drive_{std::unique_ptr<Reader>(reader_), {"f"}, {kSlice, 4, 2}};
  std::vector<DriveOutcome> ended_;
};

TEST_F(DriveReaderOrder, DemandOvertakesPrefetchesAtTheNextChunk) {
  reader_->hold = true;
  add(1, ReadClass::kPrefetch, 0, 20);
  step();
  EXPECT_THAT(submitted(), ElementsAre(0, 1)) << "no more than two where nobody waits";
  add(2, ReadClass::kDemand, 40, 6);
  step();
  EXPECT_THAT(submitted(), ElementsAre(0, 1, 40, 41));
  reader_->hold = false;
  while (ended_.empty()) step();
  EXPECT_EQ(ended_[0].load, 2u);
  EXPECT_THAT(std::vector(reader_->submitted.begin() + 4, reader_->submitted.begin() + 8),
              ElementsAre(42 * kSlice, 43 * kSlice, 44 * kSlice, 45 * kSlice));
  EXPECT_LE(reader_->submitted.size(), 8u + 2u)
      << "prefetches go on when the demand's last chunks are under way, two at most";
  while (ended_.size() < 2) step();
  EXPECT_TRUE(ended_[1].status);
  EXPECT_EQ(std::memcmp(memory_.data(), file_.data(), 20 * kSlice), 0);
}

TEST_F(DriveReaderOrder, PromotedLoadGoesBeforeOtherPrefetches) {
  reader_->hold = true;
  add(1, ReadClass::kPrefetch, 0, 8);
  add(2, ReadClass::kPrefetch, 10, 8);
  step();
  drive_.promote(2);
  step();
  EXPECT_THAT(submitted(), ElementsAre(0, 1, 10, 11));
  reader_->hold = false;
  while (ended_.empty()) step();
  EXPECT_EQ(ended_[0].load, 2u);
}

TEST_F(DriveReaderOrder, CancelledLoadEndsWhenWhatIsUnderWayHasLanded) {
  reader_->hold = true;
  add(1, ReadClass::kPrefetch, 0, 8);
  add(2, ReadClass::kPrefetch, 10, 2);
  step();
  drive_.cancel(1);
  step();
  EXPECT_TRUE(ended_.empty()) << "its memory is still being written";
  reader_->hold = false;
  while (ended_.size() < 2) step();
  for (const DriveOutcome& outcome : ended_) {
    EXPECT_EQ(outcome.status.code(), outcome.load == 1 ? Code::kCancelled : Code::kOk);
    EXPECT_EQ(outcome.carried, 2 * kSlice) << "of 8 slices, two were under way";
  }
  EXPECT_EQ(drive_.counters().bytes_read, 4 * kSlice);
  EXPECT_THAT(submitted(), ElementsAre(0, 1, 10, 11));
  drive_.cancel(1);
  drive_.promote(7);  // of what is not there: nothing happens
}

TEST_F(DriveReaderOrder, LoadWhoseRestIsUnderWayIsNotCancelled) {
  reader_->hold = true;
  add(1, ReadClass::kDemand, 0, 3);
  step();
  drive_.cancel(1);
  reader_->hold = false;
  while (ended_.empty()) step();
  EXPECT_TRUE(ended_[0].status);
}

/// Loads of so many slices that are demanded together: how many reads a drive gets each time that reports all of them
/// at once.
std::vector<size_t> batches_of(const std::vector<uint64_t>& loads, ReadClass first_class = ReadClass::kDemand) {
  const std::string file = file_of(40 * kSlice);
  std::vector<std::byte> memory(40 * kSlice);
  auto* reader = new MemoryReader(file, 32);
  reader->all_at_once = true;
  DriveReader drive(std::unique_ptr<Reader>(reader), {"f"},
                {.chunk_bytes = kSlice, .depth = 8, .background_depth = 2, .load_depth = 32, .verified_per_read = 8});
  uint64_t first = 0;
  std::vector<DriveOutcome> ended;
  reader->hold = true;
  for (const uint64_t slices : loads) {
    drive.add(first, first == 0 ? first_class : ReadClass::kDemand,
             slices_of(file, memory.data(), first * kSlice, (first + slices) * kSlice));
    first += slices;
    if (first_class != ReadClass::kDemand) drive.step({}, ended);  // under way when the demand comes
  }
  std::vector<size_t> batches;
  while (ended.size() < loads.size() && batches.size() < 100) {
    reader->hold = true;
    do drive.step({}, ended);
    while (drive.busy());
    if (!reader->pending.empty()) batches.push_back(reader->pending.size());
    reader->hold = false;
    drive.step({}, ended);
  }
  for (const DriveOutcome& outcome : ended) EXPECT_TRUE(outcome.status);
  EXPECT_EQ(std::memcmp(memory.data(), file.data(), first * kSlice), 0);
  return batches;
}

TEST(DriveReaderBatches, LoadGoesWholeExceptForWhatIsReadWhileTheRestIsVerified) {
  EXPECT_THAT(batches_of({3}), ElementsAre(3));
  EXPECT_THAT(batches_of({9}), ElementsAre(8, 1));
  EXPECT_THAT(batches_of({28}), ElementsAre(25, 3));
  EXPECT_THAT(batches_of({40}), ElementsAre(32, 8)) << "no more than load_depth";
}

TEST(DriveReaderBatches, LoadsShareTheDriveUpToItsDepth) {
  EXPECT_THAT(batches_of({20, 20}), ElementsAre(20, 18, 2)) << "the first is not held up by the second";
  EXPECT_THAT(batches_of({4, 4, 4}), ElementsAre(8, 4));
  EXPECT_THAT(batches_of({6, 8}, ReadClass::kPrefetch), ElementsAre(2 + 8, 2, 2))
      << "prefetches under way do not count";
  EXPECT_THAT(batches_of({6, 28}, ReadClass::kPrefetch), ElementsAre(2 + 25, 3, 2, 2));
}

TEST_F(DriveReaderOrder, ReaderThatTakesNothingIsAskedAgainLater) {
  reader_->refuse = 2;
  add(1, ReadClass::kDemand, 0, 1);
  step();
  EXPECT_TRUE(drive_.step_at()) << "no completion will wake anyone";
  while (ended_.empty()) step();
  EXPECT_TRUE(ended_[0].status);
  EXPECT_FALSE(drive_.step_at());
}

TEST(FaultPlan, IsReadOrRefused) {
  const auto plan = parse_fault_plan("eio=5,short=50,flip=1,seed=77");
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->eio, 5u);
  EXPECT_EQ(plan->short_reads, 50u);
  EXPECT_EQ(plan->seed, 77u);
  for (const char* bad : {"eio", "eio=", "eio=x", "nothing=3", "eio=1001", "eio=600,flip=600", "=3",
                          "eio=1,eio=2", "eio=5,", "delay=10001"})
    EXPECT_EQ(parse_fault_plan(bad).status().code(), Code::kInvalidArgument) << bad;
}

}  // namespace
}  // namespace moestro::store
