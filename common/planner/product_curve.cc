#include "common/planner/product_curve.h"

#include <algorithm>

#include "common/check.h"

namespace moestro::planner {

ProductCurve::ProductCurve(std::vector<Point> points) : points_(std::move(points)) {
  MOESTRO_CHECK(!points_.empty(), "a curve has a point");
  std::ranges::sort(points_, {}, &Point::rows);
  for (size_t i = 1; i < points_.size(); ++i) points_[i].seconds = std::max(points_[i].seconds, points_[i - 1].seconds);
}

ProductCurve ProductCurve::roofline(double bytes_per_parameter, double bytes_per_s, double operations_per_s) {
  const double read = bytes_per_parameter / bytes_per_s, row = 2 / operations_per_s;
  const double turn = std::max(1.0, read / row);  // from here on computing is longer
  return ProductCurve({{1, std::max(read, row)}, {turn, std::max(read, row)}, {2 * turn, 2 * turn * row}});
}

double ProductCurve::seconds(double rows, double parameters) const {
  if (points_.empty() || rows <= 0) return 0;
  const auto after = std::ranges::lower_bound(points_, rows, {}, &Point::rows);
  if (after == points_.begin()) return after->seconds * parameters;
  const Point& before = *(after - 1);
  if (after == points_.end()) return before.seconds * rows / before.rows * parameters;
  const double share = (rows - before.rows) / (after->rows - before.rows);
  return (before.seconds + share * (after->seconds - before.seconds)) * parameters;
}

}  // namespace moestro::planner
