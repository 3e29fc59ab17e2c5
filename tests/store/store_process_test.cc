// The real program, and workers that are processes: killed, stopped, started again.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>

#include "store/client/status_client.h"
#include "store/reader/reader.h"
#include "tests/store/child_process.h"
#include "tests/store/memory_directory.h"
#include "tests/store/small_pack.h"

namespace moestro::store {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::ChildProcess;
using ::testing::HasSubstr;
constexpr milliseconds kLong{20000};

class StoreProcess : public ::testing::Test {
 protected:
  std::vector<std::string> command(uint64_t dram) {
    return {testing::program("moestro-store"),       "--run-dir",     (pack_.dir / "run").string(), "--arena-dir",
            (pack_.dir / "arena").string(),          "--dram",        std::to_string(dram),         "--model",
            "tiny=" + (pack_.dir / "pack").string(), "--poison-freed"};
  }
  std::string log(const char* name) { return (pack_.dir / name).string(); }
  std::string endpoint() { return "ipc://" + (pack_.dir / "run" / "store.sock").string(); }
  /// This very program as a worker that pins `blob` and stays.
  std::vector<std::string> holder(uint32_t blob) {
    return {"/proc/self/exe", "--hold", endpoint(), std::to_string(blob)};
  }
  /// Another worker has the second of two places pinned and wants more: only what `worker` holds can give way. Returns
  /// when that was killed.
  steady_clock::time_point kill_and_take_its_place(ChildProcess& worker) {
    auto client = attach();
    EXPECT_TRUE(client) << client.status().message();
    if (!client) return steady_clock::now();
    EXPECT_TRUE((*client)->fetch(std::vector<uint32_t>{pack_.experts_list[1]}, {}));
    const auto second = (*client)->next_arrival(kLong);
    EXPECT_TRUE(second) << second.status().message();
    EXPECT_TRUE((*client)->fetch(std::vector<uint32_t>{pack_.experts_list[2]}, {}));
    EXPECT_EQ((*client)->next_arrival(milliseconds(0)).status().code(), Code::kExhausted);
    const auto killed = steady_clock::now();
    worker.kill(SIGKILL);
    worker.wait();
    const auto seconds = [&] { return std::chrono::duration<double>(steady_clock::now() - killed).count(); };
    Result<Lease> third = (*client)->next_arrival(milliseconds(10));
    while (!third && seconds() < 5) third = (*client)->next_arrival(milliseconds(10));
    EXPECT_LT(seconds(), 1) << "until its place was another's";
    EXPECT_TRUE(third && pack_.holds(*third)) << third.status().message();
    return killed;
  }
  Result<std::unique_ptr<StoreClient>> attach() {
    return StoreClient::attach({.endpoint = endpoint(), .model = "tiny"});
  }
  SmallPack pack_;
};

TEST_F(StoreProcess, KilledWorkersPinsGoWithinASecond) {
  ChildProcess store(command(pack_.dram(2)), log("store.log"));
  ASSERT_TRUE(store.says("ready")) << store.output();
  ChildProcess worker(holder(pack_.experts_list[0]), log("worker.log"));
  ASSERT_TRUE(worker.says("holding")) << worker.output();
  const auto before = query_store(endpoint(), kLong);
  ASSERT_TRUE(before);
  ASSERT_EQ(before->workers.size(), 1u);
  EXPECT_GE(before->workers[0].pinned, 1u);
  const auto killed = kill_and_take_its_place(worker);
  Result<StoreStatusReport> after = query_store(endpoint(), kLong);
  while (after && !after->workers.empty() && steady_clock::now() - killed < std::chrono::seconds(5))
    after = query_store(endpoint(), kLong);
  ASSERT_TRUE(after);
  EXPECT_TRUE(after->workers.empty());
  // Its slot and its share are there for others.
  auto a = attach(), b = attach();
  EXPECT_TRUE(a && b);
}

TEST_F(StoreProcess, StoppedWorkerKeepsItsPinAndHindersNobody) {
  ChildProcess store(command(pack_.dram(2)), log("store.log"));
  ASSERT_TRUE(store.says("ready")) << store.output();
  const uint32_t held = pack_.experts_list[0];
  ChildProcess worker(holder(held), log("worker.log"));
  ASSERT_TRUE(worker.says("holding")) << worker.output();
  worker.kill(SIGSTOP);
  auto client = attach();
  ASSERT_TRUE(client) << client.status().message();
  for (const uint32_t blob : pack_.experts_list) {
    if (blob == held) continue;
    ASSERT_TRUE((*client)->fetch(std::vector<uint32_t>{blob}, {}));
    const auto lease = (*client)->next_arrival(kLong);
    ASSERT_TRUE(lease) << lease.status().message();
    ASSERT_TRUE(pack_.holds(*lease));
  }
  const auto lease = (*client)->try_pin(held);
  ASSERT_TRUE(lease) << "pinned by a stopped worker: still there";
  EXPECT_TRUE(pack_.holds(*lease));
}

TEST_F(StoreProcess, WorkerThatPinsMoreThanItsShareIsNamed) {
  ChildProcess store(command(pack_.dram(4)), log("store.log"));
  ASSERT_TRUE(store.says("ready")) << store.output();
  auto rogue = attach(), other = attach();
  ASSERT_TRUE(rogue && other);
  auto pins = shm::MappedFile::open(pack_.dir / "arena" / "pins" / std::to_string((*rogue)->slot()),
                                    shm::MappedFile::Access::kReadWrite, 1);
  ASSERT_TRUE(pins) << pins.status().message();
  const auto word = [&](uint32_t entry) -> std::atomic<uint64_t>& {
    return reinterpret_cast<std::atomic<uint64_t>*>(pins->data() + kSharedPage)[entry];
  };
  for (size_t i = 0; i < 4; ++i) {  // the whole arena, twice its share
    const uint32_t blob = pack_.experts_list[i];
    ASSERT_TRUE((*rogue)->fetch(std::vector<uint32_t>{blob}, {}));
    ASSERT_TRUE((*rogue)->next_arrival(kLong));
    word(blob).store(PinWord::kPinned | 1);
  }
  ASSERT_TRUE((*other)->fetch(std::vector<uint32_t>{pack_.experts_list[4]}, {}));
  EXPECT_TRUE(store.says("of slot " + std::to_string((*rogue)->slot()) + " pins " +
                         std::to_string(4 * pack_.expert_bytes) + " bytes of experts, its share is " +
                         std::to_string(2 * pack_.expert_bytes)))
      << store.output();
  EXPECT_EQ((*other)->next_arrival(milliseconds(0)).status().code(), Code::kUnavailable)
      << "a wait, and nothing taken away";
  EXPECT_TRUE(pack_.holds(*(*rogue)->try_pin(pack_.experts_list[0])));
  for (size_t i = 0; i < 4; ++i) word(pack_.experts_list[i]).store(0);
  const auto arrived = (*other)->next_arrival(kLong);
  ASSERT_TRUE(arrived) << arrived.status().message();
  EXPECT_TRUE(pack_.holds(*arrived));
}

TEST_F(StoreProcess, SecondStoreWaitsForTheLock) {
  auto first = std::make_unique<ChildProcess>(command(pack_.dram(2)), log("first.log"));
  ASSERT_TRUE(first->says("ready")) << first->output();
  ChildProcess second(command(pack_.dram(2)), log("second.log"));
  ASSERT_TRUE(second.says("waiting for")) << second.output();
  EXPECT_TRUE(query_store(endpoint(), kLong)) << "the first is not disturbed";
  first->kill(SIGTERM);
  EXPECT_EQ(first->wait(), 0);
  EXPECT_TRUE(second.says("ready")) << second.output();
}

TEST_F(StoreProcess, TerminatedStoreLeavesOnlyItsLock) {
  ChildProcess store(command(pack_.dram(2)), log("store.log"));
  ASSERT_TRUE(store.says("ready")) << store.output();
  store.kill(SIGTERM);
  EXPECT_EQ(store.wait(), 0);
  EXPECT_FALSE(std::filesystem::exists(pack_.dir / "arena" / "arena"));
  EXPECT_FALSE(std::filesystem::exists(pack_.dir / "arena" / "alive"));
}

TEST_F(StoreProcess, WithLittleLockedMemoryOnlyRegisteredBuffersAreGivenUp) {
  if (const auto ring = make_uring_reader({}, 8); !ring) GTEST_SKIP() << ring.status().message();
  const testing::MemoryDirectory arena(pack_.dir / "arena");
  std::vector<std::string> words{"/proc/self/exe", "--little-locked-memory"};
  std::ranges::copy(command(pack_.dram(6)), std::back_inserter(words));  // more than 64 KiB
  *(std::ranges::find(words, "--arena-dir") + 1) = arena.path().string();
  ChildProcess store(words, log("store.log"));
  ASSERT_TRUE(store.says("ready")) << store.output();
  const auto status = query_store(endpoint(), kLong);
  ASSERT_TRUE(status);
  EXPECT_EQ(status->reader, "io_uring");
  EXPECT_THAT(store.output(), HasSubstr("cannot register the arena as read buffers"));
  EXPECT_THAT(store.output(), HasSubstr(arena.in_memory() ? "setcap cap_ipc_lock+p" : "put --arena-dir on a tmpfs"));
  auto client = attach();
  ASSERT_TRUE(client) << client.status().message();
  ASSERT_TRUE((*client)->fetch(std::vector<uint32_t>{pack_.experts_list[0]}, {}));
  const auto lease = (*client)->next_arrival(kLong);
  ASSERT_TRUE(lease) << lease.status().message();
  EXPECT_TRUE(pack_.holds(*lease));
}

/// As a container's profile or a file system refuses it: by the error that the kernel gives.
struct Refusal {
  const char* name;
  const char* says;
};
class StoreProcessRefused : public StoreProcess, public ::testing::WithParamInterface<Refusal> {};

TEST_P(StoreProcessRefused, StoreReadsWithPreadAndSaysWhy) {
  std::vector<std::string> words{"/proc/self/exe", "--refuse", GetParam().name};
  std::ranges::copy(command(pack_.dram(6)), std::back_inserter(words));
  ChildProcess store(words, log("store.log"));
  if (!store.says("ready") && store.output().find("no filter") != std::string::npos)
    GTEST_SKIP() << "this machine lets no process filter its system calls";
  const auto status = query_store(endpoint(), kLong);
  ASSERT_TRUE(status) << store.output();
  EXPECT_EQ(status->reader, "pread");
  EXPECT_THAT(store.output(), HasSubstr(GetParam().says));
  EXPECT_THAT(store.output(), HasSubstr("with a pool of pread threads"));
  auto client = attach();
  ASSERT_TRUE(client) << client.status().message();
  for (const uint32_t blob : pack_.experts_list) {
    ASSERT_TRUE((*client)->fetch(std::vector<uint32_t>{blob}, {}));
    const auto lease = (*client)->next_arrival(kLong);
    ASSERT_TRUE(lease) << lease.status().message();
    EXPECT_TRUE(pack_.holds(*lease));
  }
}

TEST_P(StoreProcessRefused, StoreThatIsToldToUseIoUringReadsOrEnds) {
  std::vector<std::string> words{"/proc/self/exe", "--refuse", GetParam().name};
  std::ranges::copy(command(pack_.dram(6)), std::back_inserter(words));
  words.insert(words.end(), {"--io", "uring"});
  ChildProcess store(words, log("store.log"));
  if (std::string(GetParam().name) == "direct") {  // a choice that costs speed, and no more
    if (const auto ring = make_uring_reader({}, 8); !ring) GTEST_SKIP() << ring.status().message();
    if (!store.says("ready") && store.output().find("no filter") != std::string::npos)
      GTEST_SKIP() << "this machine lets no process filter its system calls";
    EXPECT_EQ(query_store(endpoint(), kLong)->reader, "io_uring");
    return;
  }
  EXPECT_NE(store.wait(), 0);
  if (store.output().find("no filter") != std::string::npos)
    GTEST_SKIP() << "this machine lets no process filter its system calls";
  EXPECT_THAT(store.output(), HasSubstr("--io pread"));
}

INSTANTIATE_TEST_SUITE_P(All, StoreProcessRefused,
                         ::testing::Values(Refusal{"uring-eperm", "io_uring_setup: Operation not permitted"},
                                           Refusal{"uring-enosys", "io_uring_setup: Function not implemented"},
                                           Refusal{"direct",
                                                   "does not allow O_DIRECT: it is read through the page cache"}),
                         [](const auto& refusal) {
                           std::string name = refusal.param.name;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST_F(StoreProcess, WrongCommandLinesAreOneLineAndCodeTwo) {
  struct Case {
    std::vector<std::string> words;
    const char* says;
  };
  const std::string dir = (pack_.dir / "x").string();
  testing::write_text(pack_.dir / "bad.yaml", "store:\n  drm: 4GiB\n");
  for (const Case& c :
       {Case{{"--run-dir", dir}, "give --arena-dir"}, Case{{"--run-dir", dir, "--arena-dir", dir}, "give --model"},
        Case{{"--run-dir", dir, "--arena-dir", dir, "--model", "tiny"}, "write NAME=PACK"},
        Case{{"--run-dir", dir, "--arena-dir", dir, "--dram", "much"}, "--dram"},
        Case{{"--frobnicate"}, "see moestro-store --help"},
        Case{{"-c", (pack_.dir / "bad.yaml").string()}, "did you mean 'store.dram'"}}) {
    std::vector<std::string> words{testing::program("moestro-store")};
    words.insert(words.end(), c.words.begin(), c.words.end());
    std::filesystem::remove(log("bad.log"));
    ChildProcess store(words, log("bad.log"));
    EXPECT_EQ(store.wait(), 2);
    EXPECT_THAT(store.output(), HasSubstr(c.says));
    EXPECT_EQ(std::ranges::count(store.output(), '\n'), 1) << store.output();
  }
  ChildProcess small(command(4096), log("small.log"));
  EXPECT_EQ(small.wait(), 2) << "a size that was asked for stays too small";
  EXPECT_THAT(small.output(), HasSubstr("raise --dram to at least"));
}

int hold(const std::string& endpoint, uint32_t blob) {
  auto client = StoreClient::attach({.endpoint = endpoint, .model = "tiny", .client = "holder"});
  if (!client || !(*client)->fetch(std::vector<uint32_t>{blob}, {})) return 1;
  const auto lease = (*client)->next_arrival(kLong);
  if (!lease) return 1;
  std::fprintf(stderr, "holding\n");
  while (true) ::pause();
}

/// Runs a program that may lock 64 KiB of memory, also if this one is root's.
int run_with_little_locked_memory(char** argv) {
  const rlimit little{64 << 10, 64 << 10};
  ::prctl(PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0);  // refused to whoever has not the right anyway
  if (::setrlimit(RLIMIT_MEMLOCK, &little) == 0) ::execv(argv[0], argv);
  return 127;
}

/// Runs a program whose io_uring_setup, or open of a file with O_DIRECT, is refused by a filter.
int run_refused(const std::string& what, char** argv) {
  constexpr uint32_t kNumber = offsetof(seccomp_data, nr), kFlags = offsetof(seccomp_data, args) + 2 * sizeof(uint64_t);
  const auto refuse = [](uint32_t error) { return SECCOMP_RET_ERRNO | error; };
  sock_filter direct[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kNumber),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_openat, 0, 3),
                          BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kFlags),
                          BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_DIRECT, 0, 1),
                          BPF_STMT(BPF_RET | BPF_K, refuse(EINVAL)),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  sock_filter uring[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kNumber),
                         BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
                         BPF_STMT(BPF_RET | BPF_K, refuse(what == "uring-eperm" ? EPERM : ENOSYS)),
                         BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  sock_fprog filter{static_cast<unsigned short>(std::size(uring)), uring};
  if (what == "direct") filter = {static_cast<unsigned short>(std::size(direct)), direct};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0)
    ::execv(argv[0], argv);
  std::fprintf(stderr, "no filter\n");
  return 127;
}

}  // namespace
}  // namespace moestro::store

int main(int argc, char** argv) {
  if (argc == 4 && std::string(argv[1]) == "--hold")
    return moestro::store::hold(argv[2], static_cast<uint32_t>(std::atoi(argv[3])));
  if (argc > 2 && std::string(argv[1]) == "--little-locked-memory")
    return moestro::store::run_with_little_locked_memory(argv + 2);
  if (argc > 3 && std::string(argv[1]) == "--refuse") return moestro::store::run_refused(argv[2], argv + 3);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
