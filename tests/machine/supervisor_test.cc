#include "common/machine/supervisor.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>

namespace moestro::machine {
namespace {

/// A pipe whose reader sees the end when the last process that holds the other side is gone.
struct Pipe {
  int ends[2];
  Pipe() { EXPECT_EQ(::pipe(ends), 0); }
  ~Pipe() { ::close(ends[0]); }
  /// One byte, or nothing at the end; '?' if neither comes in 10 s.
  std::string next() const {
    pollfd ready{ends[0], POLLIN, 0};
    if (::poll(&ready, 1, 10'000) != 1) return "?";
    char byte = 0;
    return std::string(&byte, static_cast<size_t>(::read(ends[0], &byte, 1)));
  }
};

void supervised_by(pid_t process) { ::setenv(kSupervisorVariable, std::to_string(process).c_str(), 1); }

TEST(Supervisor, ItsDeathIsTheProgramsEnd) {
  const Pipe pipe;
  const pid_t supervisor = ::fork();
  if (supervisor == 0) {
    supervised_by(::getpid());
    if (::fork() == 0) {
      (void)!::write(pipe.ends[1], end_with_supervisor().is_ok() ? "y" : "n", 1);
    }
    for (;;) ::pause();
  }
  ::close(pipe.ends[1]);
  EXPECT_EQ(pipe.next(), "y");
  ASSERT_EQ(::kill(supervisor, SIGKILL), 0);
  ::waitpid(supervisor, nullptr, 0);
  EXPECT_EQ(pipe.next(), "") << "the program lives on";
}

TEST(Supervisor, MayHaveDiedBefore) {
  EXPECT_EXIT(
      {
        supervised_by(::getpid());  // not the parent of this process
        std::exit(end_with_supervisor().code() == Code::kUnavailable ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(Supervisor, NeedNotBe) {
  ::unsetenv(kSupervisorVariable);
  EXPECT_TRUE(end_with_supervisor().is_ok());
}

}  // namespace
}  // namespace moestro::machine
