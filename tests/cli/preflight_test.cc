// What `moestro up` finds out before it starts a program.

#include "services/cli/up/preflight.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/shm/file_lock.h"
#include "tests/cli/temp_dir.h"

namespace moestro::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
namespace fs = std::filesystem;

/// A port of 127.0.0.1 on which this listens.
class TakenPort {
 public:
  TakenPort() : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(fd_.get(), 1), 0);
    EXPECT_EQ(::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    port = std::to_string(ntohs(address.sin_port));
  }
  std::string port;
  void free() { fd_.reset(); }

 private:
  shm::UniqueFd fd_;
};

TEST(Preflight, ABusyPort) {
  TakenPort taken;
  const Status busy = check_port({"127.0.0.1", taken.port});
  EXPECT_EQ(busy.code(), Code::kUnavailable);
  EXPECT_EQ(busy.message(), "--http 127.0.0.1:" + taken.port +
                                ": the port is in use; choose another one with --http, or 0 for a free one");
  EXPECT_EQ(check_port({"0.0.0.0", taken.port}).code(), Code::kUnavailable);
  taken.free();
  EXPECT_TRUE(check_port({"127.0.0.1", taken.port}).is_ok());
  EXPECT_TRUE(check_port({"localhost", "0"}).is_ok());
  EXPECT_THAT(check_port({"box.example", "80"}).message(), HasSubstr("'box.example' is not an IP address"));
  EXPECT_THAT(check_port({"192.0.2.1", "8080"}).message(), HasSubstr("does not have that address"));
}

TEST(Preflight, FilesOfKeysAndCertificates) {
  const test::TempDir dir;
  config::BoxConfig box;
  EXPECT_TRUE(check_files(box).is_ok());
  box.orchestrator.api_keys = dir / "keys";
  EXPECT_THAT(check_files(box).message(), HasSubstr("--api-keys: cannot read"));
  test::write_file(dir / "keys", "secret bob\n");
  ::chmod((dir / "keys").c_str(), 0600);
  EXPECT_THAT(check_files(box).message(), HasSubstr("keys:1: it does not begin with sha256:"));
  test::write_file(dir / "keys", "sha256:" + std::string(64, 'a') + " bob\n");
  EXPECT_TRUE(check_files(box).is_ok());
  ::chmod((dir / "keys").c_str(), 0644);
  EXPECT_THAT(check_files(box).message(), HasSubstr("chmod o= " + (dir / "keys").string()));
  box.orchestrator.api_keys.clear();
  box.orchestrator.tls_cert = dir / "none.crt", box.orchestrator.tls_key = dir / "none.key";
  EXPECT_THAT(check_files(box).message(), HasSubstr("--tls-cert: cannot read " + (dir / "none.crt").string()));
}

TEST(Preflight, AStateThatCannotBeOpened) {
  const test::TempDir dir;
  config::BoxConfig box;
  const auto state = [&](const fs::path& path) {
    box.orchestrator.state = "sqlite:" + path.string();
    return check_state(box, dir / "run");
  };
  EXPECT_TRUE(state(dir / "new.db").is_ok());
  EXPECT_TRUE(state(dir / "one-level" / "new.db").is_ok());
  EXPECT_TRUE(state(dir / "run" / "deep" / "new.db").is_ok()) << "the run directory is made first";
  EXPECT_THAT(state(dir / "a" / "b" / "new.db").message(), HasSubstr("there is no directory " + (dir / "a").string()));
  EXPECT_THAT(state(dir.path()).message(), HasSubstr("--state: "));
  for (const char* nowhere : {"/proc/moestro/new.db", "/proc/new.db"})  // root may write there, but nothing can be made
    EXPECT_THAT(state(nowhere).message(), AllOf(HasSubstr("--state: "), HasSubstr("/proc"))) << nowhere;
  test::write_file(dir / "text", "not a database at all");
  EXPECT_THAT(state(dir / "text").message(), HasSubstr("it is not a state file"));
  EXPECT_THAT(state(dir / "text" / "x.db").message(), HasSubstr("is not a directory"));
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), {}), 1) << "what was tried is gone, the text is there";
  box.orchestrator.state = "redis://127.0.0.1:1/0";
  EXPECT_TRUE(check_state(box, dir / "run").is_ok()) << "it may come later";
  box.orchestrator.state = "default";
  EXPECT_TRUE(check_state(box, dir / "run").is_ok());
}

TEST(Preflight, AStateOfAnotherOrchestrator) {
  const test::TempDir dir;
  config::BoxConfig box;
  box.orchestrator.state = "sqlite:" + (dir / "s.db").string();
  auto lock = shm::FileLock::open(dir / "s.db.lock", /*create=*/true);
  ASSERT_TRUE(lock && *lock->try_lock());
  EXPECT_THAT(check_state(box, dir / "run").message(), HasSubstr("belongs to another orchestrator that is running"));
}

}  // namespace
}  // namespace moestro::cli
