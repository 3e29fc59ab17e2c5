// A state on a small disk that is full to the last block: what frees room is done, what needs more is refused.

#include <gmock/gmock.h>
#include <sys/mount.h>

#include <cerrno>
#include <fstream>

#include "orchestrator/state/room_reserve.h"
#include "orchestrator/state/sqlite_store.h"
#include "tests/cli/temp_dir.h"

namespace moestro::orchestrator {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class FullDisk : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::mount("none", dir_.path().c_str(), "tmpfs", 0, "size=2m") != 0)
      GTEST_SKIP() << "no right to mount a small file system";
    mounted_ = true;
    open();
  }
  void TearDown() override {
    store_.reset();
    if (mounted_) EXPECT_EQ(::umount(dir_.path().c_str()), 0);
  }
  void open() {
    store_.reset();
    auto opened = SqliteStore::open(path());
    ASSERT_TRUE(opened.is_ok()) << opened.status().message();
    store_ = std::move(*opened);
  }
  fs::path path() const { return dir_ / "state.db"; }
  fs::path reserve() const { return path().string() + ".reserve"; }
  /// Another program takes what there is.
  void fill() const {
    std::ofstream file(dir_ / "filler", std::ios::binary | std::ios::app);
    const std::string block(4096, 'f');
    while (file.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {
    }
    EXPECT_EQ(fs::space(dir_.path()).available, 0u);
  }
  static FileRecord file(const std::string& id) { return {id, "in.jsonl", "batch", 1, 5, 10}; }
  static BatchRecord batch() {
    BatchRecord b;
    b.id = "batch_1", b.input_file = "file-9", b.model = "m", b.status = BatchStatus::kInProgress, b.total = 9;
    return b;
  }

  test::TempDir dir_;
  bool mounted_ = false;
  std::unique_ptr<SqliteStore> store_;
};

TEST_F(FullDisk, FilesAndResponsesCanBeDeletedAndBatchesCancelled) {
  for (int i = 1; i < 5; ++i) ASSERT_TRUE(store_->put_file(file("file-" + std::to_string(i))).is_ok());
  ASSERT_TRUE(store_->add_batch(batch()).is_ok());
  ASSERT_TRUE(store_->put_response({"resp_1", "", 5, "{}"}, {.created_after = 0, .bytes_max = 100}).is_ok());
  fill();
  ASSERT_TRUE(fs::exists(reserve()));
  Status full = Status::ok();
  for (uint64_t line = 1; full.is_ok() && line < 2000; ++line)  // the journal may have a little room left
    full = store_->put_results("batch_1", std::vector{LineResult{line, true, std::string(500, 'r')}}).status();
  EXPECT_EQ(full.code(), Code::kExhausted);
  EXPECT_THAT(full.message(), HasSubstr("disk is full"));
  EXPECT_TRUE(fs::exists(reserve())) << "it is not for what makes the state larger";

  EXPECT_TRUE(store_->remove_file("file-1").is_ok());
  EXPECT_TRUE(store_->remove_response("resp_1").is_ok());
  EXPECT_FALSE(fs::exists(reserve()));
  open();
  EXPECT_TRUE(store_->remove_file("file-2").is_ok()) << "after a restart as well";
  EXPECT_EQ(store_->expired_files(10)->size(), 2u);
  BatchRecord b = batch();
  b.status = BatchStatus::kCancelling;
  EXPECT_TRUE(store_->change_batch(b, BatchStatus::kInProgress).is_ok());
  EXPECT_EQ((*store_->batch("batch_1"))->status, BatchStatus::kCancelling);

  fs::remove(dir_ / "filler");
  EXPECT_TRUE(store_->put_file(file("file-7")).is_ok());
  EXPECT_TRUE(fs::exists(reserve())) << "made again";
}

TEST_F(FullDisk, TheReserveTakesRealRoomAndIsMadeWhole) {
  store_.reset();
  fs::remove(reserve());
  std::ofstream(reserve()) << "cut short by a crash";
  RoomReserve one(reserve());
  ASSERT_TRUE(one.hold().is_ok());
  const auto before = fs::space(dir_.path()).available;
  EXPECT_TRUE(one.give_up());
  EXPECT_EQ(fs::space(dir_.path()).available, before + static_cast<uintmax_t>(RoomReserve::kBytes));
  EXPECT_FALSE(one.give_up()) << "there is none";
  fill();
  EXPECT_EQ(one.hold().code(), Code::kExhausted);
  EXPECT_FALSE(fs::exists(reserve()));
  fs::resize_file(dir_ / "filler", fs::file_size(dir_ / "filler") - RoomReserve::kBytes / 2);
  open();
  EXPECT_EQ(store_->put_file(file("file-7")).code(), Code::kExhausted) << "what room there is is for deletions";
  EXPECT_TRUE(store_->remove_file("file-7").is_ok());
}

}  // namespace
}  // namespace moestro::orchestrator
