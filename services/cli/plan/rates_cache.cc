#include "services/cli/plan/rates_cache.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/xxh3.h"
#include "services/cli/common/json_text.h"
#include "services/cli/common/run_dir.h"

namespace moestro::cli {
namespace {

using nlohmann::json;
using planner::ProductCurve;

constexpr int kVersion = 3;  ///< raise it with what is measured, or how
constexpr uintmax_t kFileBytesMax = 1 << 20;

json curve_json(const ProductCurve& curve) {
  json points = json::array();
  for (const ProductCurve::Point& p : curve.points()) points.push_back({p.rows, p.seconds});
  return points;
}

bool positive(const json& value) {
  return value.is_number() && value.get<double>() > 0 && std::isfinite(value.get<double>());
}

std::optional<ProductCurve> curve_of(const json& points) {
  if (!points.is_array() || points.empty()) return std::nullopt;
  std::vector<ProductCurve::Point> read;
  for (const json& p : points) {
    if (!p.is_array() || p.size() != 2 || !positive(p[0]) || !positive(p[1])) return std::nullopt;
    read.push_back({p[0].get<double>(), p[1].get<double>()});
  }
  return ProductCurve(std::move(read));
}

std::optional<planner::Rates> rates_of(const json& file) {
  const auto part = [&](const char* name) { return file.contains(name) ? file[name] : json(); };
  const auto dense = curve_of(part("dense")), experts = curve_of(part("experts")), router = curve_of(part("router"));
  for (const char* name : {"kv_bytes_per_s", "attention_operations_per_s", "call_s"})
    if (!positive(part(name))) return std::nullopt;
  if (!dense || !experts || !router) return std::nullopt;
  planner::Rates rates;
  rates.dense = *dense, rates.experts = *experts, rates.router = *router;
  rates.kv_bytes_per_s = file["kv_bytes_per_s"];
  rates.attention_operations_per_s = file["attention_operations_per_s"];
  rates.call_s = file["call_s"];
  const auto or_zero = [&](const char* name) { return positive(part(name)) ? part(name).get<double>() : 0.0; };
  rates.logit_s = or_zero("logit_s"), rates.float_s = or_zero("float_s");
  rates.attention_sequence_s = or_zero("attention_sequence_s");
  if (positive(part("drive_bytes_per_s"))) rates.drive_bytes_per_s = part("drive_bytes_per_s").get<double>();
  return rates;
}

}  // namespace

RatesCache::RatesCache(std::filesystem::path directory, std::string key) : key_(std::move(key)) {
  char name[32];
  std::snprintf(name, sizeof name, "%016llx.json",
                static_cast<unsigned long long>(XXH3_64bits(key_.data(), key_.size())));
  if (!directory.empty()) file_ = directory / name;
}

std::optional<planner::Rates> RatesCache::read() const {
  std::error_code error;
  if (file_.empty() || std::filesystem::file_size(file_, error) > kFileBytesMax || error) return std::nullopt;
  std::ifstream in(file_, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  const auto parsed = parse_json(text.str());
  if (!in || !parsed.is_ok() || !parsed->is_object()) return std::nullopt;
  const bool same = json_text(json(text_or(*parsed, "key"))) == json_text(json(key_));  // as it was written
  if (number_or(*parsed, "version", 0) != kVersion || !same) return std::nullopt;
  return rates_of(*parsed);
}

Status RatesCache::write(const planner::Rates& rates) const {
  if (file_.empty()) return Status::ok();
  MOESTRO_RETURN_IF_ERROR(make_state_dir(file_.parent_path()));
  json file = {{"version", kVersion},
               {"key", key_},
               {"dense", curve_json(rates.dense)},
               {"experts", curve_json(rates.experts)},
               {"router", curve_json(rates.router)},
               {"kv_bytes_per_s", rates.kv_bytes_per_s},
               {"attention_sequence_s", rates.attention_sequence_s},
              {"attention_operations_per_s", rates.attention_operations_per_s},
               {"float_s", rates.float_s},
              {"logit_s", rates.logit_s},
               {"call_s", rates.call_s}};
  if (rates.drive_bytes_per_s) file["drive_bytes_per_s"] = *rates.drive_bytes_per_s;
  // Whole or not at all, whatever else writes it at the same time.
  std::filesystem::path unfinished = file_;
  unfinished += "." + std::to_string(::getpid());
  std::ofstream out(unfinished, std::ios::binary);
  out << json_text(file, 1) << "\n";
  out.close();
  std::error_code error;
  if (out) std::filesystem::rename(unfinished, file_, error);
  if (out && !error) return Status::ok();
  std::filesystem::remove(unfinished, error);
  return io_error("cannot write " + file_.string());
}

}  // namespace moestro::cli
