#include "services/cli/top/expert_map.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "services/cli/common/json_text.h"
#include "services/cli/common/output.h"
#include "services/cli/top/text_width.h"

namespace moestro::cli {
namespace {

using nlohmann::json;

constexpr size_t kCellMax = 4, kCellsMin = 8;  ///< columns of a cell; cells below which a map tells nothing
constexpr size_t kSideMax = 1 << 16;           ///< of what a server says

size_t folded(size_t n, size_t into) { return (n + into - 1) / into; }

/// How a map is laid: each cell stands for `experts` of `layers`, and is `columns` wide.
struct Folding {
  size_t layers = 1, experts = 1, columns = 1;
};

Folding folding_of(const ExpertMap& map, size_t columns, size_t rows) {
  Folding f;
  f.layers = folded(map.layers, rows);
  f.experts = folded(map.experts, columns);
  f.columns = std::clamp<size_t>(columns / map.experts, 1, kCellMax);
  return f;
}

float hottest(const ExpertMap& map, const Folding& f, size_t first_layer, size_t first_expert) {
  float most = 0;
  for (size_t layer = first_layer; layer < std::min(map.layers, first_layer + f.layers); ++layer)
    for (size_t expert = first_expert; expert < std::min(map.experts, first_expert + f.experts); ++expert)
      most = std::max(most, map.shares[layer * map.experts + expert]);
  return most;
}

/// The root: what is used little can still be told from what is not used.
size_t heat_of(float share, float most) {
  if (share <= 0 || most <= 0) return 0;
  return 1 + std::min(kHeats - 2, static_cast<size_t>(std::sqrt(share / most) * (kHeats - 1)));
}

Line heading(const ExpertMap& map, const Folding& f, float most) {
  Line line = figures("map");
  line.add(printed("recent use of %zu experts (across) in %zu layers (down)", map.experts, map.layers));
  if (f.experts > 1) line.add(printed(", %zu experts a cell", f.experts));
  if (f.layers > 1) line.add(printed(", %zu layers a line", f.layers));
  line.add(": 0 ");
  for (size_t heat = 0; heat < kHeats; ++heat) line.add(std::string(1, heat_mark(heat)), heat_tone(heat));
  line.add(printed(" %.1f %% of a layer's uses", 100 * static_cast<double>(most)));
  return line;
}

}  // namespace

ExpertMap read_expert_map(const json& experts) {
  ExpertMap map;
  map.layers = count_or(experts, "layers"), map.experts = count_or(experts, "experts");
  const auto rows = experts.is_object() ? experts.find("shares") : experts.end();
  if (std::max(map.layers, map.experts) > kSideMax || rows == experts.end() || rows->size() != map.layers) return {};
  for (const json& row : *rows) {
    if (!row.is_array() || row.size() != map.experts) return {};
    for (const json& share : row) map.shares.push_back(share.is_number() ? share.get<float>() : 0);
  }
  return map;
}

std::vector<Line> expert_map_lines(const ExpertMap& map, size_t columns, size_t rows) {
  const bool fits = rows > 0 && columns >= kLabel + std::min(kCellsMin, map.experts);
  if (!fits || map.layers == 0 || map.experts == 0) return {};
  const Folding f = folding_of(map, columns - kLabel, rows);
  const float most = *std::ranges::max_element(map.shares);
  std::vector<Line> lines{heading(map, f, most)};
  for (size_t layer = 0; layer < map.layers; layer += f.layers) {
    const size_t last = std::min(map.layers, layer + f.layers) - 1;
    const std::string label = last == layer ? printed("%zu", layer) : printed("%zu-%zu", layer, last);
    Line line;
    line.add(printed("%*s ", static_cast<int>(kLabel - 1), label.c_str()), Tone::kQuiet);
    for (size_t expert = 0; expert < map.experts; expert += f.experts) {
      const size_t heat = heat_of(hottest(map, f, layer, expert), most);
      line.add(std::string(f.columns, heat_mark(heat)), heat_tone(heat));
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace moestro::cli
