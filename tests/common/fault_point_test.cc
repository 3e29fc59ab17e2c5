// Where programs under test die by themselves.

#include "common/fault_point.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace moestro::fault {
namespace {

using ::testing::HasSubstr;
using ::testing::KilledBySignal;

TEST(FaultPointTest, OffUnlessArmed) {
  ASSERT_TRUE(arm(""));
  EXPECT_FALSE(internal::armed);
  MOESTRO_FAULT_POINT("loading");
}

TEST(FaultPointTest, WhatIsWrongIsNamed) {
  for (const char* text : {"loading", "loading=kill", "loading=kill:", "loading=kill:0", "loading=kill:3x",
                           "loading=sleep:1", "loading:1", ",", "=kill:1"})
    EXPECT_EQ(arm(text).code(), Code::kInvalidArgument) << text;
  EXPECT_THAT(arm("lading=kill:1").message(), HasSubstr("no point 'lading', but offered, confirming, asked, loading"));
}

TEST(FaultPointDeathTest, KillsAtTheVisitThatWasAskedFor) {
  EXPECT_EXIT(
      {
        if (!arm("asked=kill:9,loading=kill:3")) std::exit(1);
        for (int visit = 1; visit <= 3; ++visit) {
          std::fprintf(stderr, "visit %d\n", visit);
          MOESTRO_FAULT_POINT("loading");
        }
        std::exit(2);
      },
      KilledBySignal(SIGKILL), "visit 3");
  EXPECT_EXIT(
      {
        if (!arm("loading=kill:3")) std::exit(1);
        for (int visit = 1; visit <= 2; ++visit) MOESTRO_FAULT_POINT("loading");
        for (int visit = 1; visit <= 9; ++visit) MOESTRO_FAULT_POINT("evicting");
        std::exit(7);
      },
      ::testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace moestro::fault
