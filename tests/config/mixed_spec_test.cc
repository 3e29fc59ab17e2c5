#include "common/config/mixed_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moestro::config {
namespace {

using testing::HasSubstr;

TEST(MixedSpec, APrecisionAndThresholds) {
  const auto bare = parse_mixed("int4");
  ASSERT_TRUE(bare.is_ok()) << bare.status().message();
  ASSERT_TRUE(bare->has_value());
  EXPECT_EQ((*bare)->low, DType::kInt4);
  EXPECT_EQ((*bare)->t1, 0.6);
  EXPECT_EQ((*bare)->t2, 1) << "nothing is left out unless that is asked for";
  const auto given = parse_mixed("int8,t2=0.75,share=0.5,t1=0.125");
  ASSERT_TRUE(given.is_ok()) << given.status().message();
  EXPECT_EQ((*given)->low, DType::kInt8);
  EXPECT_EQ((*given)->t1, 0.125);
  EXPECT_EQ((*given)->t2, 0.75);
  EXPECT_EQ((*given)->share, 0.5);
}

TEST(MixedSpec, Off) {
  const auto off = parse_mixed("off");
  ASSERT_TRUE(off.is_ok());
  EXPECT_FALSE(off->has_value());
}

TEST(MixedSpec, WhatIsWrongIsSaid) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "''"},
      {"int3", "int3"},
      {"int4,t1=nan", "t1: 'nan' is not a number from 0 to 1"},
      {"int4,t2=NaN", "t2: 'NaN' is not a number from 0 to 1"},
      {"int4,t1=-0.1", "t1: '-0.1' is not a number from 0 to 1"},
      {"int4,t2=1.01", "t2: '1.01' is not a number from 0 to 1"},
      {"int4,t1=", "t1: '' is not a number from 0 to 1"},
      {"int4,t1=0.5x", "t1: '0.5x' is not a number from 0 to 1"},
      {"int4,t1=0.9,t2=0.5", "t1=0.9 is above t2=0.5"},
      {"int4,t3=0.5", "'t3=0.5' is none of t1=SCORE, t2=SCORE and share=SHARE"},
      {"int4,t1", "'t1' is none of t1=SCORE"},
      {"int4,", "'' is none of t1=SCORE"},
      {"int4,,t1=0.5", "'' is none of t1=SCORE"},
      {"int4,t1=0.5,t2=0.6,t1=0.4", "t1= is given twice"},
      {"int4,share=0", "share=0 leaves no room"},
      {"int4,share=1", "share=1 leaves no room"},
  };
  for (const auto& [text, why] : cases) {
    const auto read = parse_mixed(text);
    ASSERT_FALSE(read.is_ok()) << text;
    EXPECT_EQ(read.status().code(), Code::kInvalidArgument) << text;
    EXPECT_THAT(read.status().message(), HasSubstr(why)) << text;
    EXPECT_THAT(read.status().message(), HasSubstr("as in int4,t1=0.6,t2=0.9")) << text;
  }
}

}  // namespace
}  // namespace moestro::config
