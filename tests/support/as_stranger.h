#pragma once
// Permissions do not bind root, which tests often run as.

#include <gtest/gtest.h>
#include <unistd.h>

namespace moestro::test {

/// While it lives, this process has the rights of a user that owns nothing; those of its own user if that is not root.
class AsStranger {
 public:
  AsStranger() : root_(::geteuid() == 0) {
    if (root_) EXPECT_EQ(::seteuid(kStranger), 0);
  }
  ~AsStranger() {
    if (root_) EXPECT_EQ(::seteuid(0), 0);
  }
  AsStranger(const AsStranger&) = delete;
  AsStranger& operator=(const AsStranger&) = delete;

 private:
  static constexpr uid_t kStranger = 54321;
  const bool root_;
};

}  // namespace moestro::test
