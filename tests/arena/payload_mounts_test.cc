// The arena's memory on file systems that a test has to mount: full ones, huge pages.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/machine/host_memory.h"
#include "store/arena/payload.h"
#include "tests/arena/mounted.h"
#include "tests/store/memory_directory.h"

namespace moestro::store {
namespace {

using testing::Mounted;
using ::testing::HasSubstr;
constexpr uint64_t kMiB = 1 << 20;
const auto kGoOn = [](uint64_t) { return true; };
PayloadNodes g_anywhere;  ///< where the test runs

TEST(PayloadMounts, AFileSystemThatRunsFullIsAnErrorAndNoCrash) {
  const Mounted small("tmpfs", "size=8m,mode=0700");
  if (!small.mounted) GTEST_SKIP() << "no right to mount a small tmpfs";
  const auto place = payload_place("", small.path);
  ASSERT_TRUE(place);
  EXPECT_LE(look_at_room(*place, 0)->place_bytes, 8 * kMiB);
  const auto file = make_payload(*place, 64 * kMiB, {}, g_anywhere, kGoOn);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.status().code(), Code::kExhausted);
  EXPECT_THAT(file.status().message(), HasSubstr("larger tmpfs"));
}

TEST(PayloadMounts, ATmpfsWithHugePagesHasThem) {
  const Mounted huge("tmpfs", "size=64m,mode=0700,huge=within_size");
  if (!huge.mounted) GTEST_SKIP() << "no right to mount, or no huge pages in this kernel";
  const auto place = payload_place("", huge.path);
  const auto file = make_payload(*place, 16 * kMiB, {}, g_anywhere, kGoOn);
  ASSERT_TRUE(file) << file.status().message();
  const PageReport report = report_pages(*place, g_anywhere, *file);
  if (!report.huge && machine::read_host_memory().left().bytes < 1024 * kMiB)
    GTEST_SKIP() << "memory is short: " << report.found;
  EXPECT_TRUE(report.huge) << report.found;
  EXPECT_EQ(report.mend, "");
}

TEST(PayloadMounts, PagesThatTheOperatorSetAside) {
  const Mounted pages("hugetlbfs", "mode=0700");
  const auto memory = machine::read_host_memory();
  if (!pages.mounted || memory.huge.empty()) GTEST_SKIP() << "no right to mount a hugetlbfs";
  const testing::MemoryDirectory arena("/tmp");
  EXPECT_THAT(payload_place("", pages.path).status().message(), HasSubstr("--payload-dir"));
  const auto place = payload_place(pages.path.string(), arena.path());
  ASSERT_TRUE(place) << place.status().message();
  const auto room = look_at_room(*place, 0);
  ASSERT_TRUE(room && room->set_aside);
  EXPECT_EQ(room->place_bytes % memory.huge[0].page_bytes, 0u);
  if (room->place_bytes < 4 * kMiB) GTEST_SKIP() << "no huge pages are set aside (vm.nr_hugepages)";
  const auto file = make_payload(*place, 4 * kMiB, {}, g_anywhere, kGoOn);
  ASSERT_TRUE(file) << file.status().message();
  EXPECT_TRUE(report_pages(*place, g_anywhere, *file).huge);
  EXPECT_EQ(look_at_room(*place, 0)->place_bytes, room->place_bytes - 4 * kMiB);
}

}  // namespace
}  // namespace moestro::store
