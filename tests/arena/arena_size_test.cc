// How large an arena is made, and the lines while it is backed.

#include "store/arena/arena_size.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/arena/backing_progress.h"

namespace moestro::store {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
constexpr uint64_t kMiB = 1 << 20, kGiB = 1 << 30;

void set_memory(ArenaRoom& room, uint64_t left, uint64_t limit, const std::string& whose, uint64_t others = 0) {
  room.left = {left, limit, whose}, room.left_beside = {left - others, limit, whose};
  room.limit = {limit, limit, whose}, room.limit_beside = {limit - others, limit, whose};
}

ArenaRoom roomy() {
  ArenaRoom room;
  room.place = "/arena";
  room.place_bytes = 64 * kGiB;
  set_memory(room, 60 * kGiB, 64 * kGiB, "this machine");
  return room;
}

uint64_t chosen(const ArenaWish& wish, const ArenaRoom& room) {
  const auto bytes = choose_arena_bytes(wish, room, 4096);
  EXPECT_TRUE(bytes) << bytes.status().message();
  return bytes ? *bytes : 0;
}
std::string refusal(const ArenaWish& wish, const ArenaRoom& room) {
  const auto bytes = choose_arena_bytes(wish, room, 4096);
  EXPECT_FALSE(bytes) << *bytes;
  if (bytes) return {};
  EXPECT_EQ(bytes.status().code(), Code::kExhausted);
  return bytes.status().message();
}

TEST(ArenaSize, WhatWasAskedForIsTheSameHoweverLittleIsFree) {
  const ArenaWish wish{16 * kGiB + 100, 8 * kGiB + 5000, kGiB, 0, 0};
  EXPECT_EQ(asked_arena_bytes(wish, 4096), 8 * kGiB + 4096);
  ArenaRoom full = roomy();
  full.place_bytes = 0;
  set_memory(full, 0, 64 * kGiB, "this machine");
  EXPECT_FALSE(choose_arena_bytes(wish, full, 4096));
  EXPECT_EQ(chosen(wish, roomy()), asked_arena_bytes(wish, 4096))
      << "so an arena that takes all there is can be adopted";
  EXPECT_EQ(asked_arena_bytes({std::nullopt, 8 * kGiB, kGiB, 0, 0}, 4096), std::nullopt) << "whatever it has will do";
}

TEST(ArenaSize, NeverMoreThanThePacksNeed) {
  EXPECT_EQ(chosen({std::nullopt, 8 * kGiB, kGiB, 0, 0}, roomy()), 8 * kGiB);
  EXPECT_EQ(chosen({16 * kGiB, 8 * kGiB, kGiB, 0, 0}, roomy()), 8 * kGiB);
  EXPECT_EQ(chosen({4 * kGiB + 5, 8 * kGiB, kGiB, 0, 0}, roomy()), 4 * kGiB) << "whole pages";
}

TEST(ArenaSize, OfItsOwnChoiceItLeavesWorkersAndTheRestTheirMemory) {
  ArenaRoom room = roomy();
  set_memory(room, 6 * kGiB, 64 * kGiB, "this machine", 2 * kGiB);
  EXPECT_EQ(chosen({std::nullopt, 8 * kGiB, kGiB, 0, 2 * kGiB}, room), 4 * kGiB - 256 * kMiB);
  room.place_bytes = 3 * kGiB;
  EXPECT_EQ(chosen({std::nullopt, 8 * kGiB, kGiB, 0, 2 * kGiB}, room), 3 * kGiB);
}

TEST(ArenaSize, AFileSystemThatKeepsItSmallIsNamed) {
  ArenaRoom room = roomy();
  const ArenaWish wish{std::nullopt, 90 * kGiB, kGiB, 0, 0};
  room.place_bytes = 30 * kGiB, room.mount_bytes = 32 * kGiB, room.mount = "/dev/shm";
  EXPECT_THAT(kept_small_by_place(wish, room, chosen(wish, room)),
              AllOf(HasSubstr("need 92160 MiB"), HasSubstr("room for 61184 MiB of it"), HasSubstr("only for 30720 MiB"),
                    HasSubstr("mount -o remount,size=63232M /dev/shm")));
  EXPECT_EQ(kept_small_by_place({20 * kGiB, 90 * kGiB, kGiB, 0, 0}, room, 20 * kGiB), "") << "it was asked for";
  EXPECT_EQ(kept_small_by_place({std::nullopt, 20 * kGiB, kGiB, 0, 0}, room, 20 * kGiB), "") << "all fits";
  room.place_bytes = 64 * kGiB;
  EXPECT_EQ(kept_small_by_place(wish, room, chosen(wish, room)), "") << "memory keeps it small";
}

TEST(ArenaSize, WhatToDoAboutASmallTmpfsIsACommand) {
  ArenaRoom room = roomy();
  room.place_bytes = 3 * kGiB, room.mount_bytes = 4 * kGiB, room.mount = "/dev/shm";
  EXPECT_THAT(refusal({5 * kGiB, 8 * kGiB, kGiB, 0, 0}, room), HasSubstr("mount -o remount,size=6144M /dev/shm"));
  room.place_bytes = kGiB / 2;
  EXPECT_THAT(refusal({std::nullopt, 8 * kGiB, kGiB, 0, 0}, room),
              HasSubstr("mount -o remount,size=4608M /dev/shm"));
}

TEST(ArenaSize, ACgroupsLimitIsNamed) {
  ArenaRoom room = roomy();
  set_memory(room, 3 * kGiB, 4 * kGiB, "cgroup /box", 2 * kGiB);
  EXPECT_THAT(
      refusal({5 * kGiB, 8 * kGiB, kGiB, 0, 0}, room),
      AllOf(HasSubstr("cgroup /box"), HasSubstr("3072 MiB"), HasSubstr("lower --dram"), HasSubstr("raise that limit")));
  EXPECT_THAT(refusal({3 * kGiB, 8 * kGiB, kGiB, 0, 2 * kGiB}, room),
              AllOf(HasSubstr("2048 MiB for the workers"), HasSubstr("--kv-tokens")));
  EXPECT_EQ(chosen({2 * kGiB, 8 * kGiB, kGiB, 0, 2 * kGiB}, room), 2 * kGiB) << "the limit is for both together";
  EXPECT_THAT(refusal({std::nullopt, 8 * kGiB, 2 * kGiB, 0, 2 * kGiB}, room),
              AllOf(HasSubstr("at least 2048 MiB"), HasSubstr("cgroup /box")));
}

TEST(ArenaSize, AFullFileSystemIsNamed) {
  ArenaRoom room = roomy();
  room.place_bytes = 64 * kMiB;
  EXPECT_THAT(refusal({kGiB, 8 * kGiB, kGiB, 0, 0}, room),
              AllOf(HasSubstr("/arena, which has 64 MiB free"), HasSubstr("larger tmpfs")));
  EXPECT_THAT(refusal({std::nullopt, 8 * kGiB, kGiB, 0, 0}, room),
              AllOf(HasSubstr("/arena"), HasSubstr("64 MiB free")));
}

TEST(ArenaSize, PagesSetAsideAreInNobodysLimit) {
  ArenaRoom room = roomy();
  room.set_aside = true, room.place_bytes = 8 * kGiB, room.page_bytes = 2 * kMiB;
  set_memory(room, kGiB, kGiB, "this machine");
  EXPECT_EQ(chosen({8 * kGiB, 9 * kGiB, kGiB, 0, kGiB}, room), 8 * kGiB);
  EXPECT_EQ(chosen({std::nullopt, 9 * kGiB, kGiB, 0, kGiB}, room), 8 * kGiB);
  EXPECT_THAT(
      refusal({9 * kGiB, 9 * kGiB, kGiB, 0, 0}, room),
      AllOf(HasSubstr("8192 MiB are free"), HasSubstr("512 more pages of 2048 KiB"), HasSubstr("nr_hugepages")));
  room.place_bytes = 3 * kMiB;
  EXPECT_THAT(refusal({std::nullopt, 9 * kGiB, 8 * kMiB, 0, 0}, room), HasSubstr("set aside 3 more pages"));
}

TEST(ArenaSize, TooLittleForTheDenseWeightsSaysAllTheNumbers) {
  ArenaRoom room = roomy();
  set_memory(room, 3 * kGiB, 4 * kGiB, "cgroup /box", kGiB);
  EXPECT_THAT(refusal({std::nullopt, 64 * kGiB, 5 * kGiB, 4 * kGiB, kGiB}, room),
              AllOf(HasSubstr("at least 5120 MiB (dense weights 4096 MiB,"), HasSubstr("room for 1792 MiB in /arena"),
                    HasSubstr("3072 MiB of memory are left"), HasSubstr("limit: 4096 MiB, of cgroup /box"),
                    HasSubstr("workers need 1024 MiB")));
}

TEST(ArenaSize, OnADiskTheDiskIsTheLimit) {
  ArenaRoom room = roomy();
  room.in_memory = false;
  set_memory(room, kGiB, 64 * kGiB, "this machine");
  EXPECT_EQ(chosen({8 * kGiB, 8 * kGiB, kGiB, 0, 0}, room), 8 * kGiB);
}

TEST(BackingProgress, SaysBytesRateAndTimeLeft) {
  const BackingProgress::TimePoint start{};
  BackingProgress progress(8 * kGiB, start);
  EXPECT_EQ(progress.line(kGiB / 2, start + std::chrono::seconds(1)), std::nullopt) << "short ones say nothing";
  EXPECT_EQ(progress.line(kGiB, start + std::chrono::seconds(2)), "1.0 of 8.0 GiB, 0.50 GiB/s, 14 s left");
  EXPECT_EQ(progress.line(kGiB * 5 / 4, start + std::chrono::milliseconds(3900)), std::nullopt);
  EXPECT_EQ(progress.line(2 * kGiB, start + std::chrono::seconds(4)), "2.0 of 8.0 GiB, 0.50 GiB/s, 12 s left");
}

}  // namespace
}  // namespace moestro::store
