// The state: what is kept, what is refused, and that a call that failed has changed nothing.

#include "orchestrator/state/sqlite_store.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "orchestrator/state/open_state.h"
#include "tests/cli/temp_dir.h"

namespace moestro::orchestrator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
namespace fs = std::filesystem;

BatchRecord batch(const std::string& id) {
  BatchRecord b;
  b.id = id, b.endpoint = "/v1/completions", b.model = "m", b.input_file = "file-1", b.completion_window = "24h", b.created_at = 5, b.expires_at = 99;
  return b;
}
LineResult result(uint64_t line, bool good, std::string text) { return {line, good, std::move(text), 3, 1, 2}; }

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

TEST_F(SqliteStoreTest, WhatWasPutIsThereAfterAnotherOpen) {
  {
    auto store = open();
    ASSERT_TRUE(store->put_file({"file-1", "in.jsonl", "batch", 10, 5, 0}).is_ok());
    BatchRecord b = batch("batch_1");
    b.metadata = R"({"a":"b"})", b.error_code = "c", b.error_message = "m", b.output_seconds = 7, b.cancelling_at = 8, b.total = 4;
    ASSERT_TRUE(store->put_batch(b).is_ok());
    ASSERT_TRUE(store->put_results("batch_1", std::vector{result(2, true, "two"), result(1, false, "one")}).is_ok());
  }
  auto store = open();
  const auto file = store->file("file-1");
  ASSERT_TRUE(file.is_ok() && file->has_value());
  EXPECT_EQ((*file)->name, "in.jsonl");
  EXPECT_EQ((*file)->bytes, 10u);
  const auto unfinished = store->unfinished();
  ASSERT_TRUE(unfinished.is_ok());
  ASSERT_EQ(unfinished->size(), 1u);
  const BatchRecord& b = unfinished->front();
  EXPECT_EQ(b.metadata, R"({"a":"b"})");
  EXPECT_EQ(b.error_code + b.error_message, "cm");
  EXPECT_EQ(b.output_seconds, 7);
  EXPECT_EQ(b.cancelling_at, 8);
  EXPECT_EQ(b.completed, 1u);
  EXPECT_EQ(b.failed, 1u);
  EXPECT_EQ(b.prompt_tokens, 6u);
  EXPECT_EQ(b.completion_tokens, 4u);
  EXPECT_THAT(*store->lines_done("batch_1"), ElementsAre(1, 2));
}

TEST_F(SqliteStoreTest, ABlobIsWhatWasPutLast) {
  const auto bytes = [](std::string_view text) { return std::as_bytes(std::span(text)); };
  {
    auto store = open();
    EXPECT_FALSE(store->blob("history/m")->has_value());
    ASSERT_TRUE(store->put_blob("history/m", bytes(std::string_view("a\0b", 3))).is_ok());
    ASSERT_TRUE(store->put_blob("history/n", {}).is_ok());
    ASSERT_TRUE(store->put_blob("history/m", bytes(std::string_view("c\0\xFF" "d", 4))).is_ok());
  }
  auto store = open();
  const auto kept = *store->blob("history/m");
  ASSERT_TRUE(kept);
  EXPECT_THAT(*kept, ElementsAre(std::byte{'c'}, std::byte{0}, std::byte{0xFF}, std::byte{'d'}));
  const auto empty = *store->blob("history/n");
  ASSERT_TRUE(empty);
  EXPECT_THAT(*empty, IsEmpty());
}

TEST_F(SqliteStoreTest, AFileFromBeforeThereWereBlobsGetsThem) {
  open();
  {
    auto database = Database::open(path());
    ASSERT_TRUE(database.is_ok() && (*database)->execute("DROP TABLE blobs").is_ok());
  }
  auto store = open();
  EXPECT_TRUE(store->put_blob("history/m", {}).is_ok());
}

TEST_F(SqliteStoreTest, ALineKeepsItsFirstResultAndIsCountedOnce) {
  auto store = open();
  ASSERT_TRUE(store->put_batch(batch("batch_1")).is_ok());
  ASSERT_TRUE(store->put_batch(batch("batch_2")).is_ok());
  ASSERT_TRUE(store->put_results("batch_1", std::vector{result(7, true, "first")}).is_ok());
  ASSERT_TRUE(store->put_results("batch_1", std::vector{result(7, false, "second"), result(8, true, "third")}).is_ok());
  ASSERT_TRUE(store->put_results("batch_2", std::vector{result(7, true, "other")}).is_ok());
  const auto kept = *store->results("batch_1", 0, 10);
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_EQ(kept[0].text, "first");
  EXPECT_TRUE(kept[0].good);
  EXPECT_EQ(kept[1].text, "third");
  EXPECT_THAT(*store->results("batch_1", 8, 10), IsEmpty());
  EXPECT_EQ((*store->batch("batch_1"))->completed, 2u);
  EXPECT_EQ((*store->batch("batch_1"))->failed, 0u);
  EXPECT_EQ((*store->batch("batch_2"))->completed, 1u);
}

