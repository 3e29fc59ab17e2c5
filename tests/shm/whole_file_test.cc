#include "common/shm/whole_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <sstream>

#include "tests/arena/mounted.h"
#include "tests/pack/synthetic_checkpoint.h"

namespace moestro::shm {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(WholeFile, IsReplacedWithItsRights) {
  const testing::TemporaryDirectory dir;
  const fs::path path = dir / "file";
  ASSERT_TRUE(write_whole_file(path, "a long first text\n"));
  ASSERT_TRUE(write_whole_file(path, "short\n", 0644));
  EXPECT_EQ(text_of(path), "short\n");
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0644u);
  EXPECT_FALSE(fs::exists(path.string() + ".part"));
}

TEST(WholeFile, WhatWasKeptForItIsWrittenOverAndNotLeftBehind) {
  const testing::TemporaryDirectory dir;
  const fs::path path = dir / "file";
  ASSERT_TRUE(reserve_whole_file(path, 100));
  EXPECT_FALSE(fs::exists(path));
  ASSERT_TRUE(write_whole_file(path, "8080\n"));
  EXPECT_EQ(text_of(path), "8080\n");
  put_aside(path);
  EXPECT_FALSE(fs::exists(path));
  put_aside(path);  // nothing is there
  ASSERT_TRUE(write_whole_file(path, "1\n"));
  EXPECT_EQ(text_of(path), "1\n");
}

TEST(WholeFile, AFullFileSystemHasRoomForWhatWasKept) {
  const testing::Mounted tmpfs("tmpfs", "mode=0700,size=64k");
  if (!tmpfs.mounted) GTEST_SKIP() << "no right to mount a small tmpfs";
  const fs::path path = tmpfs.path / "file";
  ASSERT_TRUE(reserve_whole_file(path, 8));
  std::ofstream(tmpfs.path / "all-the-rest") << std::string(1 << 20, 'x');
  const Status other = write_whole_file(tmpfs.path / "other", "x");
  EXPECT_EQ(other.code(), Code::kIo) << "it is full";
  for (const char* text : {"8080\n", "65535\n", "1\n"}) {
    const Status written = write_whole_file(path, text);
    ASSERT_TRUE(written) << written.message();
    EXPECT_EQ(text_of(path), text);
    put_aside(path);
  }
}

}  // namespace
}  // namespace moestro::shm
