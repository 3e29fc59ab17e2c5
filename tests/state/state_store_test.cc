// What holds for every state: what is kept, what is counted once, and that what was done by another is not undone.

#include "orchestrator/state/state_store.h"

#include <gmock/gmock.h>

#include "tests/state/state_backends.h"

namespace moestro::orchestrator {
namespace {

using test::Backend;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

BatchRecord batch(const std::string& id) {
  BatchRecord b;
  b.id = id, b.endpoint = "/v1/completions", b.model = "m", b.input_file = "file-1", b.completion_window = "24h",
  b.created_at = 5, b.expires_at = 99;
  return b;
}
LineResult result(uint64_t line, bool good, std::string text) { return {line, good, std::move(text), 3, 1, 2}; }

class StateTest : public ::testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    if (GetParam() == Backend::kRedis && !test::RedisServer::is_installed())
      GTEST_SKIP() << "redis-server is not installed";
    box_.emplace(GetParam());
    reopen();
  }
  void reopen() {
    opened_ = {};  // SQLite has one owner
    opened_ = box_->open();
    state_ = opened_.state.get();
    if (state_->shared() != nullptr) ASSERT_TRUE(state_->shared()->beat({"1", {"m"}}).is_ok());
  }
  /// The file with its bytes, and its record.
  Status put(const FileRecord& file) {
    MOESTRO_RETURN_IF_ERROR(put_bytes(file));
    return state_->put_file(file);
  }
  Status put_bytes(const FileRecord& file) {
    MOESTRO_ASSIGN_OR_RETURN(const auto part, opened_.files->create(file.id));
    MOESTRO_RETURN_IF_ERROR(part->write(std::string(file.bytes, 'b')));
    return part->commit();
  }
  uint64_t count(BatchStatus status) { return (*state_->count_batches())[static_cast<size_t>(status)]; }

  std::optional<test::StateBox> box_;
  test::StateBox::Opened opened_;
  StateStore* state_ = nullptr;
};

TEST_P(StateTest, WhatWasPutIsThereAfterAnotherOpen) {
  {
      ASSERT_TRUE(put({"file-1", "in.jsonl", "batch", 10, 5, 0}).is_ok());
    BatchRecord b = batch("batch_1");
    b.metadata = R"({"a":"b"})", b.error_code = "c", b.error_message = "m", b.output_seconds = 7, b.cancelling_at = 8,
    b.total = 4;
    ASSERT_TRUE(state_->add_batch(b).is_ok());
    ASSERT_TRUE(state_->put_results("batch_1", std::vector{result(2, true, "two"), result(1, false, "one")}).is_ok());
  }
  reopen();
  const auto file = state_->file("file-1");
  ASSERT_TRUE(file.is_ok() && file->has_value());
  EXPECT_EQ((*file)->name, "in.jsonl");
  EXPECT_EQ((*file)->bytes, 10u);
  const auto unfinished = state_->unfinished();
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
  EXPECT_THAT(*state_->lines_done("batch_1"), ElementsAre(1, 2));
}

TEST_P(StateTest, ALineKeepsItsFirstResultAndIsCountedOnce) {
  ASSERT_TRUE(state_->add_batch(batch("batch_1")).is_ok());
  ASSERT_TRUE(state_->add_batch(batch("batch_2")).is_ok());
  ASSERT_TRUE(state_->put_results("batch_1", std::vector{result(7, true, "first")}).is_ok());
  const auto counts =
      *state_->put_results("batch_1", std::vector{result(7, false, "second"), result(8, true, "third")});
  EXPECT_EQ(std::pair(counts.good, counts.bad), std::pair(uint64_t{1}, uint64_t{0})) << "what was stored";
  ASSERT_TRUE(state_->put_results("batch_2", std::vector{result(7, true, "other")}).is_ok());
  const auto kept = *state_->results("batch_1", 0, 10);
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_EQ(kept[0].text, "first");
  EXPECT_TRUE(kept[0].good);
  EXPECT_EQ(kept[1].text, "third");
  EXPECT_THAT(*state_->results("batch_1", 8, 10), IsEmpty());
  EXPECT_EQ((*state_->batch("batch_1"))->completed, 2u);
  EXPECT_EQ((*state_->batch("batch_1"))->failed, 0u);
  EXPECT_EQ((*state_->batch("batch_2"))->completed, 1u);
}

