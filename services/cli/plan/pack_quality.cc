#include "services/cli/plan/pack_quality.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "services/cli/common/json_text.h"

namespace moestro::cli {
namespace {

using nlohmann::json;

constexpr const char* kFormat = "moestro-quality";
constexpr int kQualityVersion = 1;
constexpr uintmax_t kQualityBytesMax = 4 << 20;

/// NaN where there is no such number.
double number(const json& row, const char* key) { return number_or(row, key, std::nan("")); }

bool is_share(double x) { return x >= 0 && x <= 1; }

std::optional<PackQuality> quality_of(const json& file) {
  PackQuality q;
  for (const char* list : {"precisions", "mixed"})
    if (!file.contains(list) || !file[list].is_array()) return std::nullopt;
  for (const json& row : file["precisions"]) {
    const PackQuality::Precision p{text_or(row, "precision"), number(row, "loss"), text_or(row, "against")};
    if (p.name.empty() || p.against.empty() || !std::isfinite(p.loss)) return std::nullopt;
    q.precisions.push_back(p);
  }
  for (const json& row : file["mixed"]) {
    const PackQuality::Mixed m{text_or(row, "mixed"), number(row, "slots"), number(row, "low_share"),
                               number(row, "skipped_share"), number(row, "loss"), text_or(row, "full")};
    if (m.mixed.empty() || m.full.empty() || !(m.slots > 0) || !is_share(m.low_share) || !is_share(m.skipped_share) ||
        !std::isfinite(m.loss))
      return std::nullopt;
    q.mixed.push_back(m);
  }
  return q;
}

}  // namespace

const PackQuality::Precision* PackQuality::find(std::string_view precision) const {
  for (const Precision& p : precisions)
    if (p.name == precision) return &p;
  return nullptr;
}

Result<PackQuality> read_pack_quality(const std::filesystem::path& pack, uint64_t identity) {
  const std::filesystem::path path = pack / kQualityFile;
  std::error_code error;
  const uintmax_t bytes = std::filesystem::file_size(path, error);
  if (error) return PackQuality();
  const std::string again = "; measure again with scripts/measure_quality.py --keep, or remove it";
  std::ostringstream text;
  if (bytes <= kQualityBytesMax) text << std::ifstream(path, std::ios::binary).rdbuf();
  const auto parsed = parse_json(text.str());
  if (!parsed.is_ok() || !parsed->is_object() || text_or(*parsed, "format") != kFormat ||
      number_or(*parsed, "version", 0) != kQualityVersion)
    return corrupt(path.string() + " is no measurement of quality" + again);
  if (text_or(*parsed, "identity") != fmt::format("{:016x}", identity))
    return invalid_argument(path.string() + " was measured with another version of the pack" + again);
  auto quality = quality_of(*parsed);
  if (!quality) return corrupt(path.string() + " has an incomplete row" + again);
  return std::move(*quality);
}

Result<double> parse_loss(std::string_view text) {
  const bool percent = text.ends_with('%');
  const std::string_view digits = text.substr(0, text.size() - (percent ? 1 : 0));
  double value = 0;
  const auto [stopped, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc{} || stopped != digits.data() + digits.size() || !std::isfinite(value) || value < 0)
    return invalid_argument("'" + std::string(text) + "' is no loss, such as 1% or 0.01");
  return percent ? value / 100 : value;
}

std::string loss_text(double loss) { return fmt::format("{:+.2f} %", 100 * loss); }

std::string percent_text(double share) { return fmt::format("{:.2f} %", 100 * share); }

}  // namespace moestro::cli
