#pragma once
// A figure of a benchmark with its baseline and its aim, for tables and JSON.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace moestro::cli {

/// The aim is for the ratio if there is a baseline, otherwise for the value.
struct BenchRow {
  enum class Aim : uint8_t { kNone, kAtLeast, kAtMost };
  std::string what = {}, unit = {};
  double value = 0;
  std::string baseline_name = {};  ///< empty: there is none
  double baseline = 0;
  std::optional<double> ratio = {};
  Aim aim_kind = Aim::kNone;
  double aim = 0;
  std::string how = {};      ///< pages, sizes, and what exactly was counted
  std::string missing = {};  ///< why it could not be measured here; empty: it was

  double measured() const { return ratio.value_or(value); }
  bool reached() const {
    return aim_kind == Aim::kNone || (aim_kind == Aim::kAtLeast ? measured() >= aim : measured() <= aim);
  }
};

/// A value without a baseline, and the most that it should be.
BenchRow at_most(std::string what, std::string unit, double value, double aim, std::string how);

/// {what, value, unit, baseline, ratio, aim, ..., how}
nlohmann::ordered_json row_json(const BenchRow& row);
/// The head of a table, and a line for a row with `how` below it.
std::string rows_head();
std::string row_text(const BenchRow& row);

}  // namespace moestro::cli