TEST_F(SqliteStoreTest, ABatchThatIsOverKeepsItsCountsAndItsFiles) {
  auto store = open();
  BatchRecord b = batch("batch_1");
  ASSERT_TRUE(store->put_batch(b).is_ok());
  ASSERT_TRUE(store->put_results("batch_1", std::vector{result(1, true, "x")}).is_ok());
  b.status = BatchStatus::kCompleted, b.completed_at = 50, b.output_file = "file-out";
  ASSERT_TRUE(store->finish(b, std::vector<FileRecord>{{"file-out", "o", "batch_output", 2, 50, 60}}).is_ok());
  EXPECT_EQ((*store->batch("batch_1"))->completed, 1u) << "the caller's counts are not the state's";
  EXPECT_THAT(*store->lines_done("batch_1"), IsEmpty());
  EXPECT_THAT(*store->unfinished(), IsEmpty());
  EXPECT_EQ((*store->count_batches())[static_cast<size_t>(BatchStatus::kCompleted)], 1u);
  EXPECT_THAT(*store->expired_files(59), IsEmpty());
  EXPECT_EQ(store->expired_files(60)->size(), 1u);
}

TEST_F(SqliteStoreTest, ListsComeInPages) {
  auto store = open();
  for (const char* id : {"a", "b", "c", "d"})
    ASSERT_TRUE(store->put_file({std::string("file-") + id, id, id[0] == 'c' ? "batch_output" : "batch", 1, 5, 0}).is_ok());
  const auto names = [&](const ListQuery& query) {
    const auto page = store->files(query);
    std::string all = page.is_ok() ? "" : page.status().message();
    for (size_t i = 0; page.is_ok() && i < page->size(); ++i) all += (*page)[i].name;
    return all;
  };
  EXPECT_EQ(names({.limit = 3}), "dcb");
  EXPECT_EQ(names({.after = "file-b", .limit = 3}), "a");
  EXPECT_EQ(names({.after = "file-b", .limit = 3, .ascending = true}), "cd");
  EXPECT_EQ(names({.purpose = "batch", .limit = 9}), "dba");
  EXPECT_EQ(names({.after = "file-nobody", .limit = 9}), "");
  ASSERT_TRUE(store->remove_file("file-d").is_ok());
  EXPECT_EQ(names({.limit = 9}), "cba");
}

TEST_F(SqliteStoreTest, AFullDiskChangesNothingAndPasses) {
  auto store = open();
  ASSERT_TRUE(store->put_batch(batch("batch_1")).is_ok());
  ASSERT_TRUE(store->put_results("batch_1", std::vector{result(1, true, "x")}).is_ok());
  ASSERT_TRUE(store->limit_pages(1).is_ok());
  const std::string large(100'000, 'x');
  const Status full = store->put_results("batch_1", std::vector{result(2, true, "small"), result(3, true, large)});
  EXPECT_EQ(full.code(), Code::kExhausted);
  EXPECT_THAT(full.message(), HasSubstr("disk is full"));
  EXPECT_THAT(*store->lines_done("batch_1"), ElementsAre(1)) << "half of it was kept";
  EXPECT_EQ((*store->batch("batch_1"))->completed, 1u);
  ASSERT_TRUE(store->limit_pages(1'000'000).is_ok());
  ASSERT_TRUE(store->put_results("batch_1", std::vector{result(2, true, "small"), result(3, true, large)}).is_ok());
  EXPECT_THAT(*store->lines_done("batch_1"), ElementsAre(1, 2, 3));
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
  EXPECT_EQ(refusal().code(), Code::kCorrupt);
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
  EXPECT_EQ(state_place("redis://h:1/0", "/run/x").status().code(), Code::kUnsupported);
  EXPECT_THAT(state_place("redis://h:1/0", "/run/x").status().message(), HasSubstr("redis://h:1/0"));
  EXPECT_EQ(state_place("sqlite:", "/run/x").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(state_place("", "/run/x").status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace moestro::orchestrator
