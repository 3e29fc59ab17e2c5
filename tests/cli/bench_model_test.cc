// `moestro bench model`: a pack of random weights that everything else takes for a pack.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/cli/run_moestro.h"
#include "tests/cli/temp_dir.h"

namespace moestro::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::vector<std::string> with(std::vector<std::string> all, const std::vector<std::string>& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}
std::vector<std::string> tiny(const std::string& shape, const std::string& pack) {
  return {"bench", "model", "--shape", shape, "-o", pack, "--layers", "2", "--hidden", "64", "--heads", "4",
          "--ffn", "96", "--experts-per-layer", "8", "--vocab", "300"};
}
std::vector<std::string> small(const std::string& shape, const std::string& pack,
                               const std::vector<std::string>& more = {}) {
  return with(with(tiny(shape, pack), {"--kv-heads", "2", "--head-dim", "16", "--context", "512"}), more);
}

TEST(BenchModel, OfTwoStacks) {
  const TempDir dir;
  const auto refusal = [&](const char* shape, const std::vector<std::string>& more) {
    const Ran refused = run_moestro(with(tiny(shape, dir / "refused"), more));
    EXPECT_EQ(refused.exit_code, 1);
    return refused.err;
  };
  for (const auto& [shape, top_k] : {std::pair("switch-base-8", "1"), std::pair("nllb-moe-54b", "2")}) {
    const std::string pack = dir / shape;
    const Ran made = run_moestro(with(tiny(shape, pack), {"--jobs", "2"}));
    ASSERT_EQ(made.exit_code, 0) << made.err;
    const Ran looked = run_moestro({"inspect", pack, "--verify", "--json"});
    ASSERT_EQ(looked.exit_code, 0) << looked.err;
    const Ran ran = run_moestro({"bench", "engine", "--model", pack, "--threads", "1", "--prompt", "16", "--generate",
                                 "4", "--repeats", "1", "--no-limits", "--json"});
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    EXPECT_THAT(refusal(shape, {"--top-k", "3"}),
                HasSubstr(std::string("--top-k 3: tokens of ") + shape + " have " + top_k));
    EXPECT_THAT(refusal(shape, {"--kv-heads", "2"}), HasSubstr("has as many as --heads, 4"));
  }
  EXPECT_THAT(refusal("nllb-moe-54b", {"--head-dim", "32"}),
              HasSubstr("--heads times it is --hidden"));
  EXPECT_THAT(refusal("switch-base-8", {"--context", "512"}), HasSubstr("has no longest sequence"));
}

TEST(BenchModel, MakesAPackThatIsVerifiedAndRun) {
  const TempDir dir;
  for (const std::string shape :
       {"mixtral-mini", "qwen3moe-mini", "deepseek-v2-lite", "gpt-oss-20b", "qwen3-next-80b"}) {
    const std::string pack = dir / shape;
    const Ran made = run_moestro(small(shape, pack, {"--top-k", "2", "--experts", "int4", "--dense", "int8", "--jobs",
                                                     "2", "--seed", "5", "--json"}));
    ASSERT_EQ(made.exit_code, 0) << made.err;
    EXPECT_GT(json::parse(made.out).at("bytes"), 2 * 8 * 3 * 64 * 96 / 2);
    EXPECT_THAT(made.err, HasSubstr("2 layers of 8 experts"));
    EXPECT_THAT(made.err, HasSubstr("iB of weights")) << "how much, before it is written";
    const Ran looked = run_moestro({"inspect", pack, "--verify", "--json"});
    ASSERT_EQ(looked.exit_code, 0) << looked.err;
    const json report = json::parse(looked.out);
    EXPECT_EQ(report.at("verified"), true);
    EXPECT_EQ(report.at("model"), shape);
    EXPECT_EQ(report.at("experts").at("per_layer"), 8);
    EXPECT_EQ(report.at("dense").at("precision"), "int8");
    const Ran ran = run_moestro({"bench", "engine", "--model", pack, "--prompt", "16", "--generate", "2", "--depth",
                                 "8", "--repeats", "1", "--threads", "1", "--no-limits", "--json"});
    ASSERT_EQ(ran.exit_code, 0) << ran.err;
    EXPECT_EQ(json::parse(ran.out).at("results").size(), 2u);
  }
}

TEST(BenchModel, RefusesWhatIsNoModelAndWhatIsThere) {
  const TempDir dir;
  const std::string pack = dir / "pack";
  const Ran top = run_moestro(small("mixtral-mini", pack, {"--top-k", "9"}));
  EXPECT_EQ(top.exit_code, 1);
  EXPECT_THAT(top.err, HasSubstr("--top-k 9 is more than the 8 experts"));
  EXPECT_EQ(run_moestro({"bench", "model", "--shape", "no-such", "-o", pack}).exit_code, 2);
  EXPECT_EQ(run_moestro({"bench", "model", "--shape", "mixtral-mini", "-o", pack, "--vocab", "256"}).exit_code, 2)
      << "bytes and an end need 257";
  const Ran uneven =
      run_moestro({"bench", "model", "--shape", "mixtral-mini", "-o", pack, "--heads", "3", "--kv-heads", "2"});
  EXPECT_EQ(uneven.exit_code, 1) << "3 heads cannot share 2 of keys";
  EXPECT_FALSE(std::filesystem::exists(pack));
  const Ran huge = run_moestro({"bench", "model", "--shape", "mixtral-8x7b", "-o", pack, "--layers", "1024",
                                "--experts-per-layer", "1024", "--hidden", "65536", "--ffn", "262144"});
  EXPECT_EQ(huge.exit_code, 1) << "it would take 100 PB";
  EXPECT_THAT(huge.err, HasSubstr("bytes are missing; choose another directory or a smaller model"));
  EXPECT_FALSE(std::filesystem::exists(pack));
  ASSERT_EQ(run_moestro(small("mixtral-mini", pack)).exit_code, 0);
  const Ran again = run_moestro(small("mixtral-mini", pack));
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_THAT(again.err, HasSubstr("already holds a pack"));
}

}  // namespace
}  // namespace moestro::test
