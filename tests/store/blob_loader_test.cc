// Loading through a reader that misbehaves on purpose.

#include "store/reader/blob_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <cerrno>
#include <cstring>
#include <map>

namespace moestro::store {
namespace {

using ::testing::HasSubstr;

/// Serves reads from a string; each read of an offset listed in `faults` fails that way once per entry.
class FaultyReader final : public Reader {
 public:
  struct Fault {
    int64_t result = 0;   ///< negative: -errno; else at most this many bytes
    bool flip = false;    ///< a wrong byte instead
  };
  FaultyReader(std::string file, std::multimap<uint64_t, Fault> faults) : file_(std::move(file)), faults_(std::move(faults)) {}
  bool submit(const ReadOp& op) override {
    if (queue_.size() >= 3) return false;
    queue_.push_back(op);
    return true;
  }
  void reap(std::vector<ReadResult>& results) override {
    if (queue_.empty()) return;
    const ReadOp op = queue_.back();  // out of order
    queue_.pop_back();
    int64_t n = op.offset >= file_.size() ? 0 : static_cast<int64_t>(std::min<uint64_t>(op.length, file_.size() - op.offset));
    const auto fault = faults_.find(op.offset);
    const bool flip = fault != faults_.end() && fault->second.flip;
    if (fault != faults_.end() && !flip) n = std::min(n, fault->second.result);
    if (n > 0) std::memcpy(op.into, file_.data() + op.offset, static_cast<size_t>(n));
    if (flip) op.into[5] ^= std::byte{1};
    if (fault != faults_.end()) faults_.erase(fault);
    results.push_back({op.tag, n});
  }
  int event_fd() const override { return -1; }
  uint32_t in_flight() const override { return static_cast<uint32_t>(queue_.size()); }
  std::string_view name() const override { return "faulty"; }

