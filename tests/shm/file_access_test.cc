#include "common/shm/file_access.h"

#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

namespace moestro::shm {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class FileAccessTest : public ::testing::Test {
 protected:
  FileAccessTest() {
    char name[] = "/tmp/moestro-access-XXXXXX";
    dir_ = ::mkdtemp(name);
  }
  ~FileAccessTest() override { fs::remove_all(dir_); }
  static mode_t mode(const fs::path& path) {
    struct stat info {};
    ::lstat(path.c_str(), &info);
    return info.st_mode & 07777;
  }
  fs::path dir_;
};

TEST_F(FileAccessTest, WithoutAGroupEverythingIsTheUsersAlone) {
  const FileAccess access;
  ASSERT_TRUE(make_private_dir(dir_ / "a" / "run", access, "run directory"));
  EXPECT_EQ(mode(dir_ / "a" / "run"), 0700u);
  std::ofstream(dir_ / "file") << "x";
  ASSERT_TRUE(access.apply(dir_ / "file", access.shared()));
  EXPECT_EQ(mode(dir_ / "file"), 0600u);
  ASSERT_TRUE(access.apply(dir_ / "file", access.read_only()));
  EXPECT_EQ(mode(dir_ / "file"), 0400u);
}

TEST_F(FileAccessTest, AGroupMayEnterAndReadAndWriteOnlyWhatIsShared) {
  const FileAccess access{::getegid()};
  ASSERT_TRUE(make_private_dir(dir_ / "run", access, "run directory"));
  EXPECT_EQ(mode(dir_ / "run"), 0750u);
  EXPECT_EQ(access.read_only(), 0440u);
  EXPECT_EQ(access.shared(), 0660u);
  EXPECT_FALSE(open_to_strangers(dir_ / "run", access));
  EXPECT_TRUE(open_to_strangers(dir_ / "run", FileAccess{})) << "to whom the group means nothing, it is open";
}

TEST_F(FileAccessTest, ADirectoryThatOthersCanWriteToIsRefusedByName) {
  const fs::path run = dir_ / "run";
  fs::create_directory(run);
  for (const mode_t open : {0770, 0707, 0777, 01777}) {
    ::chmod(run.c_str(), open);
    const Status status = make_private_dir(run, {}, "run directory");
    ASSERT_EQ(status.code(), Code::kInvalidArgument) << std::oct << open;
    EXPECT_THAT(status.message(), HasSubstr("run directory " + run.string()));
    EXPECT_THAT(status.message(), HasSubstr("chmod go-w"));
  }
  ::chmod(run.c_str(), 0755);
  EXPECT_TRUE(make_private_dir(run, {}, "run directory"));
  EXPECT_TRUE(open_to_strangers(run, {}));
  ::chmod(run.c_str(), 0700);
  EXPECT_FALSE(open_to_strangers(run, {}));
}

TEST_F(FileAccessTest, ADirectoryOfAnotherUserIsRefusedByName) {
  const fs::path theirs = dir_ / "theirs";
  fs::create_directory(theirs);
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(theirs.c_str(), 12345, 12345), 0);
    EXPECT_THAT(make_private_dir(theirs, {}, "run directory").message(), HasSubstr("belongs to user 12345"));
    EXPECT_FALSE(check_private_dir(theirs, "payload directory", true));
  } else {
    EXPECT_THAT(make_private_dir("/", {}, "run directory").message(), HasSubstr("belongs to user 0"));
    EXPECT_TRUE(check_private_dir("/", "payload directory", true));
  }
}

TEST_F(FileAccessTest, WhatIsNoDirectoryIsRefused) {
  std::ofstream(dir_ / "file") << "x";
  EXPECT_THAT(make_private_dir(dir_ / "file", {}, "run directory").message(), HasSubstr("is not a directory"));
}

