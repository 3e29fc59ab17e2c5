// The owner of a history and its readers as processes, and what becomes of the one when the other is killed.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <random>

#include "common/shm/descriptor_socket.h"
#include "tests/activation/shared_history.h"
#include "tests/cli/temp_dir.h"

namespace moestro::activation {
namespace {

using testing::content;
using testing::match_whole_entries;
using testing::shared_history;

/// A process that runs `body` and says something; it is killed when this goes, if it has not ended.
class Child {
 public:
  explicit Child(const std::function<void(int say, int hear)>& body) {
    int to_parent[2], to_child[2];
    MOESTRO_CHECK(pipe(to_parent) == 0 && pipe(to_child) == 0, "pipes");
    pid_ = fork();
    MOESTRO_CHECK(pid_ >= 0, "a process");
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);  // nobody stays behind a test that aborts
      body(to_parent[1], to_child[0]);
      _exit(0);
    }
    close(to_parent[1]), close(to_child[0]);
    hear_ = to_parent[0], say_ = to_child[1];
  }
  ~Child() {
    kill();
    close(hear_), close(say_);
  }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  template <typename T>
  T hear() {
    T value{};
    MOESTRO_CHECK(read(hear_, &value, sizeof value) == sizeof value, "the process says it");
    return value;
  }
  void say() { MOESTRO_CHECK(write(say_, "x", 1) == 1, "the process hears it"); }

 private:
  pid_t pid_ = 0;
  int hear_ = -1, say_ = -1;
};

template <typename T>
void tell(int to, const T& value) {
  MOESTRO_CHECK(write(to, &value, sizeof value) == sizeof value, "told");
}
void wait_for(int from) {
  char c = 0;
  MOESTRO_CHECK(read(from, &c, 1) == 1, "heard");
}

/// A history whose answers are `entries` whole ones of content 1.
ActivationHistory filled_history(const EamcShape& shape, int32_t entries, uint64_t segment) {
  ActivationHistory history = shared_history(shape, entries, 7, segment);
  for (int32_t i = 0; i < entries; ++i) MOESTRO_CHECK(history.answers.set(i, content(shape, 1)).is_ok(), "an entry");
  return history;
}

int32_t whole_entries(const EamcView& view) {
  int32_t whole = 0;
  for (int32_t i = 0; i < view.size(); ++i) whole += view.version(i) != EamcView::kNoVersion ? 1 : 0;
  return whole;
}

// A writer that reads what it is to write from memory it may not read stands still amid the entry: nothing is left to
// chance.
int g_amid_entry = -1;
void stand_still(int) {
  tell(g_amid_entry, true);
  for (;;) pause();
}

TEST(SharedHistoryProcesses, AnEntryWhoseWriterIsKilledAmidItIsNoLongerThere) {
  const EamcShape shape{24, 64, 1};
  constexpr int32_t kEntries = 20, kTorn = 7;
  ActivationHistory history = filled_history(shape, kEntries, 70);
  auto mapping = testing::map(history, {70, 7, shape});
  ASSERT_TRUE(mapping.is_ok());
  const EamcView view = mapping->view().answers;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* pages = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  auto* second = static_cast<uint8_t*>(pages) + page;
  const std::vector<uint8_t> cells = content(shape, 2);
  std::memcpy(second - cells.size() / 2, cells.data(), cells.size());
  Child writer([&](int say, int) {
    g_amid_entry = say;
    std::signal(SIGSEGV, stand_still);
    mprotect(second, page, PROT_NONE);
    (void)history.answers.set(kTorn, {second - cells.size() / 2, cells.size()}).is_ok();
  });
  ASSERT_TRUE(writer.hear<bool>());
  const auto expect_all_but_one = [&] {
    EXPECT_EQ(view.version(kTorn), EamcView::kNoVersion);
    EXPECT_EQ(whole_entries(view), kEntries - 1);
    EXPECT_EQ(match_whole_entries(view, 1), static_cast<size_t>(kEntries - 1));
    EXPECT_EQ(match_whole_entries(view, 2), 0U) << "half an entry is none";
  };
  expect_all_but_one();
  writer.kill();
  expect_all_but_one();
  munmap(pages, 2 * page);
}

TEST(SharedHistoryProcesses, AWriterThatIsKilledAtAnyTimeHarmsNoReaderAndIsFollowed) {
  const EamcShape shape{24, 64, 1};
  constexpr int32_t kEntries = 20;
  for (uint32_t round = 0; round < 30; ++round) {
    ActivationHistory history = filled_history(shape, kEntries, 100 + round);
    auto mapping = testing::map(history, {100 + round, 7, shape});
    ASSERT_TRUE(mapping.is_ok());
    const EamcView view = mapping->view().answers;
    Child writer([&](int say, int) {
      std::mt19937 random(round);
      for (uint32_t i = 0;; ++i) {
        (void)history.answers.set(static_cast<int32_t>(random() % kEntries), content(shape, 1 + random() % 3)).is_ok();
        if (i == 10) tell(say, i);
      }
    });
    writer.hear<uint32_t>();
    for (uint32_t i = 0; i < 20 + round; ++i) match_whole_entries(view, 1 + i % 3);
    writer.kill();
    const int32_t whole = whole_entries(view);
    EXPECT_GE(whole, kEntries - 1) << "the one it was at";
    size_t found = 0;
    for (uint32_t c = 1; c <= 3; ++c) found += match_whole_entries(view, c);
    EXPECT_EQ(found, static_cast<size_t>(whole));
  }
}

