// The arena's memory: files, memory without a name; who may write.

#include "store/arena/payload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/machine/numa.h"
#include "tests/store/memory_directory.h"

namespace moestro::store {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
constexpr uint64_t kMiB = 1 << 20;
constexpr std::chrono::seconds kLong{10};
const auto kGoOn = [](uint64_t) { return true; };
PayloadNodes g_anywhere;  ///< where the test runs

/// What workers get of `file` is the same memory, and cannot be mapped for writing.
void expect_shared_read_only(const PayloadPlace& place, const shm::MappedFile& file) {
  const auto seen = open_payload(payload_address(place), file.size(), kLong);
  ASSERT_TRUE(seen) << seen.status().message();
  file.data()[4096] = std::byte{0x5a};
  EXPECT_EQ(seen->data()[4096], std::byte{0x5a});
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, seen->fd(), 0), MAP_FAILED);
}

TEST(Payload, AFileInTheArenasDirectory) {
  const testing::MemoryDirectory dir("/tmp");
  const auto place = payload_place("", dir.path());
  ASSERT_TRUE(place);
  EXPECT_EQ(place->file, dir.path() / "arena");
  uint64_t told = 0;
  const auto file = make_payload(*place, 3 * kMiB, {}, g_anywhere, [&](uint64_t done) { return told = done, true; });
  ASSERT_TRUE(file) << file.status().message();
  EXPECT_EQ(told, 3 * kMiB) << "all of it is backed";
  struct stat info {};
  ::stat(place->file.c_str(), &info);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_GE(static_cast<uint64_t>(info.st_blocks) * 512, 3 * kMiB);
  expect_shared_read_only(*place, *file);
}

TEST(Payload, AGroupMayReadAndNotWrite) {
  const testing::MemoryDirectory dir("/tmp");
  const auto place = payload_place("", dir.path());
  const auto file = make_payload(*place, kMiB, shm::FileAccess{::getegid()}, g_anywhere, kGoOn);
  ASSERT_TRUE(file) << file.status().message();
  struct stat info {};
  ::stat(place->file.c_str(), &info);
  EXPECT_EQ(info.st_mode & 0777, 0640u);
  EXPECT_EQ(info.st_gid, ::getegid());
}

TEST(Payload, ADirectoryOfItsOwnHoldsThoseOfSeveralStores) {
  const testing::MemoryDirectory a("/tmp"), b("/tmp"), payloads("/tmp");
  const auto of_a = payload_place(payloads.path().string(), a.path()),
             of_b = payload_place(payloads.path().string(), b.path());
  ASSERT_TRUE(of_a && of_b);
  EXPECT_EQ(of_a->file.parent_path(), payloads.path());
  EXPECT_NE(of_a->file, of_b->file);
  EXPECT_EQ(payload_place(payloads.path().string(), a.path())->file, of_a->file) << "found again after a restart";
  const auto file = make_payload(*of_a, kMiB, {}, g_anywhere, kGoOn);
  ASSERT_TRUE(file);
  expect_shared_read_only(*of_a, *file);
}

TEST(Payload, ItsNameInAnotherDirectoryIsOfTheArenasPlaceAndNotOfHowThatIsWritten) {
  const testing::MemoryDirectory arena("/tmp"), payloads("/tmp");
  const fs::path dir = arena.path(), link = payloads.path() / "link";
  fs::create_directory(dir / "part");
  fs::create_symlink(dir, link);
  const auto file = payload_place(payloads.path().string(), dir)->file;
  for (const fs::path& same : {dir / "", dir / ".", dir / "part" / "..", fs::relative(dir), link})
    EXPECT_EQ(payload_place(payloads.path().string(), same)->file, file) << same;
  EXPECT_NE(payload_place(payloads.path().string(), dir / "part")->file, file);
}

TEST(Payload, ADirectoryThatOthersMayWriteToIsRefused) {
  const testing::MemoryDirectory arena("/tmp"), payloads("/tmp");
  ::chmod(payloads.path().c_str(), 0777);
  const auto place = payload_place(payloads.path().string(), arena.path());
  ASSERT_FALSE(place);
  EXPECT_THAT(place.status().message(), HasSubstr("mode 0777"));
  ::chmod(payloads.path().c_str(), 01700);
  EXPECT_TRUE(payload_place(payloads.path().string(), arena.path()));
  EXPECT_FALSE(payload_place("/no/such/directory", arena.path()));
}

