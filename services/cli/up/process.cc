#include "services/cli/up/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "common/machine/supervisor.h"

namespace moestro::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kTakenSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGCHLD};

/// Between fork and exec: system calls only.
[[noreturn]] void become(const char* binary, char* const* argv, char* const* environment, pid_t parent, int input,
                         int output) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // and machine::end_with_supervisor() in the program
  if (::getppid() != parent) ::_exit(1);  // it died before the line above
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  ::dup2(input, STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  ::execve(binary, argv, environment);
  const char* why = ::strerror(errno);
  (void)!::write(STDERR_FILENO, "cannot run ", 11);
  (void)!::write(STDERR_FILENO, binary, ::strlen(binary));
  (void)!::write(STDERR_FILENO, ": ", 2);
  (void)!::write(STDERR_FILENO, why, ::strlen(why));
  (void)!::write(STDERR_FILENO, "\n", 1);
  ::_exit(127);
}

}  // namespace

Result<fs::path> find_binary(const std::string& name) {
  std::error_code error;
  const fs::path beside = fs::read_symlink("/proc/self/exe", error).parent_path() / name;
  if (!error && ::access(beside.c_str(), X_OK) == 0) return beside;
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const fs::path candidate = fs::path(folder.empty() ? "." : folder) / name;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return not_found("program " + name + " is neither in this program's directory (" + beside.parent_path().string() +
                   ") nor on PATH; build or install it");
}

Result<pid_t> launch(const fs::path& binary, const std::vector<std::string>& arguments, const fs::path& log) {
  const Fd output(::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (output.get() < 0) return io_error("cannot open log " + log.string(), errno);
  const Fd input(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (input.get() < 0) return io_error("cannot open /dev/null", errno);
  const std::string program = binary.string();
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = ::getpid();
  std::string supervisor = std::string(machine::kSupervisorVariable) + "=" + std::to_string(parent);
  std::vector<char*> environment{supervisor.data()};
  for (char** variable = ::environ; *variable != nullptr; ++variable) environment.push_back(*variable);
  environment.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid < 0) return io_error("cannot start " + program, errno);
  if (pid == 0) become(program.c_str(), argv.data(), environment.data(), parent, input.get(), output.get());
  return pid;
}

std::optional<ProcessEnd> reap(pid_t pid) {
  int status = 0;
  if (::waitpid(pid, &status, WNOHANG) != pid) return std::nullopt;
  if (WIFSIGNALED(status)) return ProcessEnd{true, WTERMSIG(status), {}};
  return ProcessEnd{false, WEXITSTATUS(status), {}};
}

Result<Signals> Signals::take() {
  sigset_t taken;
  ::sigemptyset(&taken);
  for (const int number : kTakenSignals) ::sigaddset(&taken, number);
  if (::sigprocmask(SIG_BLOCK, &taken, nullptr) != 0) return io_error("sigprocmask", errno);
  ::signal(SIGPIPE, SIG_IGN);
  Fd fd(::signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
  if (fd.get() < 0) return io_error("signalfd", errno);
  return Signals(std::move(fd));
}

Signals::Seen Signals::wait(int timeout_ms) {
  pollfd poll_fd{fd_.get(), POLLIN, 0};
  ::poll(&poll_fd, 1, timeout_ms);
  Seen seen;
  signalfd_siginfo info{};
  while (::read(fd_.get(), &info, sizeof info) == sizeof info)
    if (info.ssi_signo != SIGCHLD) ++seen.stops;
  return seen;
}

}  // namespace moestro::cli