TEST_P(StateTest, ABatchThatIsOverKeepsItsCountsAndItsFiles) {
  BatchRecord b = batch("batch_1");
  ASSERT_TRUE(state_->add_batch(b).is_ok());
  ASSERT_TRUE(state_->put_results("batch_1", std::vector{result(1, true, "x")}).is_ok());
  b.status = BatchStatus::kCompleted, b.completed_at = 50, b.output_file = "file-out";
  const FileRecord output{"file-out", "o", "batch_output", 2, 50, 60};
  ASSERT_TRUE(put_bytes(output).is_ok());
  const Status ended = state_->finish(b, BatchStatus::kValidating, std::vector{output});
  ASSERT_TRUE(ended.is_ok()) << ended.message();
  EXPECT_EQ((*state_->batch("batch_1"))->completed, 1u) << "the caller's counts are not the state's";
  while (*state_->tidy()) {
  }
  EXPECT_THAT(*state_->lines_done("batch_1"), IsEmpty());
  EXPECT_THAT(*state_->unfinished(), IsEmpty());
  EXPECT_EQ(count(BatchStatus::kCompleted), 1u);
  EXPECT_EQ(count(BatchStatus::kValidating), 0u);
  EXPECT_THAT(*state_->expired_files(59), IsEmpty());
  EXPECT_EQ(state_->expired_files(60)->size(), 1u);
}

TEST_P(StateTest, ListsComeInPages) {
  for (const char* id : {"a", "b", "c", "d"})
    ASSERT_TRUE(put({std::string("file-") + id, id, id[0] == 'c' ? "batch_output" : "batch", 1, 5, 0}).is_ok());
  const auto names = [&](const ListQuery& query) {
    const auto page = state_->files(query);
    std::string all = page.is_ok() ? "" : page.status().message();
    for (size_t i = 0; page.is_ok() && i < page->size(); ++i) all += (*page)[i].name;
    return all;
  };
  EXPECT_EQ(names({.limit = 3}), "dcb");
  EXPECT_EQ(names({.after = "file-b", .limit = 3}), "a");
  EXPECT_EQ(names({.after = "file-b", .limit = 3, .ascending = true}), "cd");
  EXPECT_EQ(names({.purpose = "batch", .limit = 9}), "dba");
  EXPECT_EQ(state_->files({.after = "file-nobody"}).status().code(), Code::kNotFound);
  EXPECT_EQ(state_->batches({.after = "batch_nobody"}).status().code(), Code::kNotFound);
  ASSERT_TRUE(state_->remove_file("file-d").is_ok());
  EXPECT_EQ(names({.limit = 9}), "cba");
  ASSERT_TRUE(state_->remove_file("file-b").is_ok());
  ASSERT_TRUE(state_->remove_file("file-b").is_ok()) << "again";
  EXPECT_EQ(names({.after = "file-b", .limit = 9}), "a") << "where it was";
  EXPECT_EQ(state_->batches({.after = "file-b"}).status().code(), Code::kNotFound) << "it was no batch";
  EXPECT_EQ(names({.after = "file-b", .limit = 9, .ascending = true}), "c");
  EXPECT_EQ(names({.after = "file-d", .purpose = "batch", .limit = 9}), "a");
}