/// A worker with a GPU may write until the driver has registered the memory.
TEST(PayloadDeathTest, AMappingToRegisterIsProtectedAfterwards) {
  const testing::MemoryDirectory dir("/tmp");
  const auto place = payload_place("", dir.path());
  ASSERT_TRUE(place);
  const auto file = make_payload(*place, 3 * kMiB, {}, g_anywhere, kGoOn);
  ASSERT_TRUE(file) << file.status().message();
  struct stat info {};
  ::stat(place->file.c_str(), &info);
  EXPECT_EQ(info.st_mode & 0777, 0600u) << "its own user, and nobody else";
  auto seen = open_payload(payload_address(*place), 3 * kMiB, kLong, true);
  ASSERT_TRUE(seen) << seen.status().message();
  ASSERT_TRUE(seen->writable());
  seen->data()[4096] = std::byte{0x5a};
  EXPECT_EQ(file->data()[4096], std::byte{0x5a});
  ASSERT_TRUE(seen->forbid_writes());
  EXPECT_FALSE(seen->writable());
  EXPECT_EQ(seen->data()[4096], std::byte{0x5a});
  EXPECT_DEATH(seen->data()[4096] = std::byte{0}, "");
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, seen->fd(), 0), MAP_FAILED);
}

TEST(Payload, WithoutANameItGoesThroughASocket) {
  const testing::MemoryDirectory dir("/tmp");
  const auto place = payload_place(kNamelessPayload, dir.path());
  ASSERT_TRUE(place && place->nameless());
  const auto file = make_payload(*place, 3 * kMiB, {}, g_anywhere, kGoOn);
  ASSERT_TRUE(file) << file.status().message();
  EXPECT_TRUE(file->size_is_sealed()) << "reading it cannot end in SIGBUS";
  EXPECT_NE(::ftruncate(file->fd(), kMiB), 0);
  EXPECT_NE(::ftruncate(file->fd(), 4 * kMiB), 0);
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd(), 0), MAP_FAILED)
      << "nobody but the store, which has it mapped";
  EXPECT_EQ(open_payload(payload_address(*place), 3 * kMiB, kLong).status().code(), Code::kUnavailable);
  {
    const auto server = shm::DescriptorServer::listen(place->socket, file->fd(), {});
    ASSERT_TRUE(server) << server.status().message();
    struct stat info {};
    ::stat(place->socket.c_str(), &info);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
    for (int i = 0; i < 3; ++i) expect_shared_read_only(*place, *file);
    const auto to_register = open_payload(payload_address(*place), 3 * kMiB, kLong, true);
    ASSERT_TRUE(to_register) << to_register.status().message();
    EXPECT_FALSE(to_register->writable()) << "sealed against that";
    EXPECT_EQ(open_payload(payload_address(*place), 4 * kMiB, kLong).status().code(), Code::kCorrupt);
  }
  EXPECT_FALSE(fs::exists(place->socket));
  EXPECT_THAT(report_pages(*place, g_anywhere, *file).found, HasSubstr("cannot take it over"));
}

TEST(Payload, BackingCanBeStopped) {
  const testing::MemoryDirectory dir("/tmp");
  const auto place = payload_place("", dir.path());
  EXPECT_EQ(make_payload(*place, 128 * kMiB, {}, g_anywhere, [](uint64_t done) { return done == 0; }).status().code(),
            Code::kCancelled);
}

TEST(Payload, LiesOnTheNodesThatWereChosen) {
  const testing::MemoryDirectory dir("/tmp");
  for (const char* wanted : {"", kNamelessPayload}) {
    const auto place = payload_place(wanted, dir.path());
    PayloadNodes nodes{.there = {0, 1}, .over = {0}, .spread = {}};
    const auto file = make_payload(*place, 3 * kMiB, {}, nodes, kGoOn);
    ASSERT_TRUE(file) << file.status().message();
    if (!nodes.spread.is_ok()) GTEST_SKIP() << nodes.spread.message();
    EXPECT_THAT(report_pages(*place, nodes, *file).found, HasSubstr(", NUMA node 0 100 %"));
    nodes.there = {0}, nodes.over.clear();
    EXPECT_THAT(report_pages(*place, nodes, *file).found, ::testing::Not(HasSubstr("NUMA")))
        << "there is one node: nothing to say";
  }
}

TEST(Payload, WhereTheKernelDoesNotSpreadItIsMadeAndSaysSo) {
  const testing::MemoryDirectory dir("/tmp");
  const auto place = payload_place("", dir.path());
  PayloadNodes nodes{.there = {0}, .over = {machine::kNodesEnd - 1}, .spread = {}};
  const auto file = make_payload(*place, kMiB, {}, nodes, kGoOn);
  ASSERT_TRUE(file) << file.status().message();
  EXPECT_EQ(nodes.spread.code(), Code::kUnavailable);
  const PageReport report = report_pages(*place, nodes, *file);
  EXPECT_THAT(report.found, HasSubstr("cannot be taken from NUMA node 1023 (set_mempolicy: "));
  EXPECT_THAT(report.mend, HasSubstr("SYS_NICE"));
}

}  // namespace
}  // namespace moestro::store
