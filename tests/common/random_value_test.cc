#include "common/random_value.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <array>
#include <cstddef>

namespace moestro {
namespace {

TEST(RandomValue, IsAnotherEachTime) {
  EXPECT_NE(random_value<uint64_t>(), random_value<uint64_t>());
  EXPECT_NE((random_value<std::array<unsigned char, 12>>()), (random_value<std::array<unsigned char, 12>>()));
}

/// From here on this process gets EPERM from getrandom(), as a container's profile could have it.
void refuse_random_bytes() {
  sock_filter program[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                           BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_getrandom, 0, 1),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog filter{std::size(program), program};
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0);
}

TEST(RandomValueDeathTest, IsNeverANumberThatEverybodyKnows) {
  EXPECT_DEATH(
      {
        refuse_random_bytes();
        (void)random_value<uint64_t>();
      },
      "the kernel gives random bytes");
}

}  // namespace
}  // namespace moestro