TEST_P(StateTest, OwnersHaveTheirOwnLists) {
  for (const char* id : {"a", "b", "c", "d"}) {
    const std::string owner = id[0] < 'c' ? "ann" : "bob";
    ASSERT_TRUE(
        put({std::string("file-") + id, id, id[0] == 'b' ? "batch_output" : "batch", 1, 5, 0, "sum", owner}).is_ok());
    BatchRecord b = batch(std::string("batch_") + id);
    b.owner = owner;
    ASSERT_TRUE(state_->add_batch(b).is_ok());
  }
  reopen();
  const auto ids = [](const auto& page) {
    std::vector<std::string> all;
    for (const auto& record : *page) all.push_back(record.id);
    return all;
  };
  EXPECT_EQ((*state_->file("file-a"))->owner, "ann");
  EXPECT_EQ((*state_->batch("batch_d"))->owner, "bob");
  EXPECT_THAT(ids(state_->files({.owner = "ann"})), ElementsAre("file-b", "file-a"));
  EXPECT_THAT(ids(state_->files({.purpose = "batch", .owner = "ann"})), ElementsAre("file-a"));
  EXPECT_THAT(ids(state_->files({.after = "file-d", .owner = "bob"})), ElementsAre("file-c"));
  EXPECT_THAT(ids(state_->files({.owner = ""})), IsEmpty());
  EXPECT_EQ(state_->files({})->size(), 4u);
  EXPECT_THAT(ids(state_->batches({.owner = "bob", .limit = 1})), ElementsAre("batch_d"));
  EXPECT_THAT(ids(state_->batches({.after = "batch_b", .owner = "ann", .ascending = true})), IsEmpty());
  ASSERT_TRUE(state_->remove_file("file-a").is_ok());
  EXPECT_THAT(ids(state_->files({.owner = "ann"})), ElementsAre("file-b"));
}

TEST_P(StateTest, ABlobIsWhatWasPutLast) {
  const auto bytes = [](std::string_view text) { return std::as_bytes(std::span(text)); };
  {
    EXPECT_FALSE(state_->blob("history/m")->has_value());
    ASSERT_TRUE(state_->put_blob("history/m", bytes(std::string_view("a\0b", 3))).is_ok());
    ASSERT_TRUE(state_->put_blob("history/n", {}).is_ok());
    ASSERT_TRUE(state_->put_blob("history/m", bytes(std::string_view("c\0\xFF" "d", 4))).is_ok());
  }
  reopen();
  const auto kept = *state_->blob("history/m");
  ASSERT_TRUE(kept);
  EXPECT_THAT(*kept, ElementsAre(std::byte{'c'}, std::byte{0}, std::byte{0xFF}, std::byte{'d'}));
  const auto empty = *state_->blob("history/n");
  ASSERT_TRUE(empty);
  EXPECT_THAT(*empty, IsEmpty());
}

TEST_P(StateTest, BatchesAreCountedByStatusAsTheyMove) {
  for (const char* id : {"batch_1", "batch_2", "batch_3"}) ASSERT_TRUE(state_->add_batch(batch(id)).is_ok());
  ASSERT_TRUE(state_->add_batch(batch("batch_3")).is_ok()) << "a call may be made again";
  EXPECT_EQ(count(BatchStatus::kValidating), 3u);
  BatchRecord b = batch("batch_2");
  for (uint64_t line = 1; line <= 9; ++line)
    ASSERT_TRUE(state_->put_results("batch_2", std::vector{LineResult{line, false, "bad", 0, 0, 0}}).is_ok());
  b.status = BatchStatus::kInProgress, b.total = 9;
  ASSERT_TRUE(state_->change_batch(b, BatchStatus::kValidating).is_ok());
  EXPECT_EQ(count(BatchStatus::kValidating), 2u);
  EXPECT_EQ(count(BatchStatus::kInProgress), 1u);
  EXPECT_EQ((*state_->batch("batch_2"))->total, 9u);
  reopen();
  EXPECT_EQ(count(BatchStatus::kValidating), 2u);
  EXPECT_EQ(count(BatchStatus::kInProgress), 1u);
}

TEST_P(StateTest, WhoComesTooLateChangesNothing) {
  ASSERT_TRUE(state_->add_batch(batch("batch_1")).is_ok());
  BatchRecord b = batch("batch_1");
  b.status = BatchStatus::kCancelling;
  ASSERT_TRUE(state_->change_batch(b, BatchStatus::kValidating).is_ok());
  BatchRecord late = batch("batch_1");
  late.status = BatchStatus::kInProgress;
  EXPECT_EQ(state_->change_batch(late, BatchStatus::kValidating).code(), kConflict);
  late.status = BatchStatus::kFailed;
  EXPECT_EQ(state_->finish(late, BatchStatus::kInProgress, {}).code(), kConflict);
  EXPECT_EQ((*state_->batch("batch_1"))->status, BatchStatus::kCancelling);
  EXPECT_EQ(state_->unfinished()->size(), 1u);
}

