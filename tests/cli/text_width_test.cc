// How wide text is on a terminal, and how it is made to fit.

#include "services/cli/top/text_width.h"

#include <gtest/gtest.h>

namespace moestro::cli {
namespace {

TEST(TextWidth, CountsColumnsAndNotBytes) {
  EXPECT_EQ(display_width("mixtral"), 7u);
  EXPECT_EQ(display_width("naïve"), 5u);
  EXPECT_EQ(display_width("模型"), 4u);
  EXPECT_EQ(display_width("e\u0301"), 1u) << "an accent joins its letter";
  EXPECT_EQ(display_width("🙂"), 2u);
  EXPECT_EQ(display_width(""), 0u);
}

TEST(TextWidth, WhatFitsEndsBetweenCharacters) {
  EXPECT_EQ(fitting("模型", 3), "模");
  EXPECT_EQ(fitting("模型", 1), "");
  EXPECT_EQ(fitting("e\u0301x", 1), "e\u0301");
  EXPECT_EQ(fitting("abc", 9), "abc");
}

TEST(TextWidth, NamesLoseTheirMiddle) {
  EXPECT_EQ(shortened("mixtral", 24), "mixtral");
  EXPECT_EQ(shortened("abcdefghijklmnop", 10), "abcd..mnop");
  EXPECT_EQ(shortened("通义千问混合专家模型", 10), "通义..模型");
  EXPECT_EQ(shortened("通义千问混合专家模型", 11), "通义..模型") << "half a character is none";
  EXPECT_EQ(shortened("abcdef", 3), "abc");
  for (const char* name : {"通义a千问b混合c专家", "🙂🙂🙂🙂🙂🙂", "ẽ̃ẽ̃ẽ̃ẽ̃ẽ̃ẽ̃ẽ̃"})
    for (size_t columns = 0; columns < 24; ++columns) {
      EXPECT_LE(display_width(shortened(name, columns)), columns) << name;
      EXPECT_EQ(display_width(padded(shortened(name, columns), columns)), columns) << name;
    }
}

TEST(TextWidth, NothingSteersTheTerminal) {
  EXPECT_EQ(visible("\x1b[2J"), "\\x1b[2J");
  EXPECT_EQ(visible("a\tb\nc"), "a b c");
  EXPECT_EQ(visible("a\u009b2Jb"), "a\uFFFD2Jb") << "CSI in one character";
  EXPECT_EQ(visible("a\u202Eb"), "a\uFFFDb") << "turns the direction of writing";
  EXPECT_EQ(visible("a\u2028b"), "a\uFFFDb");
  EXPECT_EQ(visible("a\xff\xc3(b"), "a\uFFFD\uFFFD(b") << "no UTF-8";
  EXPECT_EQ(visible("naïve 模型"), "naïve 模型");
}

}  // namespace
}  // namespace moestro::cli
