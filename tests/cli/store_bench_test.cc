// `moestro bench store` on the demo model, with real processes: every row is there, and what it says hangs together.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <map>

#include "common/shm/mapped_file.h"
#include "services/cli/bench/store/process_memory.h"
#include "services/cli/bench/store/store_bench.h"
#include "store/pack/packer.h"
#include "tests/cli/run_moestro.h"
#include "tests/cli/temp_dir.h"
#include "tests/support/places.h"

namespace moestro::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::string& demo_pack() {
  static TempDir dir;
  static const std::string pack = [] {
    const auto packed =
        store::pack_checkpoint(source_dir() / "models/demo", dir / "pack", {.experts = {DType::kBF16}}, {});
    EXPECT_TRUE(packed.is_ok()) << packed.status().message();
    return (dir / "pack").string();
  }();
  return pack;
}

TEST(BenchStore, EveryRowIsMeasured) {
  const std::string pack = demo_pack();
  const TempDir temporary;
  ::setenv("TMPDIR", temporary.path().c_str(), 1);
  const Ran ran = run_moestro({"bench", "store", "--pack", pack, "--rounds", "2", "--workers", "3", "--json"});
  ::unsetenv("TMPDIR");
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const json rows = json::parse(ran.out);
  std::map<std::string, json> by_name;
  for (const json& row : rows) {
    for (const char* key : {"what", "value", "unit", "baseline", "ratio", "aim", "how", "pages"})
      EXPECT_TRUE(row.contains(key)) << key << row;
    if (row.contains("missing")) continue;
    EXPECT_GE(row.at("value"), 0) << row;
    if (row.contains("baseline_is")) {
      EXPECT_GT(row.at("baseline"), 0) << row;
      EXPECT_GT(row.at("ratio"), 0) << row;
    }
    if (!row.at("aim").is_null()) EXPECT_TRUE(row.contains("reached") && row.contains("aim_is")) << row;
    by_name[row.at("what").get<std::string>() +
            (row.contains("baseline_is") ? ", " + row.at("baseline_is").get<std::string>() : "")] = row;
  }
  for (const char* name : {"cold fetch, all in flight, io_uring alone", "cold fetch, all in flight, mmap",
                           "cold fetch of one expert, io_uring alone", "cold fetch of one expert, mmap", "pin + unpin",
                           "two workers on the same entries", "second worker ready on a warm store",
                           "arena re-adopted after kill -9 of the store"})
    EXPECT_TRUE(by_name.contains(name)) << name;
  EXPECT_EQ(by_name["read from the drive meanwhile"]["value"], 0);
  EXPECT_EQ(by_name["read from the drive meanwhile"]["reached"], true);
  const json& memory = by_name["memory of 3 workers and store beyond the arena, a process"];
  EXPECT_GT(memory["value"], 0);
  EXPECT_EQ(memory["reached"], true) << memory;
  EXPECT_TRUE(std::filesystem::is_empty(temporary.path())) << "what it made is gone again";
}

TEST(BenchStore, TheTableSaysPagesBlocksAndDepth) {
  const Ran ran =
      run_moestro({"bench", "store", "--pack", demo_pack(), "--rounds", "1", "--only", "reads", "--depth", "3"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  for (const char* part : {"demo: experts of 96.0 KiB", "MiB pages", "3 in flight in the baseline",
                           "read-ahead of mappings", "against mmap", ">= 0.92"})
    EXPECT_THAT(ran.out, HasSubstr(part));
  EXPECT_THAT(ran.out, testing::Not(HasSubstr("second worker")));
}

TEST(BenchStore, AnArenaForFewExpertsIsMeasuredToo) {
  const Ran ran =
      run_moestro({"bench", "store", "--pack", demo_pack(), "--rounds", "1", "--only", "reads", "--dram", "2400000"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("cold fetch of one expert, against io_uring alone"));
  EXPECT_THAT(ran.out, testing::Not(HasSubstr("32 experts, ")));
}

TEST(BenchStore, WrongOptionsAndPacksAreRefusedInOneLine) {
  const std::tuple<std::vector<std::string>, int, const char*> cases[] = {
      {{"--pack", "/nowhere"}, 1, "/nowhere"},
      {{"--pack", demo_pack(), "--workers", "1"}, 2, "--workers"},
      {{"--pack", demo_pack(), "--dram", "64K", "--only", "reads"}, 1, "arena"},
      {{"--pack", demo_pack(), "--dram", "much"}, 2, "much"},
      {{"--pack", demo_pack(), "--only", "some"}, 2, "--only"},
  };
  for (const auto& [arguments, exit_code, words] : cases) {
    std::vector<std::string> all = {"bench", "store"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Ran ran = run_moestro(all);
    EXPECT_EQ(ran.exit_code, exit_code) << ran.err;
    EXPECT_THAT(ran.err, HasSubstr(words));
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
    EXPECT_EQ(ran.out, "");
  }
}

TEST(BenchStore, MemoryOfAProcessIsNoSmallerThanWhatItTouched) {
  const pid_t self = ::getpid();
  const TempDir dir;
  const auto before = cli::memory_of({&self, 1}, dir / "arena");
  ASSERT_TRUE(before.is_ok()) << before.status().message();
  const std::vector<char> touched(32 << 20, 'x');
  const auto after = cli::memory_of({&self, 1}, dir / "arena");
  EXPECT_GE(after->rest, before->rest + touched.size() * 9 / 10);
  EXPECT_EQ(after->arena, 0u);
  const pid_t nobody = 0x3fffffff;
  EXPECT_FALSE(cli::memory_of({&nobody, 1}, dir / "arena").is_ok());
}

TEST(BenchStore, PagesOfTheArenaAreToldFromTheRest) {
  constexpr size_t kBytes = 8 << 20;
  const pid_t self = ::getpid();
  const TempDir dir;
  auto arena = shm::MappedFile::create(dir / "arena", kBytes, 0600);
  ASSERT_TRUE(arena.is_ok()) << arena.status().message();
  const auto before = cli::memory_of({&self, 1}, dir / "arena");
  std::fill_n(arena->data(), kBytes, std::byte{1});
  const auto after = cli::memory_of({&self, 1}, dir / "arena");
  EXPECT_EQ(after->arena, kBytes);
  EXPECT_LT(after->rest, before->rest + kBytes / 2);
}

TEST(Quantile, OfUnsortedLists) {
  EXPECT_EQ(cli::quantile({3, 1, 2}, 0.5), 2);
  EXPECT_EQ(cli::quantile({4, 1, 2, 3}, 0.5), 2.5);
  EXPECT_EQ(cli::quantile({5}, 0.99), 5);
  EXPECT_EQ(cli::quantile({1, 2, 3, 4, 5}, 1), 5);
}

}  // namespace
}  // namespace moestro::test