TEST_P(StateTest, ResultsOfABatchThatIsBeingWrittenAreDropped) {
  BatchRecord b = batch("batch_1");
  ASSERT_TRUE(state_->add_batch(b).is_ok());
  ASSERT_TRUE(state_->put_results("batch_1", std::vector{result(1, true, "in time")}).is_ok());
  b.status = BatchStatus::kFinalizing, b.output_file = "file-out";
  ASSERT_TRUE(state_->change_batch(b, BatchStatus::kValidating).is_ok());
  ASSERT_TRUE(state_->put_results("batch_1", std::vector{result(2, true, "too late")}).is_ok());
  EXPECT_THAT(*state_->lines_done("batch_1"), ElementsAre(1));
  EXPECT_EQ((*state_->batch("batch_1"))->completed, 1u);
}

TEST_P(StateTest, TheInputOfABatchThatIsNotOverStays) {
  ASSERT_TRUE(put({"file-1", "in.jsonl", "batch", 10, 5, 0}).is_ok());
  BatchRecord b = batch("batch_1");
  ASSERT_TRUE(state_->add_batch(b).is_ok());
  const Status refused = state_->remove_file("file-1");
  EXPECT_EQ(refused.code(), kConflict);
  EXPECT_THAT(refused.message(), HasSubstr("batch_1"));
  b.status = BatchStatus::kFailed;
  ASSERT_TRUE(state_->finish(b, BatchStatus::kValidating, {}).is_ok());
  EXPECT_TRUE(state_->remove_file("file-1").is_ok());
  EXPECT_FALSE((*state_->file("file-1")).has_value());
}

TEST_P(StateTest, ExpiredFilesInUseDoNotHideOthers) {
  for (int i = 0; i < 120; ++i) {
    const std::string id = "file-" + std::to_string(1000 + i);
    ASSERT_TRUE(state_->put_file({id, "in.jsonl", "batch", 0, 5, 10 + i}).is_ok());
    if (i == 115 || i == 117) continue;
    BatchRecord b = batch("batch_" + std::to_string(i));
    b.input_file = id;
    ASSERT_TRUE(state_->add_batch(b).is_ok());
  }
  const auto expired = state_->expired_files(10 + 116);
  ASSERT_TRUE(expired.is_ok()) << expired.status().message();
  ASSERT_EQ(expired->size(), 1u);
  EXPECT_EQ(expired->front().id, "file-1115");
  EXPECT_EQ(state_->expired_files(1000)->size(), 2u);
}

