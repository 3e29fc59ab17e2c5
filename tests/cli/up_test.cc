// `moestro up` with small scripts beside it in place of the three programs: what it starts, restarts, says,
// and leaves behind.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <csignal>
#include <sstream>
#include <thread>
#include <tuple>

#include "common/shm/file_lock.h"
#include "common/shm/mapped_file.h"
#include "tests/cli/run_moestro.h"
#include "tests/cli/temp_dir.h"

namespace moestro::test {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

// Each is started with "-c RUN_DIR/box.yaml" (then "--name NAME" or "--http HOST:PORT") and writes its pid and its end
// to a file; the store makes its socket's file, the orchestrator serves /health.
constexpr const char* kStore = R"sh(#!/bin/sh
run=$(dirname "$2")
touch "$run/store.sock"
echo "start store $$" >> "$run/../events"
trap 'echo "end store" >> "$run/../events"; exit 0' TERM
while :; do sleep 0.02; done
)sh";
constexpr const char* kWorker = R"sh(#!/bin/sh
name=$4
events=$(dirname "$(dirname "$2")")/events
[ -e "$events.fail" ] && { echo "cannot map the arena" >&2; exit 1; }
echo "start $name $$" >> "$events"
trap 'echo "end $name" >> "$events"; exit 0' TERM
while :; do sleep 0.02; done
)sh";
constexpr const char* kOrchestrator = R"sh(#!/usr/bin/env python3
import http.server, os, signal, sys
run = os.path.dirname(sys.argv[2])
host, port = sys.argv[sys.argv.index("--http") + 1].rsplit(":", 1)
events = os.path.join(os.path.dirname(run), "events")
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        up = "start worker-0" in open(events).read() and not os.path.exists(events + ".away")
        body = b"{}" if up else b'{"error": {"message": "no worker"}}'
        self.send_response(200 if up else 503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
server = http.server.HTTPServer((host, int(port)), Handler)
def end(*_):
    open(events, "a").write("end orchestrator\n")
    os._exit(0)
signal.signal(signal.SIGTERM, end)
open(os.path.join(run, "http.port.new"), "w").write(str(server.server_port))
os.rename(os.path.join(run, "http.port.new"), os.path.join(run, "http.port"))
open(events, "a").write("start orchestrator %d\n" % os.getpid())
server.serve_forever()
)sh";

class UpTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(dir_ / "bin");
    fs::create_directories(dir_ / "pack");
    write_file(dir_ / "pack" / "manifest", "x");
    std::error_code error;
    fs::create_hard_link(moestro_binary(), dir_ / "bin" / "moestro", error);
    if (error) fs::copy_file(moestro_binary(), dir_ / "bin" / "moestro");
    add_program("moestro-store", kStore);
    add_program("moestro-worker", kWorker);
    add_program("moestro-orchestrator", kOrchestrator);
  }

  void add_program(const std::string& name, const char* text) {
    write_file(dir_ / "bin" / name, text);
    fs::permissions(dir_ / "bin" / name, fs::perms::owner_all);
  }

  std::unique_ptr<Background> up(const std::vector<std::string>& more = {}, const std::string& http = "127.0.0.1:0") {
    std::vector<std::string> arguments{"up",
                                       "--model",
                                       (dir_ / "pack").string(),
                                       "--run-dir",
                                       (dir_ / "run").string(),
                                       "--arena-dir",
                                       (dir_ / "arena").string(),
                                       "--http",
                                       http};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const fs::path output = dir_ / ("output" + std::to_string(++runs_));
    fs::create_directory(output);
    return std::make_unique<Background>(dir_ / "bin" / "moestro", arguments, output);
  }

  std::string events() const { return read_file(dir_ / "events"); }

  /// The pid in the n-th "start NAME PID", 0 if there is none yet.
  pid_t started(const std::string& name, int n = 1) const {
    std::istringstream lines(events());
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("start " + name + " ") && --n == 0) return std::stoi(line.substr(7 + name.size()));
    return 0;
  }

  /// Looks every 5 ms, for 30 s at most.
  bool wait_for_start(const std::string& name, int n) const {
    for (int i = 0; i < 6000 && started(name, n) == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return started(name, n) != 0;
  }

  TempDir dir_;
  int runs_ = 0;
};

