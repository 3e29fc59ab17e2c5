// A right that is permitted and not in effect is put into effect; one that is not permitted is not.

#include "common/machine/capability.h"

#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace moestro::machine {
namespace {

constexpr uint32_t kLock = CAP_TO_MASK(CAP_IPC_LOCK);

__user_cap_header_struct header() { return {_LINUX_CAPABILITY_VERSION_3, 0}; }
uint32_t effective() {
  __user_cap_data_struct data[2]{};
  auto h = header();
  ::syscall(SYS_capget, &h, data);
  return data[0].effective & kLock;
}
/// Without the right in effect, and, if `wholly`, without the permission.
bool drop(bool wholly) {
  __user_cap_data_struct data[2]{};
  auto h = header();
  if (::syscall(SYS_capget, &h, data) != 0) return false;
  data[0].effective &= ~kLock;
  if (wholly) data[0].permitted &= ~kLock;
  return ::syscall(SYS_capset, &h, data) == 0;
}
/// What `body` returns, run in a process of its own.
template <typename Body>
int in_a_child(Body body) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(body());
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Capability, WhatIsPermittedIsPutIntoEffect) {
  if (effective() == 0) GTEST_SKIP() << "this user may not lock memory";
  EXPECT_EQ(in_a_child([] {
              return drop(false) && effective() == 0 && raise_capability(CAP_IPC_LOCK) && effective() != 0 ? 0 : 1;
            }),
            0);
  EXPECT_EQ(in_a_child([] { return raise_capability(CAP_IPC_LOCK) && effective() != 0 ? 0 : 1; }), 0)
      << "it is in effect already";
}

TEST(Capability, WhatIsNotPermittedStaysSo) {
  EXPECT_EQ(in_a_child([] { return drop(true) && !raise_capability(CAP_IPC_LOCK) && effective() == 0 ? 0 : 1; }), 0);
}

}  // namespace
}  // namespace moestro::machine
