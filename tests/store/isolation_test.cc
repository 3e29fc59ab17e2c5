// Who may reach what: a store and workers as processes, some of which do what no worker of ours does.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <map>
#include <random>

#include "store/client/status_client.h"
#include "tests/store/child_process.h"
#include "tests/store/small_pack.h"

namespace moestro::store {
namespace {

namespace fs = std::filesystem;
using testing::ChildProcess;
using ::testing::HasSubstr;
constexpr std::chrono::milliseconds kLong{20000};

class Isolation : public ::testing::Test {
 protected:
  /// Without a umask, so that what the store leaves open is open.
  std::vector<std::string> command(std::vector<std::string> more = {}) {
    std::vector<std::string> words{"/proc/self/exe",
                                   "--open-umask",
                                   testing::program("moestro-store"),
                                   "--run-dir",
                                   run().string(),
                                   "--arena-dir",
                                   arena().string(),
                                   "--dram",
                                   std::to_string(pack_.dram(4)),
                                   "--model",
                                   "tiny=" + (pack_.dir / "pack").string()};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  fs::path run() { return pack_.dir / "run"; }
  fs::path arena() { return pack_.dir / "arena"; }
  std::string log(const char* name) { return (pack_.dir / name).string(); }
  std::string endpoint() { return "ipc://" + (run() / "store.sock").string(); }
  Result<std::unique_ptr<StoreClient>> attach(const char* name) {
    return StoreClient::attach({.endpoint = endpoint(), .model = "tiny", .client = name});
  }
  std::vector<std::string> rogue(const char* what) { return {"/proc/self/exe", what, endpoint()}; }
  void expect_whole(StoreClient& client) {
    for (const uint32_t expert : pack_.experts_list) {
      ASSERT_TRUE(client.fetch(std::vector<uint32_t>{expert}, {}));
      const auto lease = client.next_arrival(kLong);
      ASSERT_TRUE(lease) << lease.status().message();
      EXPECT_TRUE(pack_.holds(*lease));
    }
  }
  /// Name of each file of the run and arena directories, and what its mode allows.
  std::map<std::string, mode_t> modes() {
    std::map<std::string, mode_t> all;
    for (const fs::path& top : {run(), arena()}) {
      std::vector<fs::path> paths{top};
      for (const auto& entry : fs::recursive_directory_iterator(top)) paths.push_back(entry.path());
      for (const fs::path& path : paths) {
        struct stat info {};
        if (::lstat(path.c_str(), &info) == 0)
          all[fs::relative(path, pack_.dir.path()).string()] = info.st_mode & 07777;
      }
    }
    return all;
  }
  SmallPack pack_{3};
};

TEST_F(Isolation, EverythingIsTheUsersAloneWhateverTheUmask) {
  ChildProcess store(command(), log("store.log"));
  ASSERT_TRUE(store.says("ready")) << store.output();
  const auto client = attach("worker");
  ASSERT_TRUE(client) << client.status().message();
  const auto all = modes();
  for (const auto& [name, mode] : all) EXPECT_EQ(mode & 077, 0u) << name << std::oct << " " << mode;
  for (const char* name : {"arena/table", "arena/bell/0"}) EXPECT_EQ(all.at(name), 0400u) << name;
  for (const char* name : {"run/store.sock", "run/store.key", "arena/arena", "arena/pins/0", "arena/workers/0"})
    EXPECT_EQ(all.at(name), 0600u) << name;
}

TEST_F(Isolation, AGroupReachesWhatWorkersNeedAndNoMore) {
  ChildProcess store(command({"--group", std::to_string(::getegid())}), log("store.log"));
  ASSERT_TRUE(store.says("ready")) << store.output();
  const auto client = attach("worker");
  ASSERT_TRUE(client) << client.status().message();
  const auto all = modes();
  for (const auto& [name, mode] : all) EXPECT_EQ(mode & 07, 0u) << name << std::oct << " " << mode;
  const std::map<std::string, mode_t> of_group{
      {"run", 050},          {"arena", 050},           {"arena/pins", 050},     {"run/store.sock", 060},
      {"arena/pins/0", 060}, {"arena/workers/0", 060}, {"arena/arena", 040},    {"arena/table", 040},
      {"arena/bell/0", 040}, {"run/store.key", 0},     {"arena/store.lock", 0}, {"arena/directory", 0}};
  for (const auto& [name, mode] : of_group) EXPECT_EQ(all.at(name) & 070, mode) << name;
}

/// The payload, the table and the bells are mapped for reading: a write is the end of whoever tries.
TEST_F(Isolation, AWorkerThatWritesToWhatTheStoreOwnsDies) {
  ChildProcess store(command(), log("store.log"));
  ASSERT_TRUE(store.says("ready")) << store.output();
  for (const char* what : {"--write-arena", "--write-table", "--write-bell"}) {
    ChildProcess worker(rogue(what), log("rogue.log"));
    EXPECT_EQ(worker.wait(), 128 + SIGSEGV) << what << " " << worker.output();
  }
  auto client = attach("worker");
  ASSERT_TRUE(client) << client.status().message();
  expect_whole(**client);
}

TEST_F(Isolation, AWorkerThatCutsItsPinsShortIsPutOut) {
  ChildProcess store(command(), log("store.log"));
  ASSERT_TRUE(store.says("ready")) << store.output();
  auto client = attach("worker");
  ASSERT_TRUE(client) << client.status().message();
  ChildProcess worker(rogue("--cut-pins"), log("rogue.log"));
  ASSERT_TRUE(worker.says("cut")) << worker.output();
  expect_whole(**client);  // evictions look at every worker's pins
  ASSERT_TRUE(store.says("worker 'rogue' of slot 1 has cut the file of its pins short")) << store.output();
  const auto status = query_store(endpoint(), kLong);
  ASSERT_TRUE(status) << status.status().message();
  ASSERT_EQ(status->workers.size(), 1u);
  EXPECT_EQ(status->workers[0].client, "worker");
  EXPECT_TRUE((*client)->check());
  expect_whole(**client);
}

/// Bytes that are not even of the transport, on many connections at once.
TEST_F(Isolation, NoiseOnTheSocketDisturbsNobody) {
  ChildProcess store(command(), log("store.log"));
  ASSERT_TRUE(store.says("ready")) << store.output();
  auto client = attach("worker");
  ASSERT_TRUE(client) << client.status().message();
  std::mt19937 random(5);
  std::vector<int> open;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  run().append("store.sock").string().copy(address.sun_path, sizeof address.sun_path - 1);
  for (int i = 0; i < 100; ++i) {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    ASSERT_GE(fd, 0);
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
      std::string noise =
          i % 2 == 0 ? std::string("\xff\0\0\0\0\0\0\0\x01\x7f\x03", 11) : "";  // some begin as a peer would
      for (int n = 0; n < 4000; ++n) noise += static_cast<char>(random());
      (void)::send(fd, noise.data(), noise.size(), MSG_NOSIGNAL);
    }
    open.push_back(fd);
  }
  expect_whole(**client);
  for (const int fd : open) ::close(fd);
  EXPECT_TRUE(query_store(endpoint(), kLong));
}

TEST_F(Isolation, OnlyWhoCanReadTheKeyChangesWhatIsServed) {
  ChildProcess store(command(), log("store.log"));
  ASSERT_TRUE(store.says("ready")) << store.output();
  const std::string pack = (pack_.dir / "pack").string();
  ASSERT_TRUE(change_packs(endpoint(), PackChange::kAdd, "more", pack, kLong));
  std::error_code error;
  fs::rename(run() / "store.key", run() / "away", error);
  const auto without = change_packs(endpoint(), PackChange::kRemove, "more", "", kLong);
  EXPECT_THAT(without.status().message(), HasSubstr("only the store's own user may change what it serves"));
  testing::write_text(run() / "store.key", "0123456789abcdef0123456789abcdef\n");
  const auto forged = change_packs(endpoint(), PackChange::kRemove, "more", "", kLong);
  EXPECT_THAT(forged.status().message(), HasSubstr("without the key of this store"));
  EXPECT_EQ(query_store(endpoint(), kLong)->models.size(), 2u);
}

int misbehave(const std::string& what, const std::string& endpoint) {
  const auto a = attach_to_store({.endpoint = endpoint, .model = "tiny", .client = "rogue"});
  if (!a) return 1;
  const auto write = [](const shm::MappedFile& file) {
    *const_cast<volatile std::byte*>(file.data() + 100) = std::byte{1};
  };
  if (what == "--write-arena") write((*a)->arena);
  if (what == "--write-table") write((*a)->table);
  if (what == "--write-bell") write((*a)->bell);
  if (what == "--cut-pins" && ::ftruncate((*a)->pins.fd(), 0) != 0) return 1;
  std::fprintf(stderr, "cut\n");
  while (true) ::pause();
}

}  // namespace
}  // namespace moestro::store

int main(int argc, char** argv) {
  if (argc > 2 && std::string(argv[1]) == "--open-umask") {
    ::umask(0);
    ::execv(argv[2], argv + 2);
    return 127;
  }
  if (argc == 3 && std::string(argv[1]).starts_with("--") && std::string(argv[2]).starts_with("ipc://"))
    return moestro::store::misbehave(argv[1], argv[2]);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
