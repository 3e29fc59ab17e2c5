#include "common/activation/history.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/activation/random_requests.h"

namespace moestro::activation {
namespace {

constexpr EamcShape kShape{3, 8, 2};
constexpr uint64_t kPack = 0x1122334455667788;

ActivationHistory some_history() {
  RandomRequests requests(kShape, 3, 29);
  ActivationHistory history(kShape, 5);
  for (int32_t i = 0; i < 9; ++i) history.add({[&] {
    RequestCounts counts(kShape);
    if (i % 2 == 0) counts.prompt = requests.matrix(i % 3, 30);
    counts.answer = requests.matrix(i % 3, 12);
    return counts;
  }()});
  return history;
}

void expect_empty(const ActivationHistory& history) {
  EXPECT_EQ(history.prompts.size(), 0);
  EXPECT_EQ(history.answers.size(), 0);
}

TEST(ActivationHistory, KeepsPromptsAndAnswersApartAndNoFewTokens) {
  RandomRequests requests(kShape, 1, 31);
  ActivationHistory history(kShape, 5);
  RequestCounts counts(kShape);
  counts.prompt = requests.matrix(0, 9);
  counts.answer = requests.matrix(0, 3);
  const auto changes = history.add(counts);
  EXPECT_TRUE(changes.prompt);
  EXPECT_FALSE(changes.answer);
  counts.answer = requests.matrix(0, 4);
  EXPECT_TRUE(history.add(counts).answer);
  EXPECT_EQ(history.prompts.size(), 2);
  EXPECT_EQ(history.answers.size(), 1);
}

TEST(HistoryCheckpoint, ComesBackAsItWas) {
  const ActivationHistory history = some_history();
  ActivationHistory read(kShape, 5);
  ASSERT_TRUE(read_checkpoint(write_checkpoint(history, kPack), kPack, read).is_ok());
  ASSERT_EQ(read.prompts.size(), history.prompts.size());
  ASSERT_EQ(read.answers.size(), history.answers.size());
  for (int32_t i = 0; i < read.prompts.size(); ++i)
    EXPECT_TRUE(std::ranges::equal(read.prompts.cells(i), history.prompts.cells(i)));
  for (int32_t i = 0; i < read.answers.size(); ++i)
    EXPECT_TRUE(std::ranges::equal(read.answers.cells(i), history.answers.cells(i)));
}

TEST(HistoryCheckpoint, ASmallerCapacityTakesWhatFits) {
  ActivationHistory read(kShape, 2);
  ASSERT_TRUE(read_checkpoint(write_checkpoint(some_history(), kPack), kPack, read).is_ok());
  EXPECT_EQ(read.prompts.size(), 2);
  EXPECT_EQ(read.answers.size(), 2);
}

TEST(HistoryCheckpoint, EveryCutAndEveryFlippedBitIsRefusedAndLeavesItEmpty) {
  const std::vector<std::byte> whole = write_checkpoint(some_history(), kPack);
  ActivationHistory read(kShape, 5);
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_EQ(read_checkpoint(std::span(whole).first(length), kPack, read).code(), Code::kCorrupt) << length;
    expect_empty(read);
  }
  for (size_t at = 0; at < whole.size(); ++at) {
    std::vector<std::byte> damaged = whole;
    damaged[at] ^= std::byte{1} << (at % 8);
    EXPECT_FALSE(read_checkpoint(damaged, kPack, read).is_ok()) << at;
    expect_empty(read);
  }
}

TEST(HistoryCheckpoint, AForeignOneIsRefusedByName) {
  const std::vector<std::byte> bytes = write_checkpoint(some_history(), kPack);
  ActivationHistory read(kShape, 5), other(EamcShape{3, 9, 2}, 5);
  EXPECT_EQ(read_checkpoint(bytes, kPack + 1, read).code(), Code::kInvalidArgument);
  EXPECT_EQ(read_checkpoint(bytes, kPack, other).code(), Code::kInvalidArgument);
  std::vector<std::byte> later = bytes;
  later[8] = std::byte{2};
  EXPECT_EQ(read_checkpoint(later, kPack, read).code(), Code::kUnsupported);
}

TEST(HistoryCheckpoint, TheFormatIsWhatItWas) {
  ActivationHistory history(EamcShape{1, 4, 1}, 3);
  const std::vector<uint8_t> cells{255, 0, 0, 0};
  ASSERT_TRUE(history.answers.set(0, cells).is_ok());
  std::string text;
  for (const std::byte b : write_checkpoint(history, kPack)) {
    constexpr char kDigits[] = "0123456789abcdef";
    text += kDigits[std::to_integer<unsigned>(b) >> 4], text += kDigits[std::to_integer<unsigned>(b) & 15];
  }
  EXPECT_EQ(text.substr(0, 80), "4d535445414d4331010000000100000004000000010000008877665544332211" "0000000001000000");
  EXPECT_EQ(text.substr(96), "ff000000");
  EXPECT_EQ(text.substr(80, 16), "d068bbc0be8c1f98");
}

}  // namespace
}  // namespace moestro::activation
