// Both readers, the same tests.

#include "store/reader/reader.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <memory>

#include "common/shm/mapped_file.h"
#include "tests/pack/synthetic_checkpoint.h"

namespace moestro::store {
namespace {

using Make = Result<std::unique_ptr<Reader>> (*)(const ReaderFiles&, uint32_t);

struct AlignedBytes {
  explicit AlignedBytes(size_t n) : data(static_cast<std::byte*>(std::aligned_alloc(4096, n))) {}
  ~AlignedBytes() { std::free(data); }
  std::byte* data;
};

constexpr uint64_t kPiece = 2 * 4096;

class ReaderTest : public ::testing::TestWithParam<Make> {
 protected:
  void SetUp() override {
    std::string text(10 * 4096, ' ');
    for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>('a' + i / 4096);
    testing::write_text(dir_ / "f", text);
    file_.reset(::open((dir_ / "f").c_str(), O_RDONLY | O_CLOEXEC));
    auto reader = GetParam()({{file_.get()}, -1, {memory_.data, 8 * 4096}, kPiece}, 4);
    if (!reader && reader.status().code() == Code::kUnsupported) GTEST_SKIP() << reader.status().message();
    ASSERT_TRUE(reader) << reader.status().message();
    reader_ = std::move(*reader);
  }
  ReadResult next() {
    std::vector<ReadResult> results;
    while (results.empty()) {
      pollfd wait{reader_->event_fd(), POLLIN, 0};
      EXPECT_EQ(::poll(&wait, 1, 10000), 1) << "no completion";
      reader_->reap(results);
    }
    EXPECT_EQ(results.size(), 1u);
    return results[0];
  }
  testing::TemporaryDirectory dir_;
  shm::UniqueFd file_;
  std::unique_ptr<Reader> reader_;
  AlignedBytes memory_{16 * 4096};
};

TEST_P(ReaderTest, ReadsWhatIsThere) {
  ASSERT_TRUE(reader_->submit({0, 2 * 4096, memory_.data, 4096, 77}));
  const ReadResult result = next();
  EXPECT_EQ(result.tag, 77u);
  EXPECT_EQ(result.result, 4096);
  EXPECT_EQ(memory_.data[0], std::byte{'c'});
  EXPECT_EQ(memory_.data[4095], std::byte{'c'});
  EXPECT_EQ(reader_->in_flight(), 0u);
}

TEST_P(ReaderTest, ReadPastTheEndIsShort) {
  ASSERT_TRUE(reader_->submit({0, 9 * 4096, memory_.data, 8192, 1}));
  EXPECT_EQ(next().result, 4096);
  ASSERT_TRUE(reader_->submit({0, 20 * 4096, memory_.data, 4096, 2}));
  EXPECT_EQ(next().result, 0);
}

TEST_P(ReaderTest, FailureIsAnErrno) {
  ASSERT_TRUE(reader_->submit({0, 0, reinterpret_cast<std::byte*>(4096), 4096, 1}));  // no memory there
  EXPECT_EQ(next().result, -EFAULT);
}

TEST_P(ReaderTest, TakesNoMoreThanItsDepth) {
  for (uint64_t i = 0; i < 4; ++i) ASSERT_TRUE(reader_->submit({0, i * 4096, memory_.data + i * 4096, 4096, i}));
  EXPECT_FALSE(reader_->submit({0, 0, memory_.data, 4096, 9}));
  EXPECT_EQ(reader_->in_flight(), 4u);
  reader_.reset();  // waits for them
  for (int i = 0; i < 4; ++i) EXPECT_EQ(memory_.data[i * 4096], std::byte(static_cast<unsigned char>('a' + i)));
}

TEST_P(ReaderTest, ReadsOverTheBordersOfRegisteredMemory) {
  EXPECT_TRUE(reader_->registered()) << reader_->registered().message();
  uint32_t done = 0;  // from the second page of the first piece, over two borders, to the end of what is registered
  for (int reads = 0; done < 7 * 4096; ++reads) {
    ASSERT_LT(reads, 4);
    ASSERT_TRUE(reader_->submit({0, done, memory_.data + 4096 + done, 7 * 4096 - done, 1}));
    const ReadResult result = next();
    ASSERT_GT(result.result, 0);
    ASSERT_EQ(result.result % 4096, 0);
    done += static_cast<uint32_t>(result.result);
  }
  ASSERT_TRUE(reader_->submit({0, 7 * 4096, memory_.data + 8 * 4096, 2 * 4096, 2}));  // beside it
  EXPECT_EQ(next().result, 2 * 4096);
  ASSERT_TRUE(reader_->submit({0, 9 * 4096, memory_.data + 7 * 4096, 2 * 4096, 3}));  // half in, half out
  EXPECT_EQ(next().result, 4096);
  const char pages[] = "abcdefjh";
  for (int i = 0; i < 8; ++i)
    EXPECT_EQ(memory_.data[(i + 1) * 4096 + 4095], std::byte(static_cast<unsigned char>(pages[i]))) << i;
}

INSTANTIATE_TEST_SUITE_P(Both, ReaderTest, ::testing::Values(&make_uring_reader, &make_pread_reader),
                         [](const auto& kind) { return kind.index == 0 ? "uring" : "pread"; });

TEST(UringReader, RefusedMemoryIsSaidAndReadsGoOn) {
  const testing::TemporaryDirectory dir;
  testing::write_text(dir / "f", std::string(4096, 'x'));
  const shm::UniqueFd file(::open((dir / "f").c_str(), O_RDONLY | O_CLOEXEC));
  const AlignedBytes memory(4096);
  const auto nowhere = reinterpret_cast<std::byte*>(4096);
  const auto reader = make_uring_reader({{file.get()}, -1, {nowhere, 4096}}, 4);
  if (!reader) GTEST_SKIP() << reader.status().message();
  EXPECT_THAT((*reader)->registered().message(), ::testing::HasSubstr("put --arena-dir on a tmpfs or hugetlbfs"));
  ASSERT_TRUE((*reader)->submit({0, 0, memory.data, 4096, 1}));
  pollfd wait{(*reader)->event_fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&wait, 1, 10000), 1) << "no completion";
  std::vector<ReadResult> results;
  (*reader)->reap(results);
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].result, 4096);
  EXPECT_EQ(memory.data[0], std::byte{'x'});
}

/// From here on this process gets EPERM from one system call, as containers' profiles have it.
bool refuse(uint32_t system_call) {
  sock_filter program[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                           BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, system_call, 0, 1),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog filter{std::size(program), program};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0;
}

TEST(UringRefused, WhicheverOfItsCallsItIsItIsSaidAtStart) {
  if (const auto allowed = make_uring_reader({}, 4); !allowed) GTEST_SKIP() << allowed.status().message();
  for (const auto& [number, name] : {std::pair(__NR_io_uring_setup, "io_uring_setup"),
                                     std::pair(__NR_io_uring_enter, "io_uring_enter"),
                                     std::pair(__NR_io_uring_register, "io_uring cannot register")}) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      if (!refuse(static_cast<uint32_t>(number))) ::_exit(3);
      ::alarm(10);
      const auto reader = make_uring_reader({}, 4);
      const bool said = !reader && reader.status().code() == Code::kUnsupported &&
                        reader.status().message().find(name) != std::string::npos;
      ::_exit(said ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << name << ": it waits for ever";
    if (WEXITSTATUS(status) == 3) GTEST_SKIP() << "no seccomp filters here";
    EXPECT_EQ(WEXITSTATUS(status), 0) << name;
  }
}

}  // namespace
}  // namespace moestro::store
