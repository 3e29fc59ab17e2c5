#include "services/cli/bench/store/store_report.h"

#include <nlohmann/json.hpp>

#include "common/config/units.h"

namespace moestro::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string pages(const StoreBenchReport& r) {
  return r.huge_bytes * 10 >= r.arena_bytes * 9
             ? "2 MiB pages"
             : "4 KiB pages" +
                   (r.huge_bytes > 0 ? " (" + config::readable_size(r.huge_bytes) + " on huge ones)" : std::string());
}

}  // namespace

Json store_report_json(const StoreBenchReport& report) {
  Json rows = Json::array();
  for (const StoreRow& r : report.rows) {
    Json row = row_json(r);
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
    text += ", arena of " + config::readable_size(report.arena_bytes) + " on " + pages(report) + ", reads by " +
            report.reader + (report.registered ? ", registered buffers" : "") + ", read-ahead of mappings " +
            config::readable_size(report.read_ahead_bytes) + "\n" + report.arena;
  text += rows_head();
  for (const StoreRow& r : report.rows) text += row_text(r);
  return text;
}

}  // namespace moestro::cli
