#include "services/cli/common/output.h"

#include <gtest/gtest.h>

namespace moestro::cli {
namespace {

TEST(Output, OneLineStaysOneLineAndHarmless) {
  EXPECT_EQ(one_line("a\nb\tc"), "a b\tc");
  EXPECT_EQ(one_line("\x1b[2J\x07"), "\\x1b[2J\\x07");
  EXPECT_EQ(one_line("gr\xc3\xbc\xc3\x9f"), "gr\xc3\xbc\xc3\x9f");
}

TEST(Output, CountsForPeople) {
  EXPECT_EQ(readable_count(0), "0.00");
  EXPECT_EQ(readable_count(12.34), "12.3");
  EXPECT_EQ(readable_count(1234), "1234");
  EXPECT_EQ(readable_count(12345), "12.3k");
  EXPECT_EQ(readable_count(1.5e6), "1.50M");
}

}  // namespace
}  // namespace moestro::cli
