#include "tests/activation/shared_history.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <thread>

#include "common/shm/descriptor_socket.h"
#include "tests/activation/random_requests.h"
#include "tests/cli/temp_dir.h"
#include "tests/support/places.h"

namespace moestro::activation {
namespace {

using testing::chosen;
using testing::content;
using testing::match_whole_entries;
using testing::shared_history;

constexpr EamcShape kShape{3, 8, 2};
constexpr HistoryExpected kExpected{70, 7, kShape};

HistoryMapping map(const ActivationHistory& history) {
  auto mapped = testing::map(history, {70, 7, history.answers.shape()});
  MOESTRO_CHECK(mapped.is_ok(), mapped.status().message());
  return std::move(*mapped);
}

TEST(SharedHistory, IsMatchedToTheBitAsOneOfThisProcess) {
  for (const EamcShape shape : {EamcShape{3, 8, 2}, EamcShape{5, 60, 7}}) {
    ActivationHistory shared = shared_history(shape, 150), own(shape, 150);
    const HistoryMapping mapping = map(shared);
    RandomRequests requests(shape, 4, 17);
    EamcMatcher of_shared(mapping.view().answers, 6), of_own(own.view().answers, 6);
    std::vector<uint8_t> a(static_cast<size_t>(shape.experts)), b(a);
    for (int32_t token = 0; token < 40; ++token) {
      for (int32_t i = 0; i < 6; ++i) {  // it fills up, and then entries are replaced
        RequestCounts counts(shape);
        counts.answer = requests.matrix(i % 4, 12);
        shared.add(counts), own.add(counts);
      }
      of_shared.begin_iteration(), of_own.begin_iteration();
      for (int32_t layer = 0; layer < shape.layers; ++layer) {
        const auto row = requests.token(1, layer);
        of_shared.add_row(layer, row, 1), of_own.add_row(layer, row, 1);
        const auto best = of_shared.best(9), expected = of_own.best(9);
        ASSERT_EQ(best.size(), expected.size());
        for (size_t i = 0; i < best.size(); ++i) {
          ASSERT_EQ(best[i].entry, expected[i].entry);
          ASSERT_EQ(best[i].score, expected[i].score);
          ASSERT_TRUE(of_shared.read_row(best[i], layer, a) && of_own.read_row(expected[i], layer, b));
          ASSERT_EQ(a, b);
        }
      }
      of_shared.end_iteration(), of_own.end_iteration();
    }
    EXPECT_EQ(shared.answers.size(), 150);
  }
}

TEST(SharedHistory, ACheckpointIsReadIntoItAndWrittenFromIt) {
  ActivationHistory shared = shared_history(kShape, 5), own(kShape, 5);
  for (uint32_t c = 0; c < 4; ++c) ASSERT_TRUE(shared.prompts.set(static_cast<int32_t>(c), content(kShape, c)).is_ok());
  ASSERT_TRUE(shared.answers.set(0, content(kShape, 6)).is_ok());
  const std::vector<std::byte> checkpoint = write_checkpoint(shared, 7);
  ASSERT_TRUE(read_checkpoint(checkpoint, 7, own).is_ok());
  EXPECT_EQ(write_checkpoint(own, 7), checkpoint);

  ActivationHistory other = shared_history(kShape, 5);
  const HistoryMapping mapping = map(other);
  ASSERT_TRUE(read_checkpoint(checkpoint, 7, other).is_ok());
  EXPECT_EQ(mapping.view().prompts.size(), 4);
  EXPECT_EQ(match_whole_entries(mapping.view().prompts, 2), 1U);
  EXPECT_EQ(match_whole_entries(mapping.view().answers, 6), 1U);
  EXPECT_FALSE(read_checkpoint(std::span(checkpoint).first(60), 7, other).is_ok());
  EXPECT_EQ(mapping.view().prompts.size(), 0) << "what is refused leaves it empty, for readers, too";
  EXPECT_EQ(match_whole_entries(mapping.view().prompts, 2), 0U);
}

TEST(SharedHistory, IsHandedOutForReadingOnly) {
  const test::TempDir dir;
  ActivationHistory history = shared_history(kShape, 5);
  const auto socket = history_socket("ipc://" + (dir / "o.sock").string());
  ASSERT_EQ(socket, dir / "o.history");
  auto server = shm::DescriptorServer::listen(*socket, history.memory()->fd(), {});
  ASSERT_TRUE(server.is_ok()) << server.status().message();
  const auto mapped = HistoryMapping::receive(*socket, kExpected, std::chrono::seconds(10));
  ASSERT_TRUE(mapped.is_ok()) << mapped.status().message();
  ASSERT_TRUE(history.answers.set(0, content(kShape, 3)).is_ok());
  EXPECT_EQ(match_whole_entries(mapped->view().answers, 3), 1U) << "what is written is seen";
  const auto fd = shm::receive_descriptor(*socket, std::chrono::seconds(10));
  ASSERT_TRUE(fd.is_ok());
  EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd->get(), 0), MAP_FAILED);
  EXPECT_NE(ftruncate(history.memory()->fd(), 0), 0) << "not even its owner cuts it short";
  server->reset();
  EXPECT_EQ(HistoryMapping::receive(*socket, kExpected, std::chrono::seconds(10)).status().code(), Code::kUnavailable);
}

