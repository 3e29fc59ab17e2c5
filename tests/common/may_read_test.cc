// Which command opens what this user may not read, and that what is not there is not called closed.

#include "common/may_read.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "tests/support/as_stranger.h"

namespace moestro {
namespace {

namespace fs = std::filesystem;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class MayRead : public ::testing::Test {
 protected:
  MayRead() {
    std::string pattern = (fs::temp_directory_path() / "moestro-read-XXXXXX").string();
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
    fs::permissions(dir_, fs::perms(0755));
    fs::create_directories(dir_ / "home" / "pack");
    std::ofstream(dir_ / "home" / "pack" / "manifest") << "x";
    open_again();
  }
  ~MayRead() override {
    open_again();
    fs::remove_all(dir_);
  }
  /// Of the owner too: it may run the tests.
  void close(const fs::path& path) { fs::permissions(path, fs::perms::none); }
  void open_again() {
    for (const fs::path& path : {home(), pack(), manifest()}) fs::permissions(path, fs::perms(0755));
  }
  fs::path home() const { return dir_ / "home"; }
  fs::path pack() const { return home() / "pack"; }
  fs::path manifest() const { return pack() / "manifest"; }

  static Status look(const fs::path& path, const fs::path& tree = {}) {
    const test::AsStranger stranger;
    return check_may_read(path, tree);
  }

  fs::path dir_;
};

TEST_F(MayRead, WhatIsOpenOrNotThere) {
  EXPECT_TRUE(look(manifest()));
  EXPECT_TRUE(look(manifest(), pack()));
  EXPECT_TRUE(look(pack()));
  EXPECT_TRUE(look(pack() / "none", pack()));
  EXPECT_TRUE(look(manifest() / "none")) << "no directory";
  EXPECT_TRUE(look(dir_ / "none" / "none"));
  EXPECT_TRUE(look(""));
}

TEST_F(MayRead, AFileOrTheTreeThatItIsIn) {
  close(manifest());
  const Status file = look(manifest());
  EXPECT_EQ(file.code(), Code::kInvalidArgument);
  EXPECT_THAT(file.message(), StartsWith(manifest().string() + ": user "));
  EXPECT_THAT(file.message(), EndsWith("may not read it; let its owner run: chmod a+r " + manifest().string()));
  EXPECT_THAT(look(manifest(), pack()).message(), EndsWith("chmod -R a+rX " + pack().string()));
  open_again();
  close(pack());
  EXPECT_THAT(look(manifest(), pack()).message(), EndsWith("chmod -R a+rX " + pack().string()));
  EXPECT_THAT(look(pack() / "none", pack()).message(), EndsWith("chmod -R a+rX " + pack().string()));
}

TEST_F(MayRead, ADirectoryAboveIsOpenedAlone) {
  close(home());
  for (const Status& status : {look(manifest(), pack()), look(pack()), look(manifest())}) {
    EXPECT_THAT(status.message(), HasSubstr("may not enter " + home().string() + " above it"));
    EXPECT_THAT(status.message(), HasSubstr("chmod a+x " + home().string() + ", or move it"));
  }
}

TEST_F(MayRead, ThroughLinks) {
  fs::create_directory_symlink("home/pack", dir_ / "link");
  fs::create_directory_symlink(dir_ / "link", dir_ / "again");
  fs::create_directory_symlink(dir_ / "round", dir_ / "round");
  EXPECT_TRUE(look(dir_ / "again" / "manifest", dir_ / "again"));
  EXPECT_TRUE(look(dir_ / "round" / "manifest"));
  close(home());
  EXPECT_THAT(look(dir_ / "again" / "manifest", dir_ / "again").message(),
              HasSubstr("may not enter " + home().string() + " above it"));
}

TEST_F(MayRead, RelativePathsAreFollowedFromHere) {
  const fs::path before = fs::current_path();
  fs::current_path(dir_);
  close(home());
  EXPECT_THAT(look("home/pack/manifest", "home/pack").message(),
              HasSubstr("home/pack: user " + std::to_string(::geteuid() == 0 ? 54321 : ::geteuid()) +
                        " may not enter " + home().string()));
  fs::current_path(before);
}

}  // namespace
}  // namespace moestro
