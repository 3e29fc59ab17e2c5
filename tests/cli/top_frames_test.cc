// The whole page of `moestro top` as it is drawn: tests/cli/frames/top_COLUMNS.txt, which MOESTRO_WRITE_FRAMES=1 writes
// anew, and what must hold of it at every size.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "services/cli/top/server_look.h"
#include "services/cli/top/text_width.h"
#include "tests/cli/top_figures.h"
#include "tests/support/places.h"

namespace moestro::cli {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr const char* kBusyStatus = R"({"model": "m", "state": "serving", "uptime_s": 1000, "requests": {"running": 20},
  "sequences": {"waiting": 63, "waiting_of_batches": 61, "running": 16, "max": 4096},
  "tokens": {"prompt": 9000, "generated": 3000}, "recent": {"seconds": 30, "ttft_s": {"p50": 0.249, "p99": 1.2},
  "tpot_s": {"p50": 0.0662, "p99": 0.101}, "step_s": {"p50": 0.0221, "p99": 0.04}},
  "problems": [{"severity": "error", "what": "1 blob could not be read: requests that need it fail.",
    "do": "moestro inspect PACK --verify names the file; restore it, then moestro store replace."}],
  "batches": {"lines": {"in_flight": 64, "retries": 0}, "under_way": [
    {"id": "batch_0123456789abcdef01234567", "status": "in_progress", "total": 200, "completed": 95, "failed": 5}]},
  "tiers": {"device": {"workers": 1, "slots": 64, "experts": 60, "hits": 1000, "misses": 500, "prefetched": 200,
    "prefetched_used": 160, "prefetched_wasted": 10, "link_busy_seconds": 6.0, "step_seconds": 10.0,
    "stall_seconds": 2.0, "recent": {"uses": 100, "realised": 0.84, "lru": 0.71, "belady": 0.88}}}})";

/// 12 layers of 48 experts, used more evenly from layer to layer.
ExpertMap experts() {
  ExpertMap map{.layers = 12, .experts = 48, .shares = {}};
  for (size_t layer = 0; layer < map.layers; ++layer)
    for (size_t expert = 0; expert < map.experts; ++expert) {
      const auto rank = static_cast<float>((expert * 7 + layer * 5) % 48);
      map.shares.push_back(0.3F * std::exp(-rank / (2 + 3 * static_cast<float>(layer))));
    }
  return map;
}

std::vector<Line> frame(const TerminalSize& size) {
  ServerLook now = read_server_status(kBusyStatus);
  now.experts = experts();
  ServerLook before = now;
  before.uptime_s -= 2, before.generated -= 620, before.prompt -= 2400, before.device.hits -= 83,
      before.device.misses -= 17, before.device.link_busy_s -= 0.5, before.device.step_s -= 2,
      before.device.stall_s -= 0.5;
  StoreLook store = two_seconds_later();
  store.status.models[0].name = "通义千问3-235B-混合专家模型-指令微调.int4";
  store.status.workers[1].client = "worker-1-of-a-machine-with-a-long-name";
  store.status.workers[1].model = store.status.models[0].name;
  store.status.reading.drives[0].path = "/mnt/données/modèles/été";
  return top_page(server_lines(before, now), now.experts, store, rates_between(busy(), store), size);
}

std::string text_of(const std::vector<Line>& lines, bool colour) {
  std::string text;
  for (const Line& line : lines) text += line.drawn(colour) + "\n";
  return text;
}

std::filesystem::path golden(size_t columns) {
  return test::source_dir() / "tests/cli/frames" / ("top_" + std::to_string(columns) + ".txt");
}

class TopFrame : public ::testing::TestWithParam<size_t> {};

TEST_P(TopFrame, IsTheOneThatIsKept) {
  const std::string drawn = text_of(frame({.columns = GetParam()}), false);
  if (std::getenv("MOESTRO_WRITE_FRAMES") != nullptr) std::ofstream(golden(GetParam())) << drawn;
  std::ifstream file(golden(GetParam()));
  ASSERT_TRUE(file) << golden(GetParam());
  EXPECT_EQ(drawn, (std::stringstream() << file.rdbuf()).str());
}

INSTANTIATE_TEST_SUITE_P(Columns, TopFrame, ::testing::Values(40, 80, 200), ::testing::PrintToStringParamName());

TEST(TopFrames, FitEverySize) {
  for (size_t columns = 1; columns <= 240; columns += columns < 60 ? 1 : 13)
    for (const size_t rows : {1, 2, 3, 10, 24, 40, 60, 200}) {
      const auto lines = frame({columns, rows});
      EXPECT_LE(lines.size(), rows) << columns;
      for (const Line& line : lines) EXPECT_LE(display_width(line.text()), columns) << rows << ": " << line.text();
    }
}

TEST(TopFrames, SayWhatATerminalIsTooLowFor) {
  const size_t all = frame({.columns = 80}).size();
  const auto low = frame({80, 24});
  ASSERT_EQ(low.size(), 24u);
  EXPECT_THAT(low.back().text(), HasSubstr("more lines: make the terminal taller"));
  EXPECT_EQ(frame({80, all + 10}).back().text(), frame({.columns = 80}).back().text()) << "nothing is missing";
}

TEST(TopFrames, TheMapTakesTheRowsThatAreLeft) {
  const auto layers = [](const TerminalSize& size) {
    size_t lines = 0;
    const std::regex of_layers(R"( +\d+(-\d+)? [.:=+*#%@-]+)");
    for (const Line& line : frame(size)) lines += std::regex_match(line.text(), of_layers) ? 1 : 0;
    return lines;
  };
  EXPECT_EQ(layers({80, 100}), 12u);
  EXPECT_EQ(layers({80, 46}), 6u);
  EXPECT_EQ(layers({80, 30}), 4u) << "the least that tells something";
}

TEST(TopFrames, ColoursAreAllThatColourAdds) {
  for (const size_t columns : {40, 80, 200}) {
    const auto lines = frame({.columns = columns});
    EXPECT_EQ(text_of(lines, false).find('\x1b'), std::string::npos);
    for (const Line& line : lines) {
      const std::string coloured = line.drawn(true);
      const std::string bare = std::regex_replace(coloured, std::regex("\x1b\\[[0-9;]*m"), "");
      EXPECT_EQ(display_width(bare), display_width(line.text()));
      if (coloured.find("48;5") == std::string::npos) EXPECT_EQ(bare, line.text());
      if (coloured != line.text()) EXPECT_THAT(coloured, ::testing::ContainsRegex("\x1b\\[0m")) << "no tone is left on";
    }
  }
}

TEST(TopFrames, NamesThatAreLongOrHarmfulStayInTheirColumn) {
  StoreLook look = busy();
  look.status.models[0].name = std::string(64, 'm'), look.status.workers[0].client = std::string(200, 'w');
  look.status.reading.drives[0].path = "/" + std::string(300, 'd') + "\x1b[2J";
  for (const size_t columns : {20, 40, 80, 120, 300})
    for (const std::string& line : page_of(look, look, {.columns = columns})) {
      EXPECT_LE(line.size(), columns) << line;
      EXPECT_EQ(line.find('\x1b'), std::string::npos);
    }
}

}  // namespace
}  // namespace moestro::cli