 private:
  std::string file_;
  std::multimap<uint64_t, Fault> faults_;
  std::vector<ReadOp> queue_;
};

struct Loaded {
  Status status;
  uint64_t retries = 0;
  bool same = false;
};

Loaded load_with(std::multimap<uint64_t, FaultyReader::Fault> faults, size_t file_bytes = 5 * 8192 + 4096 + 100) {
  std::string file(5 * 8192 + 4096 + 100, ' ');
  for (size_t i = 0; i < file.size(); ++i) file[i] = static_cast<char>(i * 31 + i / 4096);
  LoadRequest request;
  request.load = 1;
  std::vector<std::byte> memory(6 * 8192);
  request.into = memory.data();
  for (uint64_t at = 0; at < file.size(); at += 8192) {
    const auto length = static_cast<uint32_t>(std::min<uint64_t>(8192, file.size() - at));
    request.slices.push_back({0, at, length, XXH3_64bits(file.data() + at, length)});
  }
  BlobLoader loader(std::make_unique<FaultyReader>(file.substr(0, file_bytes), std::move(faults)), {"PACK/experts-000.bin"});
  loader.load(request);
  std::vector<LoadOutcome> outcomes;
  for (int i = 0; i < 200 && outcomes.empty(); ++i) loader.pump(outcomes);
  if (outcomes.size() != 1) return {internal_error("the load never ended"), 0, false};
  EXPECT_EQ(loader.loads_in_flight(), 0u);
  EXPECT_EQ(loader.reader().in_flight(), 0u) << "memory of a load that ended is still being written";
  return {outcomes[0].status, loader.retries(), std::memcmp(memory.data(), file.data(), file.size()) == 0};
}

TEST(BlobLoader, ReadsAllSlices) {
  const Loaded loaded = load_with({});
  EXPECT_TRUE(loaded.status) << loaded.status.message();
  EXPECT_TRUE(loaded.same);
  EXPECT_EQ(loaded.retries, 0u);
}

TEST(BlobLoader, ShortReadsInterruptionsAndPassingErrorsAreMadeGood) {
  const Loaded loaded = load_with({{0, {4096}}, {8192, {-EINTR}}, {16384, {-EAGAIN}}, {24576, {-EIO}}, {24576, {-EIO}}, {32768, {0, true}},
                                   {40960, {100}}});
  EXPECT_TRUE(loaded.status) << loaded.status.message();
  EXPECT_TRUE(loaded.same);
  EXPECT_EQ(loaded.retries, 4u);
}

TEST(BlobLoader, LastingErrorNamesFileAndOffset) {
  const Loaded loaded = load_with({{8192, {-EIO}}, {8192, {-EIO}}, {8192, {-EIO}}});
  EXPECT_EQ(loaded.status.code(), Code::kIo);
  EXPECT_THAT(loaded.status.message(), HasSubstr("PACK/experts-000.bin at offset 8192"));
  EXPECT_THAT(loaded.status.message(), HasSubstr("Input/output error"));
}

TEST(BlobLoader, WrongByteIsCorruptAfterThreeReads) {
  const Loaded loaded = load_with({{16384, {0, true}}, {16384, {0, true}}, {16384, {0, true}}});
  EXPECT_EQ(loaded.status.code(), Code::kCorrupt);
  EXPECT_EQ(loaded.retries, 2u);
  EXPECT_THAT(loaded.status.message(), HasSubstr("offset 16384"));
}

/// The content hash of a file read in slices of these lengths; `lie` is added to the checksum of the first one.
LoadOutcome content_of(const std::string& file, const std::vector<uint32_t>& lengths, uint64_t lie = 0) {
  std::vector<std::byte> memory(file.size() + 8192);
  LoadRequest request;
  request.load = 1, request.into = memory.data();
  uint64_t at = 0;
  for (const uint32_t length : lengths) {
    request.slices.push_back({0, at, length, XXH3_64bits(file.data() + at, length) + (at == 0 ? lie : 0)});
    at += length;
  }
  BlobLoader loader(std::make_unique<FaultyReader>(file, std::multimap<uint64_t, FaultyReader::Fault>{}), {"a"});
  loader.load(request);
  std::vector<LoadOutcome> outcomes;
  for (int i = 0; i < 200 && outcomes.empty(); ++i) loader.pump(outcomes);
  return outcomes.empty() ? LoadOutcome{} : outcomes[0];
}

TEST(ContentHash, IsThatOfTheBytesTheirOrderAndTheirBorders) {
  std::string file(3 * 8192, ' ');
  for (size_t i = 0; i < file.size(); ++i) file[i] = static_cast<char>(i * 7 + i / 4096);
  const ContentHash whole = content_of(file, {8192, 8192, 8192}).content;
  EXPECT_TRUE(whole.known());
  EXPECT_EQ(whole, content_of(file, {8192, 8192, 8192}).content);
  EXPECT_NE(whole, content_of(file, {4096, 4096, 8192, 8192}).content);
  std::string other = file;
  other[20000] ^= 1;
  EXPECT_NE(whole, content_of(other, {8192, 8192, 8192}).content);
  EXPECT_NE(whole, content_of(file.substr(8192) + file.substr(0, 8192), {8192, 8192, 8192}).content);
}

TEST(ContentHash, IsNotKnownWhereAChecksumLies) {
  const LoadOutcome outcome = content_of(std::string(16384, 'x'), {8192, 8192}, 1);
  EXPECT_EQ(outcome.status.code(), Code::kCorrupt);
  EXPECT_FALSE(outcome.content.known());
}

TEST(ContentHash, OnePassOverASliceGivesItsChecksumToo) {
  std::string bytes(1 << 16, ' ');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 131 + i / 251);
  for (const size_t length : {241, 256, 1023, 1024, 1025, 4096, 4100, 65536})
    EXPECT_EQ(XXH3_128bits(bytes.data(), length).low64, XXH3_64bits(bytes.data(), length)) << length;
  for (const uint32_t length : {1, 16, 128, 240, 241})  // lengths that have to be hashed twice are right as well
    EXPECT_TRUE(content_of(bytes, {length}).status) << length;
}

TEST(BlobLoader, TruncatedFileIsSaid) {
  const Loaded loaded = load_with({}, 5 * 8192);
  EXPECT_EQ(loaded.status.code(), Code::kIo);
  EXPECT_THAT(loaded.status.message(), HasSubstr("truncated"));
}

}  // namespace
}  // namespace moestro::store
