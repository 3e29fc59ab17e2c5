#include "common/percent_decode.h"

#include <gtest/gtest.h>

namespace moestro {
namespace {

TEST(PercentDecode, Escapes) {
  EXPECT_EQ(percent_decoded("a%20b%2Fc%c3%A9"), "a b/c\xc3\xa9");
  EXPECT_EQ(percent_decoded("a+b"), "a+b");
  EXPECT_EQ(percent_decoded("a+b%2B", true), "a b+");
  EXPECT_EQ(percent_decoded(""), "");
}

TEST(PercentDecode, WrongEscapesAreNothing) {
  for (const char* text : {"%", "%2", "a%", "%g0", "%0g", "%-1", "% 1", "%%41"})
    EXPECT_EQ(percent_decoded(text), std::nullopt) << text;
}

}  // namespace
}  // namespace moestro
