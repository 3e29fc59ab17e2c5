// A journal whose middle has changed is said; a torn end is not a fault. The journal is SQLite's own, of a process that
// was killed.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "orchestrator/state/late_state.h"
#include "orchestrator/state/sqlite_store.h"
#include "orchestrator/state/wal_check.h"
#include "tests/cli/temp_dir.h"

namespace moestro::orchestrator {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

constexpr int kFiles = 40;

class DamagedWal : public ::testing::Test {
 protected:
  /// A state with `kFiles` files, each a transaction, all of them in the journal alone.
  void SetUp() override {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto store = SqliteStore::open(path());
      for (int i = 0; store.is_ok() && i < kFiles; ++i)
        if (!(*store)->put_file({"file-" + std::to_string(i), std::string(600, 'n'), "batch", 1, 5, 0}).is_ok())
          ::_exit(1);
      ::kill(::getpid(), SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    std::ifstream in(wal(), std::ios::binary);
    journal_.assign(std::istreambuf_iterator<char>(in), {});
    ASSERT_GT(journal_.size(), 100'000u);
  }
  fs::path path() const { return dir_ / "state.db"; }
  fs::path wal() const { return path().string() + "-wal"; }
  void write_journal(const std::string& bytes) const {
    std::ofstream(wal(), std::ios::binary | std::ios::trunc) << bytes;
  }
  std::string flipped(size_t at) const {
    std::string bytes = journal_;
    bytes[at] ^= 0x20;
    return bytes;
  }
  size_t files_known() const {
    auto store = SqliteStore::open(path());
    EXPECT_TRUE(store.is_ok()) << store.status().message();
    return store.is_ok() ? (*store)->files({.limit = 1000})->size() : 0;
  }

  test::TempDir dir_;
  std::string journal_;
};

TEST_F(DamagedWal, WhatAKilledProcessLeftIsWhole) {
  EXPECT_TRUE(check_wal(path()));
  EXPECT_EQ(files_known(), static_cast<size_t>(kFiles));
}

TEST_F(DamagedWal, AChangedByteInTheMiddleIsRefusedAndLeftAlone) {
  const size_t middle = journal_.size() / 2;
  for (const size_t at : {size_t{5}, size_t{20}, size_t{40}, size_t{5000}, middle, middle + middle / 2}) {
    const std::string bytes = flipped(at);
    write_journal(bytes);
    const Status refused = SqliteStore::open(path()).status();
    EXPECT_EQ(refused.code(), Code::kCorrupt) << "byte " << at;
    EXPECT_THAT(refused.message(), HasSubstr(wal().string()));
    std::ifstream in(wal(), std::ios::binary);
    EXPECT_TRUE(std::string(std::istreambuf_iterator<char>(in), {}) == bytes) << "byte " << at;
  }
  EXPECT_TRUE(may_come_later(SqliteStore::open(path()).status())) << "completions are served";
  write_journal(journal_);
  EXPECT_EQ(files_known(), static_cast<size_t>(kFiles)) << "a copy was put back";
}

TEST_F(DamagedWal, ATornEndIsNoFault) {
  for (const size_t cut : {size_t{1}, size_t{100}, size_t{4096}, size_t{5000}, size_t{20'000}}) {
    write_journal(journal_.substr(0, journal_.size() - cut));
    EXPECT_TRUE(check_wal(path())) << cut;
  }
  write_journal(flipped(journal_.size() - 10));  // of the last transaction: a power failure can do that
  EXPECT_TRUE(check_wal(path()));
  EXPECT_GE(files_known(), static_cast<size_t>(kFiles) - 2);
}

TEST_F(DamagedWal, NoJournalAndAnEmptyOneAreNoFault) {
  for (const size_t size : {size_t{0}, size_t{10}, size_t{32}}) {
    write_journal(journal_.substr(0, size));
    EXPECT_TRUE(check_wal(path())) << size;
  }
  fs::remove(wal());
  EXPECT_TRUE(check_wal(path()));
}

TEST(LateStateTest, IsThereAsSoonAsItCanBeOpened) {
  const test::TempDir dir;
  int tries = 0;
  bool can = false;
  LateState state(
      [&]() -> Result<std::unique_ptr<StateStore>> {
        ++tries;
        if (!can) return exhausted("its disk is still full");
        MOESTRO_ASSIGN_OR_RETURN(auto opened, SqliteStore::open(dir / "state.db"));
        return std::unique_ptr<StateStore>(std::move(opened));
      },
      exhausted("its disk is full"), std::chrono::milliseconds(20));
  const FileRecord file{"file-1", "n", "batch", 1, 5, 0, "sum"};
  EXPECT_EQ(state.put_file(file).message(), "its disk is full");
  EXPECT_EQ(state.unfinished().status().code(), Code::kExhausted);
  EXPECT_EQ(tries, 0) << "it was tried just now";
  ::usleep(30'000);
  EXPECT_EQ(state.put_file(file).message(), "its disk is still full");
  EXPECT_EQ(state.put_file(file).code(), Code::kExhausted);
  EXPECT_EQ(tries, 1);
  can = true;
  ::usleep(60'000);
  EXPECT_TRUE(state.put_file(file));
  EXPECT_EQ((*state.file("file-1"))->checksum, "sum");
  EXPECT_EQ(tries, 2);
}

}  // namespace
}  // namespace moestro::orchestrator
