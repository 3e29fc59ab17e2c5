#pragma once
// A program run by a test, its standard error collected. Killed when the test is done with it.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

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
  /// False if it has not said so within 20 s.
  bool says(const std::string& text, std::chrono::milliseconds at_most = std::chrono::seconds(20)) const {
    const auto end = std::chrono::steady_clock::now() + at_most;
    while (std::chrono::steady_clock::now() < end) {
      if (output().find(text) != std::string::npos) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

 private:
  std::string log_;
  pid_t pid_ = -1;
};

/// A program of this build.
inline std::string program(const char* name) {
  const char* dir = std::getenv("MOESTRO_BIN_DIR");
  return std::string(dir != nullptr ? dir : "bin") + "/" + name;
}

}  // namespace moestro::testing
