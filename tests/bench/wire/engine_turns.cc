#include "tests/bench/wire/engine_turns.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

namespace moestro::bench {

EngineTurns::EngineTurns(std::vector<std::string> words) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return;
  pid_ = ::fork();
  if (pid_ == 0) {
    ::dup2(ends[1], 0);
    ::dup2(ends[1], 1);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  ::close(ends[1]);
  fd_ = ends[0];
  ready_ = line() == "ready";
}

EngineTurns::~EngineTurns() {
  if (fd_ >= 0) ::close(fd_);  // the end of its input: it reports to nobody and ends
  if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
}

std::string EngineTurns::line() {
  for (;;) {
    if (const size_t end = buffer_.find('\n'); end != std::string::npos) {
      std::string text = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return text;
    }
    char bytes[256];
    const ssize_t n = ::read(fd_, bytes, sizeof bytes);
    if (n <= 0) return "";
    buffer_.append(bytes, static_cast<size_t>(n));
  }
}

double EngineTurns::run() {
  if (::send(fd_, "0\n", 2, MSG_NOSIGNAL) != 2) return 0;
  return std::strtod(line().c_str(), nullptr);
}

}  // namespace moestro::bench