TEST_F(UpTest, SaysReadyDrainsInOrderAndLeavesNothingRunning) {
  const auto up = this->up({"--workers", "2"});
  ASSERT_TRUE(up->wait_for("ready http://127.0.0.1:")) << up->err();
  const std::string port = read_file(dir_ / "run" / "http.port");
  EXPECT_EQ(up->out(), "ready http://127.0.0.1:" + port + "\n");
  up->signal(SIGINT);
  EXPECT_EQ(up->wait_exit(), 0) << up->err();
  const std::string all = events();
  const size_t orchestrator = all.find("end orchestrator"), worker0 = all.find("end worker-0"),
               worker1 = all.find("end worker-1"), store = all.find("end store");
  ASSERT_NE(store, std::string::npos) << all;
  EXPECT_LT(orchestrator, std::min(worker0, worker1));
  EXPECT_LT(std::max(worker0, worker1), store);
  for (const char* name : {"store", "worker-0", "worker-1", "orchestrator"})
    EXPECT_NE(::kill(started(name), 0), 0) << name;
}

TEST_F(UpTest, StartsAgainWhatDies) {
  const auto up = this->up();
  ASSERT_TRUE(up->wait_for("ready ")) << up->err();
  const std::string port = read_file(dir_ / "run" / "http.port");
  for (const char* name : {"worker-0", "orchestrator", "store"}) {
    ::kill(started(name), SIGKILL);
    ASSERT_TRUE(up->wait_for(std::string(name) + " started again")) << up->err();
    EXPECT_THAT(up->err(),
                HasSubstr(std::string(name) + " ended with signal 9 (Killed); starting it again in 0.1 s"));
  }
  ASSERT_TRUE(up->wait_for("orchestrator started again"));
  ASSERT_TRUE(wait_for_start("orchestrator", 2));
  EXPECT_EQ(read_file(dir_ / "run" / "http.port"), port) << "back on the port that clients know";
  up->signal(SIGTERM);
  EXPECT_EQ(up->wait_exit(), 0) << up->err();
  EXPECT_THAT(events(), HasSubstr("start orchestrator"));
  EXPECT_GT(started("worker-0", 2), 0);
  EXPECT_EQ(up->out(), "ready http://127.0.0.1:" + port + "\n") << "said once";
}

TEST_F(UpTest, WhatDiesFiveTimesInARowEndsItWithItsLastWords) {
  write_file(dir_ / "events.fail", "");
  const auto up = this->up();
  EXPECT_EQ(up->wait_exit(), 1);
  EXPECT_THAT(up->err(), HasSubstr("worker-0 ended with exit 1, 5 times in a row"));
  EXPECT_THAT(up->err(), HasSubstr("cannot map the arena"));
  EXPECT_EQ(up->out(), "");
  EXPECT_THAT(events(), HasSubstr("end store"));
}

TEST_F(UpTest, WhatAnotherStartCannotMendEndsItAtOnceInTheProgramsWords) {
  add_program("moestro-worker", "#!/bin/sh\necho one >> \"$(dirname \"$(dirname \"$2\")\")/starts\"\n"
                                "echo 'moestro-worker: worker-0: no expert as int8' >&2\nexit 2\n");
  const auto up = this->up();
  EXPECT_EQ(up->wait_exit(), 1);
  const std::string said = up->err();
  EXPECT_THAT(said,
              testing::EndsWith("worker-0 ended with exit 2, which another start cannot mend: no expert as int8\n"));
  EXPECT_EQ(read_file(dir_ / "starts"), "one\n");
  EXPECT_THAT(said, testing::Not(HasSubstr("the end of"))) << "its log has nothing to add";
}

TEST_F(UpTest, AMissingProgramIsNamedBeforeAnythingStarts) {
  fs::remove(dir_ / "bin" / "moestro-worker");
  const auto up = this->up();
  EXPECT_EQ(up->wait_exit(), 1);
  EXPECT_THAT(up->err(), HasSubstr("program moestro-worker is neither in this program's directory"));
  EXPECT_EQ(events(), "");
}

