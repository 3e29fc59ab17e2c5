#include "common/planner/product_curve.h"

#include <gtest/gtest.h>

namespace moestro::planner {
namespace {

TEST(ProductCurve, RooflineIsTheLongerOfReadingAndComputing) {
  const ProductCurve curve = ProductCurve::roofline(2, 100e9, 1e12);  // 20 ps to read, 2 ps for a row
  EXPECT_DOUBLE_EQ(curve.seconds(1, 1e9), 20e-3);
  EXPECT_DOUBLE_EQ(curve.seconds(10, 1e9), 20e-3);
  EXPECT_NEAR(curve.seconds(15, 1e9), 30e-3, 1e-12);
  EXPECT_NEAR(curve.seconds(1000, 1e9), 2, 1e-9);
  EXPECT_DOUBLE_EQ(curve.reading(1e9), 20e-3);
}

TEST(ProductCurve, WhereReadingIsNeverLonger) {
  const ProductCurve curve = ProductCurve::roofline(2, 1e15, 1e12);
  EXPECT_DOUBLE_EQ(curve.seconds(1, 1e9), 2e-3);
  EXPECT_NEAR(curve.seconds(7, 1e9), 14e-3, 1e-12);
}

TEST(ProductCurve, MeasuredPointsAreSortedAndNeverFall) {
  const ProductCurve curve({{16, 8e-9}, {1, 2e-9}, {4, 1e-9}});
  EXPECT_DOUBLE_EQ(curve.seconds(4, 1), 2e-9) << "faster with more rows is noise";
  EXPECT_DOUBLE_EQ(curve.seconds(10, 1), 5e-9);
  EXPECT_DOUBLE_EQ(curve.seconds(32, 1), 16e-9) << "past the last point";
  EXPECT_DOUBLE_EQ(curve.seconds(0.5, 1), 2e-9) << "a row reads all weights";
  EXPECT_EQ(curve.seconds(0, 1), 0);
}

}  // namespace
}  // namespace moestro::planner