TEST(SharedHistory, OnlyEndpointsOfThisHostHaveASocketBeside) {
  EXPECT_EQ(history_socket("ipc:///run/m/orchestrator.sock"), "/run/m/orchestrator.history");
  EXPECT_EQ(history_socket("ipc://run/orchestrator.sock"), "run/orchestrator.history");
  for (const char* elsewhere : {"tcp://10.0.0.5:7000", "ipc://@name", "ipc://", "inproc://a", ""})
    EXPECT_EQ(history_socket(elsewhere), std::nullopt) << elsewhere;
}

/// The bytes of a shared history, to be damaged.
struct Bytes {
  explicit Bytes(const ActivationHistory& history)
      : size(history.memory()->size()), at(new (std::align_val_t(64)) std::byte[size]) {
    std::memcpy(at.get(), history.memory()->data(), size);
  }
  struct Free {
    void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t(64)); }
  };
  std::span<const std::byte> span() const { return {at.get(), size}; }
  HistoryHead& head() { return *reinterpret_cast<HistoryHead*>(at.get()); }
  void check_anew() { head().checksum = XXH3_64bits(&head(), offsetof(HistoryHead, checksum)); }
  size_t size;
  std::unique_ptr<std::byte[], Free> at;
};

TEST(SharedHistory, WhatIsNotTheOneExpectedIsRefusedByName) {
  const ActivationHistory history = shared_history(kShape, 5);
  ASSERT_TRUE(view_history(Bytes(history).span(), kExpected).is_ok());
  for (size_t at = 0; at < sizeof(HistoryHead); ++at) {
    Bytes damaged(history);
    damaged.at[at] ^= std::byte{1} << (at % 8);
    EXPECT_FALSE(view_history(damaged.span(), kExpected).is_ok()) << at;
  }
  const Bytes whole(history);
  for (const size_t length : {size_t{0}, size_t{63}, size_t{4095}, size_t{4096},
                              static_cast<size_t>(history_bytes(eamc_layout(3, 8, 5))) - 1})
    EXPECT_EQ(view_history(whole.span().first(length), kExpected).status().code(), Code::kCorrupt) << length;
  Bytes later(history);
  later.head().version = 2;
  EXPECT_EQ(view_history(later.span(), kExpected).status().code(), Code::kUnsupported);
  EXPECT_EQ(view_history(whole.span(), {71, 7, kShape}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(view_history(whole.span(), {70, 8, kShape}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(view_history(whole.span(), {70, 7, {3, 8, 1}}).status().code(), Code::kInvalidArgument);
  for (const auto change :
       {+[](HistoryHead& h) { h.capacity = 1U << 31; }, +[](HistoryHead& h) { h.layers = UINT32_MAX; },
        +[](HistoryHead& h) { h.experts = 1U << 31; }, +[](HistoryHead& h) { h.capacity = 1000; },
        +[](HistoryHead& h) { h.bytes = 0; }}) {
    Bytes absurd(history);  // whose checksum is right
    change(absurd.head());
    absurd.check_anew();
    EXPECT_EQ(view_history(absurd.span(), kExpected).status().code(), Code::kCorrupt);
  }
}

TEST(SharedHistory, MemoryThatCouldBeCutShortIsRefused) {
  const ActivationHistory history = shared_history(kShape, 5);
  auto loose = shm::MappedFile::anonymous("loose", history.memory()->size(), 0600);
  ASSERT_TRUE(loose.is_ok());
  std::memcpy(loose->data(), history.memory()->data(), loose->size());
  EXPECT_EQ(HistoryMapping::of(shm::UniqueFd(::dup(loose->fd())), kExpected).status().code(), Code::kInvalidArgument);
  ASSERT_TRUE(loose->seal().is_ok());
  EXPECT_TRUE(HistoryMapping::of(shm::UniqueFd(::dup(loose->fd())), kExpected).is_ok());
}

TEST(SharedHistory, ASizeThatNoReaderTakesIsNotMade) {
  EXPECT_EQ(ActivationHistory::shared({60, 1024, 8}, 65536, 7, 70).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(ActivationHistory::shared({60, 1 << 17, 8}, 1, 7, 70).status().code(), Code::kInvalidArgument);
}

TEST(SharedHistory, TheFormatIsWhatItWas) {
  const EamcShape shape{2, 4, 1};
  ActivationHistory history = shared_history(shape, 2, 0x1122334455667788, 0x99);
  ASSERT_TRUE(history.prompts.set(0, content(shape, 1)).is_ok());
  ASSERT_TRUE(history.answers.set(0, std::vector<uint8_t>{1, 2, 3, 4, 5, 6, 7, 8}).is_ok());
  ASSERT_TRUE(history.answers.set(1, content(shape, 3)).is_ok());
  ASSERT_TRUE(history.answers.set(1, content(shape, 2)).is_ok());
  const auto path = test::source_dir() / "tests/activation/golden/shared_history_v1.bin";
  std::ifstream file(path, std::ios::binary);
  const std::string golden{std::istreambuf_iterator<char>(file), {}};
  const std::string now(reinterpret_cast<const char*>(history.memory()->data()), history_bytes(eamc_layout(2, 4, 2)));
  EXPECT_EQ(now.size(), 7296U);
  EXPECT_TRUE(now == golden);
}

TEST(SharedHistory, WhoFollowsIsMatchedAnewAndNothingOfTheFormerIsLeft) {
  ActivationHistory first = shared_history(kShape, 5), second = shared_history(kShape, 100);
  HistoryView view = map(first).view();
  const HistoryMapping one = map(first), other = map(second);
  view = one.view();
  EamcMatcher matcher(view.answers, 24);
  const auto token = [&](uint32_t expert) {
    matcher.begin_iteration();
    for (int32_t layer = 0; layer < kShape.layers; ++layer) matcher.add_row(layer, chosen(layer, expert), 1);
    matcher.end_iteration();
  };
  ASSERT_TRUE(first.answers.set(0, content(kShape, 3)).is_ok());
  token(3);
  ASSERT_EQ(matcher.best(4).size(), 1U);
  for (int32_t i = 0; i < 90; ++i) ASSERT_TRUE(second.answers.set(i, content(kShape, i == 77 ? 3 : 4)).is_ok());
  view = other.view();
  matcher.begin_iteration();
  ASSERT_EQ(matcher.best(4).size(), 1U) << "the request's earlier token is matched with all of the new one's entries";
  EXPECT_EQ(matcher.best(4)[0].entry, 77);
}

TEST(SharedHistory, NoReaderUsesWhatIsHalfWritten) {
  const EamcShape shape{6, 16, 1};
  ActivationHistory history = shared_history(shape, 70);
  const HistoryMapping mapping = map(history);
  for (int32_t i = 0; i < 70; ++i)
    ASSERT_TRUE(history.answers.set(i, content(shape, static_cast<uint32_t>(i) % 16)).is_ok());
  std::atomic<bool> stop{false};
  std::vector<std::thread> readers;
  std::array<std::atomic<size_t>, 2> found{};
  for (uint32_t r = 0; r < 2; ++r)
    readers.emplace_back([&, r] {
      for (uint32_t i = r; !stop.load(); ++i) found[r] += match_whole_entries(mapping.view().answers, i % 16);
    });
  std::mt19937 random(5);
  while (found[0] < 5000 || found[1] < 5000)
    ASSERT_TRUE(history.answers.set(static_cast<int32_t>(random() % 70), content(shape, random() % 16)).is_ok());
  stop.store(true);
  for (auto& r : readers) r.join();
}

}  // namespace
}  // namespace moestro::activation
