#include "common/shm/shrink_guard.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace moestro::shm {
namespace {

constexpr size_t kBytes = 64 << 10;

class ShrinkGuardTest : public ::testing::Test {
 protected:
  ShrinkGuardTest() {
    char name[] = "/tmp/moestro-shrink-XXXXXX";
    dir_ = ::mkdtemp(name);
  }
  ~ShrinkGuardTest() override { std::filesystem::remove_all(dir_); }
  MappedFile file(const char* name) {
    auto made = MappedFile::create(dir_ / name, kBytes, 0600);
    EXPECT_TRUE(made) << made.status().message();
    std::fill_n(made->data(), kBytes, std::byte{7});
    return std::move(*made);
  }
  std::filesystem::path dir_;
};

std::byte read_byte(const MappedFile& file, size_t at) {
  return *const_cast<const volatile std::byte*>(file.data() + at);
}

TEST_F(ShrinkGuardTest, WhatWasCutOffReadsAsZeros) {
  const MappedFile cut = file("cut"), whole = file("whole");
  const ShrinkGuard guard(cut), other(whole);
  ASSERT_EQ(::truncate((dir_ / "cut").c_str(), 0), 0);
  EXPECT_FALSE(guard.shrunk()) << "nobody has looked yet";
  EXPECT_EQ(read_byte(cut, 5000), std::byte{0});
  EXPECT_TRUE(guard.shrunk());
  EXPECT_EQ(read_byte(cut, 0), std::byte{0});
  EXPECT_EQ(read_byte(cut, kBytes - 1), std::byte{0});
  EXPECT_EQ(read_byte(whole, 5000), std::byte{7});
  EXPECT_FALSE(other.shrunk());
}

TEST_F(ShrinkGuardTest, GuardsAreMovedAndTheirPlacesUsedAgain) {
  const MappedFile cut = file("cut");
  ShrinkGuard first(cut);
  ShrinkGuard guard = std::move(first);
  ASSERT_EQ(::truncate((dir_ / "cut").c_str(), 4096), 0);
  EXPECT_EQ(read_byte(cut, 0), std::byte{7}) << "this page is still there";
  EXPECT_EQ(read_byte(cut, 8192), std::byte{0});
  EXPECT_TRUE(guard.shrunk());
  EXPECT_FALSE(first.shrunk());
  guard = ShrinkGuard();
  for (int i = 0; i < 2000; ++i) {
    const MappedFile another = file("another");
    EXPECT_FALSE(ShrinkGuard(another).shrunk());
  }
  EXPECT_FALSE(guard.shrunk());
}

TEST_F(ShrinkGuardTest, OtherFaultsEndTheProcessAsEver) {
  const MappedFile guarded = file("guarded"), bare = file("bare");
  const ShrinkGuard guard(guarded);
  ASSERT_EQ(::truncate((dir_ / "bare").c_str(), 0), 0);
  EXPECT_DEATH((void)read_byte(bare, 100), "");
}

}  // namespace
}  // namespace moestro::shm