TEST_F(UpTest, WhatStandsAgainstAStartIsSaidBeforeAnythingIsMade) {
  const shm::UniqueFd taken(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(taken.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(taken.get(), 1), 0);
  ASSERT_EQ(::getsockname(taken.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  write_file(dir_ / "keys", "not a key\n");
  fs::permissions(dir_ / "keys", fs::perms::owner_read);
  const std::string file = dir_ / "none";
  const std::tuple<std::unique_ptr<Background>, int, std::string> cases[] = {
      {up({}, std::to_string(ntohs(address.sin_port))), 1, "the port is in use; choose another one with --http"},
      {up({"--api-keys", dir_ / "keys"}), 2, "keys:1: it does not begin with sha256:"},
      {up({"--tls-cert", file, "--tls-key", file}), 1, "--tls-cert: cannot read " + file},
      {up({"--state", "sqlite:" + file + "/a/b.db"}), 1, "there is no directory " + file},
  };
  for (const auto& [process, exit_code, why] : cases) {
    EXPECT_EQ(process->wait_exit(), exit_code) << why;
    EXPECT_THAT(process->err(), HasSubstr(why));
    EXPECT_EQ(std::ranges::count(process->err(), '\n'), 1) << process->err();
  }
  EXPECT_EQ(events(), "");
  EXPECT_FALSE(fs::exists(dir_ / "run") || fs::exists(dir_ / "arena"));
}

TEST_F(UpTest, AStateThatIsInUseIsRefusedAsTheOrchestratorRefusesIt) {
  const fs::path state = dir_ / "state.db";
  auto lock = shm::FileLock::open(state.string() + ".lock", /*create=*/true);
  ASSERT_TRUE(lock.is_ok() && *lock->try_lock());
  const auto in_use = up({"--state", "sqlite:" + state.string()});
  EXPECT_EQ(in_use->wait_exit(), 2);
  EXPECT_THAT(in_use->err(), HasSubstr("the state " + state.string() + " belongs to another orchestrator"));
  lock->unlock();
  write_file(state, "no state");
  const auto foreign = up({"--state", "sqlite:" + state.string()});
  EXPECT_EQ(foreign->wait_exit(), 2);
  EXPECT_THAT(foreign->err(), HasSubstr("not a state file"));
  EXPECT_EQ(events(), "");
}

TEST_F(UpTest, WhatIsNoAddressIsAWrongCommandLine) {
  const auto no_address = up({}, "somehost:8080");
  EXPECT_EQ(no_address->wait_exit(), 2);
  EXPECT_THAT(no_address->err(), HasSubstr("'somehost' is not an IP address"));
  EXPECT_EQ(events(), "");
}

TEST_F(UpTest, WhyItDoesNotServeIsSaidInWords) {
  const auto up = this->up();
  ASSERT_TRUE(up->wait_for("ready ")) << up->err();
  write_file(dir_ / "events.away", "");
  for (int i = 0; i < 6000 && up->err().find("does not serve") == std::string::npos; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_THAT(up->err(), HasSubstr("moestro: does not serve at present: no worker\n"));
}

TEST_F(UpTest, OneUpARunDirectory) {
  const auto first = this->up();
  ASSERT_TRUE(first->wait_for("ready ")) << first->err();
  const Ran second =
      run_moestro({"up", "--model", (dir_ / "pack").string(), "--run-dir", (dir_ / "run").string()});
  EXPECT_EQ(second.exit_code, 1);
  EXPECT_THAT(second.err, HasSubstr("another `moestro up` runs in"));
}

TEST_F(UpTest, TheProgramsEndWithAnUpThatIsKilledAndTheNextOneWaitsForThem) {
  auto first = this->up();
  ASSERT_TRUE(first->wait_for("ready ")) << first->err();
  first->signal(SIGKILL);
  first->wait_exit();
  const auto second = this->up();
  ASSERT_TRUE(second->wait_for("ready ")) << second->err();
  const std::string all = events();
  const size_t ended = all.find("end store"), again = all.rfind("start store");
  ASSERT_NE(ended, std::string::npos) << all;
  EXPECT_LT(ended, again) << all;
}

}  // namespace
}  // namespace moestro::test
