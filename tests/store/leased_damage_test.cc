// A blob that is damaged in memory and cannot be read again, while a worker that is stopped has it leased: real
// processes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <fstream>

#include "common/shm/mapped_file.h"
#include "store/client/status_client.h"
#include "tests/store/child_process.h"
#include "tests/store/small_pack.h"

namespace moestro::store {
namespace {

using std::chrono::milliseconds;
using testing::ChildProcess;
using ::testing::HasSubstr;
constexpr milliseconds kLong{20000};

class LeasedDamage : public ::testing::Test {
 protected:
  std::unique_ptr<ChildProcess> start_store(const char* log) {
    auto store = std::make_unique<ChildProcess>(
        std::vector<std::string>{testing::program("moestro-store"), "--run-dir", (pack_.dir / "run").string(),
                                 "--arena-dir", (pack_.dir / "arena").string(), "--dram", std::to_string(pack_.dram(3)),
                                 "--model", "tiny=" + (pack_.dir / "pack").string(), "--poison-freed"},
        (pack_.dir / log).string());
    EXPECT_TRUE(store->says("ready")) << store->output();
    return store;
  }
  std::string endpoint() const { return "ipc://" + (pack_.dir / "run" / "store.sock").string(); }
  static void flip(const std::filesystem::path& file, uint64_t offset) {
    std::filesystem::permissions(file, std::filesystem::perms::owner_write, std::filesystem::perm_options::add);
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(static_cast<std::streamoff>(offset));
    const int byte = stream.get();
    stream.seekp(static_cast<std::streamoff>(offset));
    stream.put(static_cast<char>(byte ^ 0x5a));
    ASSERT_TRUE(stream.good());
  }
  void damage_in_memory_and_pack(uint32_t blob) const {
    const auto table = shm::MappedFile::open(pack_.dir / "arena" / "table", shm::MappedFile::Access::kReadOnly, 1);
    ASSERT_TRUE(table);
    flip(pack_.dir / "arena" / "arena",
         reinterpret_cast<const TableEntry*>(table->data() + kSharedPage)[blob].offset.load() + 100);
    const Slice& slice = pack_.manifest.blobs[blob].slices[0];
    flip(pack_.dir / "pack" / pack_.manifest.files[slice.file], slice.offset + 200);
  }
  /// Every expert but `lost`, through what room there is.
  void use_all_but(uint32_t lost) {
    auto client = StoreClient::attach({.endpoint = endpoint(), .model = "tiny"});
    ASSERT_TRUE(client) << client.status().message();
    for (const uint32_t blob : pack_.experts_list) {
      ASSERT_TRUE((*client)->fetch(std::vector<uint32_t>{blob}, {}));
      const auto arrived = (*client)->next_arrival(kLong);
      ASSERT_EQ(arrived.is_ok(), blob != lost) << arrived.status().message();
      if (arrived) EXPECT_TRUE(pack_.holds(*arrived));
      else EXPECT_EQ(arrived.status().code(), Code::kCorrupt) << "whoever comes now is told";
    }
  }
  SmallPack pack_;
};

TEST_F(LeasedDamage, ItsPlaceIsNobodyElsesUntilTheStoppedWorkerLetsGo) {
  const uint32_t lost = pack_.experts_list[0];
  auto store = start_store("first.log");
  ChildProcess worker({"/proc/self/exe", "--hold", endpoint(), std::to_string(lost)},
                      (pack_.dir / "worker.log").string());
  ASSERT_TRUE(worker.says("holding")) << worker.output();
  worker.kill(SIGSTOP);
  store->kill(SIGSTOP);
  damage_in_memory_and_pack(lost);
  for (const char* log : {"second.log", "third.log"}) {  // the third finds it as the second left it
    store->kill(SIGKILL), store->wait();
    store = start_store(log);
    ASSERT_TRUE(store->says("requests that need it will fail")) << store->output();
    use_all_but(lost);
  }
  EXPECT_THAT(store->output(), HasSubstr("adopted the arena"));
  const uint64_t used = query_store(endpoint(), kLong)->used_bytes;

  worker.kill(SIGUSR1), worker.kill(SIGCONT);
  ASSERT_TRUE(worker.says("bytes differ")) << worker.output();
  EXPECT_THAT(worker.output(), HasSubstr("\n1 bytes differ"))
      << "the one that the pack has wrong, and none of another blob's";
  while (query_store(endpoint(), kLong)->used_bytes != used - pack_.expert_bytes) {}
  use_all_but(lost);
}

/// Holds a lease until SIGUSR1, then says how much of what it leads to has changed, and lets go.
int hold(const std::string& endpoint, uint32_t blob) {
  sigset_t wake;
  ::sigemptyset(&wake);
  ::sigaddset(&wake, SIGUSR1);
  ::pthread_sigmask(SIG_BLOCK, &wake, nullptr);
  auto client = StoreClient::attach({.endpoint = endpoint, .model = "tiny", .client = "holder"});
  if (!client || !(*client)->fetch(std::vector<uint32_t>{blob}, {})) return 1;
  auto lease = (*client)->next_arrival(kLong);
  if (!lease) return 1;
  const std::vector<std::byte> before(lease->data(), lease->data() + lease->length());
  std::fprintf(stderr, "holding\n");
  int signal = 0;
  ::sigwait(&wake, &signal);
  size_t different = 0;
  for (size_t i = 0; i < before.size(); ++i) different += before[i] != lease->data()[i];
  std::fprintf(stderr, "%zu bytes differ\n", different);
  lease->release();
  while (true) ::pause();
}

}  // namespace
}  // namespace moestro::store

int main(int argc, char** argv) {
  if (argc == 4 && std::string(argv[1]) == "--hold")
    return moestro::store::hold(argv[2], static_cast<uint32_t>(std::atoi(argv[3])));
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
