// What is said of an arena's pages: the cost, and the line that mends it.

#include "store/arena/page_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moestro::store {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Kind = PageFacts::Kind;
constexpr uint64_t kMiB = 1 << 20;

PageFacts on_small_pages(Kind kind) {
  PageFacts facts;
  facts.kind = kind;
  facts.dir = kind == Kind::kNameless ? "" : "/srv/arena";
  facts.mount = "/srv";
  facts.shmem_huge = "never";
  facts.bytes = 1000 * kMiB;
  return facts;
}

TEST(PageReport, WhatIsLeftOverBeyondTheLastHugePageIsNoFault) {
  PageFacts facts = on_small_pages(Kind::kTmpfs);
  facts.bytes = 3 * kMiB + 4096, facts.huge_bytes = 2 * kMiB;
  EXPECT_TRUE(judge_pages(facts).huge);
  EXPECT_EQ(judge_pages(facts).mend, "");
  facts.bytes = kMiB, facts.huge_bytes = 0;
  EXPECT_FALSE(judge_pages(facts).huge);
  EXPECT_EQ(judge_pages(facts).mend, "") << "smaller than one: nothing to mend";
}

TEST(PageReport, ATmpfsWithoutThemIsMountedAnew) {
  PageFacts facts = on_small_pages(Kind::kTmpfs);
  const PageReport report = judge_pages(facts);
  EXPECT_FALSE(report.huge);
  EXPECT_THAT(report.found, AllOf(HasSubstr("1000 MiB, 0 MiB of it on huge pages"), HasSubstr("half the speed")));
  EXPECT_THAT(report.mend, HasSubstr("mount -o remount,huge=within_size /srv "));
  facts.mount_huge = "never";
  EXPECT_THAT(judge_pages(facts).mend, HasSubstr("remount"));
}

TEST(PageReport, MemoryInSmallPiecesIsCompacted) {
  PageFacts facts = on_small_pages(Kind::kTmpfs);
  facts.mount_huge = "within_size", facts.huge_bytes = 600 * kMiB;
  EXPECT_THAT(judge_pages(facts).found, HasSubstr("600 MiB of it"));
  EXPECT_THAT(judge_pages(facts).mend, HasSubstr("compact_memory"));
}

TEST(PageReport, WhatTheWholeMachineForbids) {
  PageFacts facts = on_small_pages(Kind::kTmpfs);
  facts.mount_huge = "always", facts.shmem_huge = "deny";
  EXPECT_THAT(judge_pages(facts).mend, HasSubstr("echo never > /sys/kernel/mm/transparent_hugepage/shmem_enabled"));
  facts.shmem_huge = "";
  EXPECT_THAT(judge_pages(facts).mend, AllOf(HasSubstr("vm.nr_hugepages=500,"), HasSubstr("--payload-dir")));
  EXPECT_THAT(judge_pages(on_small_pages(Kind::kDisk)).mend, HasSubstr("tmpfs"));
}

TEST(PageReport, MemoryWithoutANameGoesByTheMachinesWord) {
  PageFacts facts = on_small_pages(Kind::kNameless);
  EXPECT_THAT(judge_pages(facts).mend, HasSubstr("echo advise"));
  EXPECT_THAT(judge_pages(facts).found, HasSubstr("cannot take it over"));
  facts.shmem_huge = "deny";
  EXPECT_THAT(judge_pages(facts).mend, HasSubstr("echo advise"));
  facts.shmem_huge = "advise";
  EXPECT_THAT(judge_pages(facts).mend, HasSubstr("compact_memory"));
}

TEST(PageReport, PagesThatWereSetAsideAreNamed) {
  PageFacts facts = on_small_pages(Kind::kHugetlbfs);
  facts.huge_bytes = facts.bytes;
  EXPECT_EQ(judge_pages(facts).found, "1000 MiB on huge pages that were set aside in /srv/arena");
  EXPECT_EQ(judge_pages(facts).mend, "");
}

}  // namespace
}  // namespace moestro::store