TEST_P(StateTest, ResultsOfManyLinesComeInPagesAndInOrder) {
  ASSERT_TRUE(state_->add_batch(batch("batch_1")).is_ok());
  std::vector<LineResult> all;
  for (uint64_t line = 70'000; line > 0; line -= 700)
    all.push_back(result(line, line % 2 == 0, std::string(line % 5000, 'r') + "\n"));
  ASSERT_TRUE(state_->put_results("batch_1", all).is_ok());
  uint64_t after = 0, seen = 0;
  for (;;) {
    const auto page = state_->results("batch_1", after, 7);
    ASSERT_TRUE(page.is_ok()) << page.status().message();
    if (page->empty()) break;
    ASSERT_LE(page->size(), 7u);
    for (const LineResult& r : *page) {
      EXPECT_EQ(r.line, after + 700);
      EXPECT_EQ(r.good, r.line % 2 == 0);
      EXPECT_EQ(r.text.size(), r.line % 5000 + 1);
      EXPECT_EQ(r.prompt_tokens * 100 + r.cached_tokens * 10 + r.completion_tokens, 312u);
      after = r.line;
      ++seen;
    }
  }
  EXPECT_EQ(seen, 100u);
}

TEST_P(StateTest, BytesOfFilesAreReadFromAnywhere) {
  std::string text;
  for (int i = 0; text.size() < 700'000; ++i) text += std::to_string(i) + "\n";
  {
    const auto part = std::move(*opened_.files->create("file-x"));
    for (size_t at = 0; at < text.size(); at += 50'001)
      ASSERT_TRUE(part->write(std::string_view(text).substr(at, 50'001)).is_ok());
    ASSERT_TRUE(part->commit().is_ok());
    EXPECT_EQ(part->sum().bytes(), text.size());
  }
  ASSERT_TRUE(state_->put_file({"file-x", "x", "batch", text.size(), 5, 0}).is_ok());
  reopen();
  const auto bytes = opened_.files->open("file-x");
  ASSERT_TRUE(bytes.is_ok()) << bytes.status().message();
  for (const size_t at : {size_t{0}, size_t{262'143}, size_t{262'144}, text.size() - 5, size_t{100'000}}) {
    std::string read;
    while (read.size() < 300'000) {
      const auto piece = (*bytes)->read(at + read.size(), 300'000 - read.size());
      ASSERT_TRUE(piece.is_ok()) << piece.status().message();
      if (piece->empty()) break;
      read += *piece;
    }
    EXPECT_EQ(read, text.substr(at, 300'000)) << at;
  }
  EXPECT_TRUE((*bytes)->read(text.size(), 10)->empty());
  ASSERT_TRUE(state_->remove_file("file-x").is_ok());
  opened_.files->remove("file-x");
  EXPECT_FALSE(opened_.files->open("file-x").is_ok());
}

TEST_P(StateTest, APartThatWasNotCommittedIsNoFile) {
  {
    const auto part = std::move(*opened_.files->create("file-x"));
    ASSERT_TRUE(part->write(std::string(600'000, 'x')).is_ok());
  }
  EXPECT_FALSE(opened_.files->open("file-x").is_ok());
}

TEST_P(StateTest, ResponsesAreKeptWithinTheirLimits) {
  const ResponseLimits limits{.created_after = 0, .bytes_max = 10};
  const auto put = [&](const std::string& id, int64_t at, const std::string& text, const ResponseLimits& l) {
    return state_->put_response({id, "ann", at, text}, l);
  };
  const auto is_there = [&](const std::string& id) { return state_->response(id)->has_value(); };
  ASSERT_TRUE(put("resp_1", 5, "12345", limits).is_ok());
  ASSERT_TRUE(put("resp_2", 6, "123", limits).is_ok());
  reopen();
  const auto first = state_->response("resp_1");
  ASSERT_TRUE(first.is_ok() && *first);
  EXPECT_EQ((*first)->owner, "ann");
  EXPECT_EQ((*first)->created_at, 5);
  EXPECT_EQ((*first)->text, "12345");
  ASSERT_TRUE(put("resp_2", 7, "other", limits).is_ok()) << "it is there, and stays";
  EXPECT_EQ((*state_->response("resp_2"))->text, "123");
  ASSERT_TRUE(put("resp_3", 8, "123", limits).is_ok()) << "12 bytes are too many";
  EXPECT_FALSE(is_there("resp_1"));
  EXPECT_TRUE(is_there("resp_2") && is_there("resp_3"));
  ASSERT_TRUE(state_->remove_response("resp_2").is_ok());
  ASSERT_TRUE(state_->remove_response("resp_2").is_ok()) << "again";
  EXPECT_FALSE(is_there("resp_2"));
  ASSERT_TRUE(put("resp_4", 9, "1234567", limits).is_ok()) << "as many as there is room for now";
  EXPECT_TRUE(is_there("resp_3") && is_there("resp_4"));
  EXPECT_EQ(put("resp_5", 10, "12345678901", limits).code(), Code::kExhausted);
  EXPECT_TRUE(is_there("resp_3")) << "nothing is forgotten for what is not kept";
  ASSERT_TRUE(put("resp_6", 10, "", {.created_after = 8, .bytes_max = 10}).is_ok());
  EXPECT_FALSE(is_there("resp_3")) << "too old";
  EXPECT_TRUE(is_there("resp_4") && is_there("resp_6"));
}

INSTANTIATE_TEST_SUITE_P(Every, StateTest, ::testing::Values(Backend::kSqlite, Backend::kRedis),
                         [](const auto& each) { return test::backend_name(each.param); });

}  // namespace
}  // namespace moestro::orchestrator
