// Which clusters are found on this machine: run directories whose sockets accept connections.

#include "services/cli/instance/instances.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstring>

#include "common/shm/mapped_file.h"
#include "tests/cli/temp_dir.h"

namespace moestro::cli {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

/// Listens on a Unix socket for as long as it lives; its file stays.
shm::UniqueFd listen_at(const fs::path& path) {
  shm::UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0) << path;
  EXPECT_EQ(::listen(fd.get(), 8), 0);
  return fd;
}

class Instances : public testing::Test {
 protected:
  Instances() { fs::permissions(dir_.path(), fs::perms::owner_all); }
  fs::path make(const std::string& name, const std::string& port) {
    fs::create_directory(dir_ / name);
    fs::permissions(dir_ / name, fs::perms::owner_all);
    test::write_file(dir_ / name / "http.port", port + "\n");
    return dir_ / name;
  }
  std::vector<fs::path> homes() const { return {dir_ / "nothing", dir_.path()}; }

  test::TempDir dir_;
};

TEST_F(Instances, TheOneThatRunsIsFound) {
  { const shm::UniqueFd killed = listen_at(make("killed", "1") / "store.sock"); }
  make("never", "2");
  const shm::UniqueFd store = listen_at(make("demo", "9123") / "store.sock");
  const std::vector<Instance> found = find_instances(homes());
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].name, "demo");
  EXPECT_EQ(only_instance(found)->run_dir, dir_ / "demo");
  const auto server = find_server({}, homes());
  ASSERT_TRUE(server) << server.status().message();
  EXPECT_EQ(server->url.origin(), "http://127.0.0.1:9123");
}

TEST_F(Instances, SeveralAreNamedWithTheWayToChoose) {
  const shm::UniqueFd a = listen_at(make("big", "9001") / "store.sock");
  const shm::UniqueFd b = listen_at(make("small", "9002") / "orchestrator.sock");
  const Status which = only_instance(find_instances(homes())).status();
  EXPECT_EQ(which.code(), Code::kInvalidArgument);
  EXPECT_EQ(which.message(), "several clusters run here: big (" + (dir_ / "big").string() + "), small (" +
                                 (dir_ / "small").string() + "); choose one with --name or --run-dir");
  const Status server = find_server({}, homes()).status();
  EXPECT_EQ(server.message(),
            "several servers run here: big (http://127.0.0.1:9001), small (http://127.0.0.1:9002); "
            "choose one with --url");
  ServerOptions options;
  options.url = "http://127.0.0.1:1";
  EXPECT_EQ(find_server(options, homes())->url.port, "1") << "--url is enough";
}

TEST_F(Instances, ANameMeansTheClusterThatRunsOrTheOneThatUpWouldStart) {
  const shm::UniqueFd store = listen_at(make("demo", "9123") / "store.sock");
  EXPECT_EQ(run_dir_of("demo", homes()), dir_ / "demo") << "though the first home is another";
  EXPECT_EQ(run_dir_of("other", homes()), dir_ / "nothing" / "other");
}

TEST_F(Instances, NamesWithSlashesAndColonsMeanTheDirectoriesThatUpMakes) {
  const shm::UniqueFd store = listen_at(make("org--demo--7b", "9123") / "store.sock");
  EXPECT_EQ(run_dir_of("org/demo:7b", homes()), dir_ / "org--demo--7b");
  EXPECT_EQ(run_dir_of("org--demo--7b", homes()), dir_ / "org--demo--7b") << "as lists of clusters have it";
  EXPECT_EQ(run_dir_of("org/other", homes()), dir_ / "nothing" / "org--other");
}

TEST_F(Instances, NoneSaysHowToStartOne) {
  const Status none = only_instance(find_instances(homes())).status();
  EXPECT_EQ(none.code(), Code::kUnavailable);
  EXPECT_THAT(none.message(), HasSubstr("start one with `moestro up --model PACK`"));
  const auto server = find_server({}, homes());
  ASSERT_TRUE(server);
  EXPECT_EQ(server->url.origin(), "http://127.0.0.1:8080") << "one in a container may be there";
  EXPECT_THAT(server->access.not_there, HasSubstr("moestro up --model PACK"));
}

TEST_F(Instances, WhatOthersCouldHavePutThereIsNotAsked) {
  const shm::UniqueFd store = listen_at(make("demo", "9123") / "store.sock");
  ::chmod(dir_.path().c_str(), 0777);
  EXPECT_TRUE(find_instances(homes()).empty());
  ::chmod(dir_.path().c_str(), 0700);
  EXPECT_EQ(find_instances(homes()).size(), 1u);
}

}  // namespace
}  // namespace moestro::cli
