// The state: what is kept, what is refused, and that a call that failed has changed nothing.

#include "orchestrator/state/sqlite_store.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <random>

#include "orchestrator/state/open_state.h"
#include "tests/cli/temp_dir.h"

namespace moestro::orchestrator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

BatchRecord order(const std::string& id) {
  BatchRecord b;
  b.id = id, b.endpoint = "/v1/completions", b.model = "m", b.input_file = "file-1", b.completion_window = "24h",
  b.created_at = 5, b.expires_at = 99;
  return b;
}
LineResult answer(uint64_t line, bool good, std::string text) { return {line, good, std::move(text), 3, 1, 2}; }

class SqliteStoreTest : public ::testing::Test {
 protected:
  fs::path path() const { return dir_ / "state.db"; }
  std::unique_ptr<SqliteStore> open() {
    auto store = SqliteStore::open(path());
    EXPECT_TRUE(store.is_ok()) << store.status().message();
    return store.is_ok() ? std::move(*store) : nullptr;
  }
  Status refusal() { return SqliteStore::open(path()).status(); }
  test::TempDir dir_;
};

/// As the first release wrote it; `blobs` came without a new version.
constexpr const char* kVersionOne = R"sql(
CREATE TABLE files(number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, name TEXT NOT NULL,
  purpose TEXT NOT NULL, bytes INTEGER NOT NULL, created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL);
CREATE TABLE batches(number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, status INTEGER NOT NULL,
  outcome INTEGER NOT NULL, endpoint TEXT NOT NULL, model TEXT NOT NULL, input_file TEXT NOT NULL,
  completion_window TEXT NOT NULL, metadata TEXT NOT NULL, output_file TEXT NOT NULL, error_file TEXT NOT NULL,
  created_at INTEGER NOT NULL, in_progress_at INTEGER NOT NULL, expires_at INTEGER NOT NULL,
  finalizing_at INTEGER NOT NULL, completed_at INTEGER NOT NULL, failed_at INTEGER NOT NULL,
  expired_at INTEGER NOT NULL, cancelling_at INTEGER NOT NULL, cancelled_at INTEGER NOT NULL,
  output_seconds INTEGER NOT NULL, error_code TEXT NOT NULL, error_message TEXT NOT NULL,
  total INTEGER NOT NULL DEFAULT 0, completed INTEGER NOT NULL DEFAULT 0, failed INTEGER NOT NULL DEFAULT 0,
  prompt_tokens INTEGER NOT NULL DEFAULT 0, cached_tokens INTEGER NOT NULL DEFAULT 0,
  completion_tokens INTEGER NOT NULL DEFAULT 0);
CREATE INDEX batches_by_status ON batches(status);
CREATE TABLE results(row INTEGER PRIMARY KEY, good INTEGER NOT NULL, prompt_tokens INTEGER NOT NULL,
  cached_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL, text TEXT NOT NULL);
PRAGMA application_id = 1297040723;
PRAGMA user_version = 1;
INSERT INTO files(id, name, purpose, bytes, created_at, expires_at) VALUES('file-old', 'n', 'batch', 1, 5, 0);
INSERT INTO batches(id, status, outcome, endpoint, model, input_file, completion_window, metadata, output_file,
  error_file, created_at, in_progress_at, expires_at, finalizing_at, completed_at, failed_at, expired_at,
  cancelling_at, cancelled_at, output_seconds, error_code, error_message)
  VALUES('batch_old', 2, 4, '/v1/completions', 'm', 'file-old', '24h', '', '', '', 5, 6, 99, 0, 0, 0, 0, 0, 0, 0,
  '', '');
INSERT INTO results VALUES((1 << 32) + 3, 1, 1, 0, 1, 'kept');
)sql";

TEST_F(SqliteStoreTest, AFileOfTheFirstVersionIsTakenOver) {
  for (const char* blobs : {"", "CREATE TABLE blobs(name TEXT PRIMARY KEY, bytes BLOB NOT NULL);"}) {
    fs::remove(path());
    {
      auto database = Database::open(path());
      ASSERT_TRUE(database.is_ok());
      ASSERT_TRUE((*database)->execute(kVersionOne).is_ok());
      ASSERT_TRUE((*database)->execute(blobs).is_ok());
    }
    for (int again = 0; again < 2; ++again) {
      auto store = open();
      ASSERT_NE(store, nullptr);
      EXPECT_EQ((*store->file("file-old"))->owner, "") << "nobody's";
      EXPECT_EQ((*store->file("file-old"))->checksum, "") << "not known";
      EXPECT_EQ(store->files({})->size(), 1u);
      EXPECT_TRUE(store->files({.owner = "ann"})->empty());
      EXPECT_EQ(store->unfinished()->front().id, "batch_old");
      EXPECT_THAT(*store->lines_done("batch_old"), ElementsAre(3));
      EXPECT_TRUE(store->put_blob("history/m", {}).is_ok());
    }
  }
}

