#include "orchestrator/stop_signal.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace moestro::orchestrator {
namespace {

/// A process (`up`, as it were) and the one that it has started with SIGTERM as its death signal. The latter says its
/// pid, then how it was told to stop.
class StopSignal : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(::pipe(said_), 0);
    starter_ = ::fork();
    ASSERT_GE(starter_, 0);
    if (starter_ == 0) start();
    ASSERT_EQ(::read(said_[0], &started_, sizeof started_), static_cast<ssize_t>(sizeof started_));
  }
  void TearDown() override {
    ::kill(starter_, SIGKILL);
    ::waitpid(starter_, nullptr, 0);
    for (const int fd : said_) ::close(fd);
  }
  [[noreturn]] void start() {
    if (::fork() != 0)
      for (;;) ::pause();
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    const StopSignals signals = StopSignals::block();
    const pid_t own = ::getpid();
    (void)!::write(said_[1], &own, sizeof own);
    const Stop how = signals.wait();
    (void)!::write(said_[1], &how, sizeof how);
    ::_exit(0);
  }
  Stop told() {
    Stop how{};
    EXPECT_EQ(::read(said_[0], &how, sizeof how), static_cast<ssize_t>(sizeof how));
    return how;
  }

  int said_[2] = {-1, -1};
  pid_t starter_ = -1, started_ = -1;
};

TEST_F(StopSignal, AtOnceWhenWhoeverStartedItIsGone) {
  ::kill(starter_, SIGKILL);
  EXPECT_EQ(told(), Stop::kAtOnce);
}

TEST_F(StopSignal, OtherwiseItDrains) {
  ::kill(started_, SIGTERM);
  EXPECT_EQ(told(), Stop::kDrain);
}

TEST_F(StopSignal, AlsoOnCtrlC) {
  ::kill(started_, SIGINT);
  EXPECT_EQ(told(), Stop::kDrain);
}

}  // namespace
}  // namespace moestro::orchestrator
