#include "services/cli/bench/row.h"

#include <cstdio>
#include <nlohmann/json.hpp>

namespace moestro::cli {
namespace {

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, value >= 1000 ? "%.0f" : value >= 10 ? "%.1f" : "%.3g", value);
  return text;
}

}  // namespace

nlohmann::ordered_json row_json(const BenchRow& r) {
  nlohmann::ordered_json row = {{"what", r.what},      {"value", nullptr}, {"unit", r.unit},
                                {"baseline", nullptr}, {"ratio", nullptr}, {"aim", nullptr}};
  if (r.missing.empty()) row["value"] = r.value;
  else row["missing"] = r.missing;
  if (!r.baseline_name.empty()) row["baseline"] = r.baseline, row["baseline_is"] = r.baseline_name;
  if (r.ratio) row["ratio"] = *r.ratio;
  if (r.aim_kind != BenchRow::Aim::kNone) {
    row["aim"] = r.aim;
    row["aim_is"] = std::string(r.aim_kind == BenchRow::Aim::kAtLeast ? "at least" : "at most") +
                    (r.ratio ? ", of the ratio" : ", of the value");
    if (r.missing.empty()) row["reached"] = r.reached();
  }
  row["how"] = r.how;
  return row;
}

std::string rows_head() {
  char line[256];
  std::snprintf(line, sizeof line, "\n%-66s %10s %-6s %10s %7s %9s\n", "", "", "", "baseline", "ratio", "aim");
  return line;
}

std::string row_text(const BenchRow& r) {
  if (!r.missing.empty()) return r.what + ": not measured: " + r.missing + "\n";
  const std::string what = r.baseline_name.empty() ? r.what : r.what + ", against " + r.baseline_name;
  const std::string aim =
      r.aim_kind == BenchRow::Aim::kNone ? "" : (r.aim_kind == BenchRow::Aim::kAtLeast ? ">= " : "<= ") + number(r.aim);
  char line[512];
  std::snprintf(line, sizeof line, "%-66s %10s %-6s %10s %7s %9s %s\n", what.c_str(), number(r.value).c_str(),
                r.unit.c_str(), r.baseline_name.empty() ? "" : number(r.baseline).c_str(),
                r.ratio ? number(*r.ratio).c_str() : "", aim.c_str(),
                r.aim_kind == BenchRow::Aim::kNone ? ""
                : r.reached()                      ? "reached"
                                                   : "missed");
  return line + (r.how.empty() ? "" : "    " + r.how + "\n");
}

BenchRow at_most(std::string what, std::string unit, double value, double aim, std::string how) {
  BenchRow r{.what = std::move(what), .unit = std::move(unit), .value = value};
  r.aim_kind = BenchRow::Aim::kAtMost, r.aim = aim, r.how = std::move(how);
  return r;
}

}  // namespace moestro::cli
