#include "common/settings.h"

#include <gtest/gtest.h>

#include <string>

namespace moestro {
namespace {

/// What was set, or the refusal.
std::string read(std::string_view text) {
  std::string seen;
  const auto note = [&seen](char key) {
    return [&seen, key](std::string_view value) {
      if (value == "bad") return invalid_argument("'bad' is no good");
      seen += key + ("(" + std::string(value) + ")");
      return Status::ok();
    };
  };
  const Setting known[] = {{"a", note('a')}, {"b", note('b')}};
  const Status status = read_settings(text, known, "none of a=TEXT and b=TEXT");
  return status.is_ok() ? seen : status.message();
}

TEST(Settings, AreSetInTheirOrder) {
  EXPECT_EQ(read("b=1,a=2"), "b(1)a(2)");
  EXPECT_EQ(read("a="), "a()");
  EXPECT_EQ(read("a=b=c"), "a(b=c)");
}

TEST(Settings, WhatIsWrongIsSaid) {
  EXPECT_EQ(read(""), "'' is none of a=TEXT and b=TEXT");
  EXPECT_EQ(read("a=1,"), "'' is none of a=TEXT and b=TEXT");
  EXPECT_EQ(read("a=1,c=2"), "'c=2' is none of a=TEXT and b=TEXT");
  EXPECT_EQ(read("a"), "'a' is none of a=TEXT and b=TEXT");
  EXPECT_EQ(read("a=1,b=2,a=1"), "a= is given twice");
  EXPECT_EQ(read("a=1,b=bad"), "b: 'bad' is no good");
}

}  // namespace
}  // namespace moestro
