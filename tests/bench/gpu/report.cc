#include "tests/bench/gpu/report.h"

#include <cstdio>
#include <nlohmann/json.hpp>

namespace moestro::bench {
namespace {

std::string line(const char* what, const char* value, const char* unit, const char* ceiling, const char* ratio,
                 const char* aim, const char* against) {
  char text[512];
  std::snprintf(text, sizeof text, "%-86s %9s %-8s %9s %6s %6s  %s", what, value, unit, ceiling, ratio, aim, against);
  return text;
}

std::string number(const char* format, double value) {
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

}  // namespace

std::string head_text() { return line("what", "value", "unit", "ceiling", "ratio", "aim", "ceiling is"); }

std::string row_text(const GpuRow& row) {
  if (!row.failed.empty())
    return line(row.what.c_str(), "-", row.unit.c_str(), "-", "-", "-", ("not measured: " + row.failed).c_str());
  return line(row.what.c_str(), number("%.2f", row.value).c_str(), row.unit.c_str(),
              number("%.2f", row.ceiling).c_str(), number("%.3f", row.ratio()).c_str(),
              row.aim > 0 ? number("%.2f", row.aim).c_str() : "-", row.ceiling_is.c_str());
}

std::string rows_json(const std::string& device, const std::vector<GpuRow>& rows) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  const auto or_null = [](bool there, double value) {
    return there ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
  };
  for (const GpuRow& row : rows) {
    const bool measured = row.failed.empty();
    list.push_back({{"what", row.what},
                    {"value", or_null(measured, row.value)},
                    {"unit", row.unit},
                    {"ceiling", or_null(measured && row.ceiling > 0, row.ceiling)},
                    {"ceiling_is", row.ceiling_is},
                    {"ratio", or_null(measured && row.ceiling > 0, row.ratio())},
                    {"aim", or_null(row.aim > 0, row.aim)},
                    {"failed", measured ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(row.failed)}});
  }
  return nlohmann::ordered_json{{"device", device}, {"rows", list}}.dump(2, ' ', false,
                                                                         nlohmann::json::error_handler_t::replace) +
         "\n";
}

}  // namespace moestro::bench