TEST_F(FileAccessTest, AWayThatAnotherUserCanTurnIsRefused) {
  const fs::path above = dir_ / "above", run = above / "run";
  fs::create_directories(run);
  EXPECT_TRUE(check_way(run, "run directory"));
  for (const mode_t open : {0707, 0777}) {
    ::chmod(above.c_str(), open);
    const Status status = check_way(run, "run directory");
    EXPECT_THAT(status.message(), HasSubstr(above.string() + " is open to writing by others")) << std::oct << open;
  }
  ::chmod(above.c_str(), 01777);
  EXPECT_TRUE(check_way(run, "run directory")) << "as /tmp is";
  ::chmod(above.c_str(), 0755);
  const fs::path link = dir_ / "link";
  fs::create_directory_symlink("above", link);
  EXPECT_TRUE(check_way(link / "run", "run directory")) << "our own link";
  ::chmod(above.c_str(), 0777);
  EXPECT_THAT(check_way(link / "run", "run directory").message(), HasSubstr("open to writing"));
  ::chmod(above.c_str(), 0755);
  fs::create_directory_symlink("loop", dir_ / "loop");
  EXPECT_EQ(check_way(dir_ / "loop" / "run", "run directory").code(), Code::kIo);
  if (::geteuid() != 0) return;
  ASSERT_EQ(::lchown(link.c_str(), 12345, 12345), 0);
  EXPECT_THAT(check_way(link / "run", "run directory").message(), HasSubstr("link belongs to user 12345"));
  ASSERT_EQ(::chown(above.c_str(), 12345, 12345), 0);
  EXPECT_THAT(check_way(run, "run directory").message(), HasSubstr("above belongs to user 12345"));
}

TEST_F(FileAccessTest, AClosedDirectoryIsOursAndLetsTheGroupInAlone) {
  const fs::path run = dir_ / "run";
  ASSERT_TRUE(make_closed_dir(run, {}, "run directory"));
  EXPECT_EQ(mode(run), 0700u);
  const FileAccess access{::getegid()};
  ASSERT_TRUE(make_closed_dir(run, access, "run directory"));
  EXPECT_EQ(mode(run), 0750u) << "one from before gets it, too";
  EXPECT_TRUE(make_closed_dir(run, access, "run directory"));
  EXPECT_THAT(make_closed_dir(run, {}, "run directory").message(), HasSubstr("chmod 700"));
  ::chmod(run.c_str(), 0770);
  EXPECT_FALSE(make_closed_dir(run, access, "run directory")) << "members could replace what lies in it";
  ::chmod(run.c_str(), 0750);
  fs::create_directory_symlink(run, dir_ / "link");
  EXPECT_THAT(make_closed_dir(dir_ / "link", access, "run directory").message(), HasSubstr("is not a directory"));
  ::chmod(dir_.c_str(), 0700);
  const FileAccess strangers{static_cast<gid_t>(12345)};
  EXPECT_THAT(check_group_reaches(run, strangers, "run directory").message(),
              HasSubstr(dir_.string() + " has mode 0700"));
  ::chmod(dir_.c_str(), 0711);
  EXPECT_TRUE(check_group_reaches(run, access, "run directory"));
  EXPECT_THAT(check_group_reaches(run, strangers, "run directory").message(), HasSubstr("members of group 12345"));
  EXPECT_TRUE(check_group_reaches("/nowhere", {}, "run directory")) << "without a group there is nothing to ask";
}

TEST_F(FileAccessTest, GroupsByNameAndNumber) {
  EXPECT_EQ(access_for_group("")->group, std::nullopt);
  EXPECT_EQ(access_for_group("10000")->group, gid_t{10000});
  const struct group* mine = ::getgrgid(::getegid());
  if (mine != nullptr) EXPECT_EQ(access_for_group(mine->gr_name)->group, ::getegid());
  EXPECT_THAT(access_for_group("no-such-group-here").status().message(), HasSubstr("no group 'no-such-group-here'"));
  EXPECT_EQ(access_for_group("99999999999999999999").status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace moestro::shm
