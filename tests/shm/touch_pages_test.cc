#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "common/shm/mapped_file.h"

namespace moestro::shm {
namespace {

TEST(TouchPagesTest, LeavesWhatIsThere) {
  std::vector<std::byte> memory(5 * 4096 + 17, std::byte{0xa5});
  touch_pages(memory);
  EXPECT_TRUE(std::ranges::all_of(memory, [](std::byte b) { return b == std::byte{0xa5}; }));
}

}  // namespace
}  // namespace moestro::shm
