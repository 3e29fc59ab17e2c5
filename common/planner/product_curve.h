#pragma once
// How long products with weights take, by the number of rows.

#include <vector>

namespace moestro::planner {

/// Straight lines between points. With few rows the weights are streamed and the time is flat; with many it grows with
/// the rows.
class ProductCurve {
 public:
  struct Point {
    double rows = 1;
    double seconds = 0;  ///< of the product of all rows with a weight, divided by the weight's parameters
  };

  ProductCurve() = default;
  /// As measured, at least one point, in any order. A point that is below one with fewer rows is noise and is raised.
  explicit ProductCurve(std::vector<Point> points);
  /// The longer of streaming the weights once and computing.
  static ProductCurve roofline(double bytes_per_parameter, double bytes_per_s, double operations_per_s);

  const std::vector<Point>& points() const { return points_; }
  /// Of a product of `rows` rows with a weight. Below the first point it is as long as there; past the last one it
  /// grows with the rows.
  double seconds(double rows, double parameters) const;
  /// The part of it that one row takes: reading the weights.
  double reading(double parameters) const { return seconds(1, parameters); }

 private:
  std::vector<Point> points_;
};

}  // namespace moestro::planner