TEST_F(SqliteStoreTest, AFullDiskChangesNothingAndPasses) {
  auto store = open();
  ASSERT_TRUE(store->add_batch(order("batch_1")).is_ok());
  ASSERT_TRUE(store->put_results("batch_1", std::vector{answer(1, true, "x")}).is_ok());
  ASSERT_TRUE(store->limit_pages(1).is_ok());
  const std::string large(100'000, 'x');
  const std::vector results{answer(2, true, "small"), answer(3, true, large)};
  const Status full = store->put_results("batch_1", results).status();
  EXPECT_EQ(full.code(), Code::kExhausted);
  EXPECT_THAT(full.message(), HasSubstr("disk is full"));
  EXPECT_THAT(*store->lines_done("batch_1"), ElementsAre(1)) << "half of it was kept";
  EXPECT_EQ((*store->batch("batch_1"))->completed, 1u);
  ASSERT_TRUE(store->limit_pages(1'000'000).is_ok());
  ASSERT_TRUE(store->put_results("batch_1", results).is_ok());
  EXPECT_THAT(*store->lines_done("batch_1"), ElementsAre(1, 2, 3));
}

TEST_F(SqliteStoreTest, OnlyTheLastRemovedFilesAreRemembered) {
  open().reset();
  {
    auto database = Database::open(path());
    ASSERT_TRUE(database.is_ok());
    const std::string last = std::to_string(kRemovedMax + 1);
    ASSERT_TRUE((*database)
                    ->execute(("INSERT INTO removed VALUES(1, 'file-1', 1), (2, 'file-2', 2), (" + last +
                               ", 'file-last', 3)").c_str())
                    .is_ok());
  }
  auto store = open();
  ASSERT_TRUE(store->put_file({"file-3", "n", "batch", 1, 5, 0}).is_ok());
  ASSERT_TRUE(store->remove_file("file-3").is_ok());
  EXPECT_EQ(store->files({.after = "file-2"}).status().code(), Code::kNotFound);
  EXPECT_TRUE(store->files({.after = "file-last"}).is_ok());
  EXPECT_TRUE(store->files({.after = "file-3"}).is_ok());
}

TEST_F(SqliteStoreTest, TheEndOfALargeBatchWritesLittle) {
  auto store = open();
  for (const char* id : {"batch_1", "batch_2", "batch_3"}) ASSERT_TRUE(store->add_batch(order(id)).is_ok());
  const std::string text(15'000, 'x');
  std::vector<LineResult> results;
  for (uint64_t line = 1; line <= 1500; ++line) results.push_back(answer(line, true, text));
  for (const char* id : {"batch_1", "batch_2"}) ASSERT_TRUE(store->put_results(id, results).is_ok());
  ASSERT_TRUE(store->put_results("batch_3", std::vector{answer(1, true, "x")}).is_ok());
  const auto end = [&](const char* id) {
    BatchRecord b = order(id);
    b.status = BatchStatus::kCompleted;
    ASSERT_TRUE(store->finish(b, BatchStatus::kValidating, {}).is_ok());
  };
  const auto journal_mib = [&] { return fs::file_size(path().string() + "-wal") >> 20; };
  end("batch_2");
  EXPECT_EQ(store->lines_done("batch_2")->size(), 1500u) << "the record alone is changed";
  store.reset();  // as a crash: the results are left over
  store = open();
  int pieces = 1;
  for (; *store->tidy(); ++pieces) {
  }
  EXPECT_EQ(pieces, 2);
  EXPECT_TRUE(store->lines_done("batch_2")->empty());
  EXPECT_LT(journal_mib(), 5u) << "22 MiB of results were written once more";
  end("batch_1");
  ASSERT_TRUE(*store->tidy());
  EXPECT_EQ(store->lines_done("batch_1")->size(), 500u);
  ASSERT_FALSE(*store->tidy());
  EXPECT_FALSE(*store->tidy()) << "nothing is left to do";
  EXPECT_LT(journal_mib(), 9u) << "as much as 1500 results at once took before";
  EXPECT_THAT(*store->lines_done("batch_3"), ElementsAre(1)) << "it is not over";
}

/// The counts are kept, not counted: whatever changes a batch has to change them, too.
TEST_F(SqliteStoreTest, CountsOfThousandsOfBatchesFollowEveryChange) {
  open();
  {
    auto database = Database::open(path());
    ASSERT_TRUE(database.is_ok());
    const Status made = (*database)->execute(
        "INSERT INTO batches(id, status, outcome, endpoint, model, input_file, completion_window, metadata, "
        "output_file, error_file, created_at, in_progress_at, "
        "expires_at, finalizing_at, completed_at, failed_at, expired_at, cancelling_at, cancelled_at, output_seconds, "
        "error_code, error_message) "
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 3999) "
        "SELECT 'batch_' || i, i % 8, 0, '/v1/completions', 'm', 'file-1', '24h', '', '', '', 5, 0, 99, 0, 0, 0, 0, 0, "
        "0, 0, '', '' FROM n");
    ASSERT_TRUE(made.is_ok()) << made.message();
  }
  auto store = open();
  std::vector<uint64_t> expected(8, 500);
  EXPECT_EQ(*store->count_batches(), expected);
  std::mt19937_64 random(3);
  for (int i = 0; i < 200; ++i) {
    auto known = *store->batch("batch_" + std::to_string(random() % 4000));
    ASSERT_TRUE(known);
    const BatchStatus from = known->status, wrong = static_cast<BatchStatus>((static_cast<int>(from) + 1) % 8);
    known->status = static_cast<BatchStatus>(random() % 8);
    const FileRecord file{"file-" + std::to_string(100 + i), "out", "batch_output", 1, 5, 0};
    const bool finish = random() % 2 == 0;
    EXPECT_EQ((finish ? store->finish(*known, wrong, std::span(&file, 1)) : store->change_batch(*known, wrong)).code(),
              kConflict);
    const Status changed =
        finish ? store->finish(*known, from, std::span(&file, 1)) : store->change_batch(*known, from);
    ASSERT_TRUE(changed.is_ok()) << changed.message();
    --expected[static_cast<size_t>(from)], ++expected[static_cast<size_t>(known->status)];
    ASSERT_EQ(*store->count_batches(), expected);
  }
  for (int twice = 0; twice < 2; ++twice) ASSERT_TRUE(store->add_batch(order("batch_new")).is_ok());
  ++expected[static_cast<size_t>(order("").status)];
  EXPECT_EQ(*store->count_batches(), expected);
  store.reset();
  EXPECT_EQ(*open()->count_batches(), expected) << "as the rows say";
}

TEST_F(SqliteStoreTest, ADamagedFileIsRefusedAndLeftAlone) {
  ASSERT_TRUE(open()->put_file({"file-1", std::string(20000, 'n'), "batch", 1, 5, 0}).is_ok());
  const auto size = fs::file_size(path());
  {
    std::fstream file(path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096);
    file << std::string(8192, '\xAB');
  }
  EXPECT_EQ(refusal().code(), Code::kCorrupt) << refusal().message();
  EXPECT_THAT(refusal().message(), HasSubstr(path().string()));
  EXPECT_EQ(fs::file_size(path()), size);
}

TEST_F(SqliteStoreTest, WhatIsNoStateIsRefused) {
  std::ofstream(path()) << std::string(5000, 'x');
  EXPECT_EQ(refusal().code(), Code::kInvalidArgument);
  EXPECT_THAT(refusal().message(), HasSubstr("not a state file"));
  fs::remove(path());
  ASSERT_TRUE((*Database::open(path().string()))->execute("CREATE TABLE theirs(x)").is_ok());
  EXPECT_THAT(refusal().message(), HasSubstr("another program's database"));
}

TEST_F(SqliteStoreTest, ALaterVersionIsRefused) {
  open().reset();
  ASSERT_TRUE((*Database::open(path().string()))->execute("PRAGMA user_version = 9").is_ok());
  EXPECT_EQ(refusal().code(), Code::kUnsupported);
  EXPECT_THAT(refusal().message(), HasSubstr("version 9"));
}

TEST_F(SqliteStoreTest, ASecondOrchestratorIsRefusedUntilTheFirstIsGone) {
  int pipe_fds[2];
  ASSERT_EQ(::pipe(pipe_fds), 0);
  const pid_t other = ::fork();
  if (other == 0) {
    const auto store = SqliteStore::open(path());
    [[maybe_unused]] const ssize_t n = ::write(pipe_fds[1], store.is_ok() ? "y" : "n", 1);
    ::pause();
    ::_exit(0);
  }
  char opened = 0;
  ASSERT_EQ(::read(pipe_fds[0], &opened, 1), 1);
  ASSERT_EQ(opened, 'y');
  EXPECT_THAT(refusal().message(), HasSubstr("belongs to another orchestrator"));
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
  EXPECT_NE(open(), nullptr);
  ::close(pipe_fds[0]), ::close(pipe_fds[1]);
}

TEST(StatePlaceTest, Settings) {
  EXPECT_EQ(state_place("default", "/run/x")->database, "/run/x/state/batches.db");
  EXPECT_EQ(state_place("sqlite:/a/b.db", "/run/x")->database, "/a/b.db");
  EXPECT_EQ(state_place("/a/../c.db", "/run/x")->files, "/c.db.files");
  EXPECT_EQ(state_place("redis://h:1/2", "/run/x")->redis->database, 2);
  EXPECT_EQ(state_place("postgres://h", "/run/x").status().code(), Code::kUnsupported);
  EXPECT_THAT(state_place("postgres://h", "/run/x").status().message(), HasSubstr("postgres://h"));
  EXPECT_EQ(state_place("sqlite:", "/run/x").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(state_place("", "/run/x").status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace moestro::orchestrator