TEST(SharedHistoryProcesses, AReaderThatIsKilledHarmsNobody) {
  const EamcShape shape{6, 16, 1};
  ActivationHistory history = shared_history(shape, 20);
  ASSERT_TRUE(history.answers.set(0, content(shape, 1)).is_ok());
  const auto mapping = testing::map(history, {70, 7, shape});
  ASSERT_TRUE(mapping.is_ok());
  for (uint32_t round = 0; round < 10; ++round) {
    Child reader([&](int say, int) {
      for (uint32_t i = 0;; ++i) {
        match_whole_entries(mapping->view().answers, i % 16);
        if (i == 3) tell(say, i);
      }
    });
    reader.hear<uint32_t>();
    for (uint32_t i = 0; i < 50; ++i)
      ASSERT_TRUE(history.answers.set(static_cast<int32_t>(i % 20), content(shape, (i + round) % 16)).is_ok());
    reader.kill();
    for (int32_t i = 0; i < 20; ++i) EXPECT_NE(history.answers.view().version(i), EamcView::kNoVersion);
  }
}

struct Memory {
  ino_t inode = 0;
  uint64_t resident_kib = 0, shared_part_kib = 0;  ///< of the mapping; the second: its PSS
  uint64_t own_kib = 0;                            ///< of the whole process
};

Memory measure() {
  Memory m;
  bool inside = false;
  std::ifstream maps("/proc/self/smaps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long inode = 0, kib = 0;
    // A line of addresses has a dash before its first blank.
    if (const size_t dash = line.find('-'); dash != std::string::npos && dash < line.find(' ')) {
      inside = line.find("memfd:moestro-history") != std::string::npos && line.find(" r--s ") != std::string::npos;
      if (inside && std::sscanf(line.c_str(), "%*s %*s %*s %*s %lu", &inode) == 1) m.inode = inode;
    }
    if (inside && std::sscanf(line.c_str(), "Rss: %lu", &kib) == 1) m.resident_kib = kib;
    if (inside && std::sscanf(line.c_str(), "Pss: %lu", &kib) == 1) m.shared_part_kib = kib;
    if (std::sscanf(line.c_str(), "Private_Dirty: %lu", &kib) == 1 ||
        std::sscanf(line.c_str(), "Private_Clean: %lu", &kib) == 1)
      m.own_kib += kib;
  }
  return m;
}

TEST(SharedHistoryProcesses, TwoWorkersHaveOneCopy) {
  const EamcShape shape{48, 128, 8};
  const test::TempDir dir;
  ActivationHistory history = shared_history(shape, 512);
  for (int32_t i = 0; i < 512; ++i) {
    ASSERT_TRUE(history.prompts.set(i, content(shape, static_cast<uint32_t>(i) % 128)).is_ok());
    ASSERT_TRUE(history.answers.set(i, content(shape, static_cast<uint32_t>(i) % 128)).is_ok());
  }
  const uint64_t kib = history.memory()->size() / 1024;
  EXPECT_GT(kib, 12U << 10);
  auto server = shm::DescriptorServer::listen(dir / "h", history.memory()->fd(), {});
  ASSERT_TRUE(server.is_ok());
  const auto worker = [&](int say, int hear) {
    tell(say, measure());
    const auto mapped = HistoryMapping::receive(dir / "h", {70, 7, shape}, std::chrono::seconds(10));
    MOESTRO_CHECK(mapped.is_ok(), mapped.status().message());
    size_t found = 0;
    for (uint32_t c = 0; c < 128; ++c)
      found += match_whole_entries(mapped->view().prompts, c) + match_whole_entries(mapped->view().answers, c);
    MOESTRO_CHECK(found == 2 * 512, "all entries");
    tell(say, found);
    wait_for(hear);  // until both have read it all
    tell(say, measure());
    wait_for(hear);
  };
  Child one(worker), two(worker);
  std::array<Child*, 2> both{&one, &two};
  std::array<Memory, 2> before, after;
  for (size_t i = 0; i < 2; ++i) before[i] = both[i]->hear<Memory>(), both[i]->hear<size_t>();
  for (size_t i = 0; i < 2; ++i) both[i]->say(), after[i] = both[i]->hear<Memory>();
  struct stat info {};
  ASSERT_EQ(fstat(history.memory()->fd(), &info), 0);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(after[i].inode, info.st_ino);
    EXPECT_GE(after[i].resident_kib, kib - kib / 20) << "it has read all of it but what pads its arrays";
    EXPECT_LE(after[i].shared_part_kib, kib / 2) << "the others have it, too";
    EXPECT_LE(after[i].own_kib, before[i].own_kib + 1024) << "matchers, no entries";
  }
  one.say(), two.say();
}

}  // namespace
}  // namespace moestro::activation
