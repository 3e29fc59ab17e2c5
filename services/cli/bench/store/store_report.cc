#include "services/cli/bench/store/store_report.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "common/config/units.h"

namespace moestro::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, value >= 1000 ? "%.0f" : value >= 10 ? "%.1f" : "%.3g", value);
  return text;
}

std::string pages(const StoreBenchReport& r) {
  return r.huge_bytes * 10 >= r.arena_bytes * 9 ? "2 MiB pages" : "4 KiB pages" + (r.huge_bytes > 0 ? " (" + config::readable_size(r.huge_bytes) + " on huge ones)" : std::string());
}

}  // namespace

Json store_report_json(const StoreBenchReport& report) {
  Json rows = Json::array();
  for (const StoreRow& r : report.rows) {
    Json row = {{"what", r.what}, {"value", nullptr}, {"unit", r.unit}, {"baseline", nullptr}, {"ratio", nullptr}, {"aim", nullptr}};
    if (r.missing.empty()) row["value"] = r.value;
    else row["missing"] = r.missing;
    if (!r.baseline_name.empty()) row["baseline"] = r.baseline, row["baseline_is"] = r.baseline_name;
    if (r.ratio) row["ratio"] = *r.ratio;
    if (r.aim_kind != StoreRow::Aim::kNone) {
      row["aim"] = r.aim;
      row["aim_is"] = std::string(r.aim_kind == StoreRow::Aim::kAtLeast ? "at least" : "at most") + (r.ratio ? ", of the ratio" : ", of the value");
      if (r.missing.empty()) row["reached"] = r.reached();
    }
    row["how"] = r.how;
    row["model"] = report.model;
    row["pages"] = pages(report);
    row["reader"] = report.reader;
    row["read_ahead_bytes"] = report.read_ahead_bytes;
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string store_report_text(const StoreBenchReport& report) {
  std::string text = report.model + ": experts of " + config::readable_size(report.expert_bytes);
  if (report.arena_bytes > 0)
    text += ", arena of " + config::readable_size(report.arena_bytes) + " on " + pages(report) + ", reads by " + report.reader + (report.registered ? ", registered buffers" : "") +
            ", read-ahead of mappings " + config::readable_size(report.read_ahead_bytes) + "\n" + report.arena;
  char line[256];
  std::snprintf(line, sizeof line, "\n%-66s %10s %-6s %10s %7s %9s\n", "", "", "", "baseline", "ratio", "aim");
  text += line;
  for (const StoreRow& r : report.rows) {
    if (!r.missing.empty()) {
      text += r.what + ": not measured: " + r.missing + "\n";
      continue;
    }
    const std::string what = r.baseline_name.empty() ? r.what : r.what + ", beside " + r.baseline_name;
    const std::string aim = r.aim_kind == StoreRow::Aim::kNone ? "" : (r.aim_kind == StoreRow::Aim::kAtLeast ? ">= " : "<= ") + number(r.aim);
    std::snprintf(line, sizeof line, "%-66s %10s %-6s %10s %7s %9s %s\n", what.c_str(), number(r.value).c_str(), r.unit.c_str(),
                  r.baseline_name.empty() ? "" : number(r.baseline).c_str(), r.ratio ? number(*r.ratio).c_str() : "", aim.c_str(),
                  r.aim_kind == StoreRow::Aim::kNone ? "" : r.reached() ? "reached" : "missed");
    text += line;
    if (!r.how.empty()) text += "    " + r.how + "\n";
  }
  return text;
}

}  // namespace moestro::cli
