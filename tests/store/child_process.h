#pragma once
// A program run by a test, its standard error collected. Killed when the test is done with it.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/places.h"

namespace moestro::testing {

class ChildProcess {
 public:
  ChildProcess(std::vector<std::string> words, std::string log) : log_(std::move(log)) {
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ != 0) return;
    const int fd = ::open(log_.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    ::dup2(fd, 2);
    ::dup2(fd, 1);
    ::execv(argv[0], argv.data());
    ::dprintf(2, "%s: %s\n", argv[0], std::strerror(errno));
    ::_exit(127);
  }
  ~ChildProcess() {
    if (pid_ > 0) kill(SIGKILL), wait();
  }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  void kill(int signal) { ::kill(pid_, signal); }
  /// The exit code, or 128 + signal.
  int wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  std::string output() const {
    std::ifstream file(log_);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  /// False if it has not said so within 20 s, or has ended without.
  bool says(const std::string& text, std::chrono::milliseconds at_most = std::chrono::seconds(20)) const {
    const auto end = std::chrono::steady_clock::now() + at_most;
    while (std::chrono::steady_clock::now() < end) {
      const bool over = ended();  // asked first: what it said last counts
      if (output().find(text) != std::string::npos) return true;
      if (over) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

 private:
  bool ended() const {
    siginfo_t found{};
    return pid_ < 0 || (::waitid(P_PID, static_cast<id_t>(pid_), &found, WEXITED | WNOHANG | WNOWAIT) == 0 &&
                        found.si_pid == pid_);
  }
  std::string log_;
  pid_t pid_ = -1;
};

/// A program of this build.
inline std::string program(const char* name) { return (test::bin_dir() / name).string(); }

}  // namespace moestro::testing
