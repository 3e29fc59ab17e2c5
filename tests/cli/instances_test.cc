// Which clusters are found on this machine: run directories whose sockets accept connections.

#include "services/cli/instance/instances.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/cli/temp_dir.h"
#include "tests/cli/unix_socket.h"

namespace moestro::cli {
namespace {

using test::listen_at;
using testing::HasSubstr;
namespace fs = std::filesystem;

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

TEST_F(Instances, ANameMeansTheClusterThatRunsOrTheOneThatUpStarts) {
  const shm::UniqueFd store = listen_at(make("demo", "9123") / "store.sock");
  EXPECT_EQ(*run_dir_of("demo", homes()), dir_ / "demo") << "though the first home is another";
  const Status absent = run_dir_of("other", homes()).status();
  EXPECT_EQ(absent.code(), Code::kUnavailable);
  EXPECT_EQ(absent.message(), "no cluster 'other' of this user runs here: " + (dir_ / "nothing/other").string() +
                                  " is not there; name another directory with --run-dir");
  make("soon", "2");
  EXPECT_EQ(*run_dir_of("soon", {dir_.path()}), dir_ / "soon") << "its programs have not come up yet";
}

TEST_F(Instances, NamesWithSlashesAndColonsMeanTheDirectoriesThatUpMakes) {
  const shm::UniqueFd store = listen_at(make("org--demo--7b", "9123") / "store.sock");
  EXPECT_EQ(*run_dir_of("org/demo:7b", homes()), dir_ / "org--demo--7b");
  EXPECT_EQ(*run_dir_of("org--demo--7b", homes()), dir_ / "org--demo--7b") << "as lists of clusters have it";
  EXPECT_THAT(run_dir_of("org/other", homes()).status().message(), HasSubstr(dir_ / "nothing" / "org--other"));
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
  EXPECT_THAT(run_dir_of("demo", {dir_.path()}).status().message(), HasSubstr("is open to writing by others"));
  ::chmod(dir_.path().c_str(), 0700);
  EXPECT_EQ(find_instances(homes()).size(), 1u);
  EXPECT_TRUE(run_dir_of("demo", {dir_.path()}));
}

TEST_F(Instances, ALinkInPlaceOfARunDirectoryIsNotFollowed) {
  const shm::UniqueFd store = listen_at(make("demo", "9123") / "store.sock");
  fs::create_directory_symlink(dir_ / "demo", dir_ / "other");
  const Status refused = run_dir_of("other", {dir_.path()}).status();
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("is not a directory of this user"));
  EXPECT_EQ(find_instances(homes()).size(), 1u);
}

TEST_F(Instances, AnotherUsersDirectoryIsNotAsked) {
  const shm::UniqueFd store = listen_at(make("demo", "9123") / "store.sock");
  if (::chown((dir_ / "demo").c_str(), 12345, static_cast<gid_t>(-1)) != 0)
    GTEST_SKIP() << "only root can give a directory to another user";
  EXPECT_THAT(run_dir_of("demo", {dir_.path()}).status().message(), HasSubstr("belongs to user 12345"));
  EXPECT_TRUE(find_instances(homes()).empty());
}

}  // namespace
}  // namespace moestro::cli
