#include "tests/cli/run_moestro.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "tests/cli/temp_dir.h"
#include "tests/support/places.h"

namespace moestro::test {
namespace {

namespace fs = std::filesystem;

pid_t spawn(const fs::path& binary, const std::vector<std::string>& arguments, const fs::path& in,
            const fs::path& out, const fs::path& err) {
  std::vector<std::string> words{binary.string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::dup2(::open(in.c_str(), O_RDONLY), 0);
  ::dup2(::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
  ::dup2(::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
  ::execv(argv[0], argv.data());
  ::_exit(126);
}

int exit_code_of(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

fs::path moestro_binary() { return bin_dir() / "moestro"; }

Ran run_moestro(const std::vector<std::string>& arguments, const std::string& input) {
  const TempDir dir;
  write_file(dir / "in", input);
  const pid_t pid = spawn(moestro_binary(), arguments, dir / "in", dir / "out", dir / "err");
  int status = 0;
  ::waitpid(pid, &status, 0);
  return {exit_code_of(status), read_file(dir / "out"), read_file(dir / "err")};
}

Background::Background(const fs::path& binary, const std::vector<std::string>& arguments, const fs::path& dir)
    : dir_(dir), pid_(spawn(binary, arguments, "/dev/null", dir / "out", dir / "err")) {}

Background::~Background() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

std::string Background::out() const {
  return read_file(dir_ / "out");
}
std::string Background::err() const {
  return read_file(dir_ / "err");
}
void Background::signal(int number) {
  ::kill(pid_, number);
}

bool Background::wait_for(const std::string& text) {
  for (int i = 0; i < 6000; ++i) {
    if (out().find(text) != std::string::npos || err().find(text) != std::string::npos) return true;
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid == pid_)
      return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

int Background::wait_exit() {
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  return exit_code_of(status);
}

}  // namespace moestro::test
