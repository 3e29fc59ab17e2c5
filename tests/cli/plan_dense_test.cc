// `moestro plan` where dense weights take turns in a GPU's memory.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/run_moestro.h"
#include "tests/cli/temp_dir.h"

namespace moestro::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class PlanOfDenseWeights : public ::testing::Test {
 protected:
  void SetUp() override {
    write_file(dir_ / "gpu.yaml",
               "host:\n  memory: 200GiB\n  memory_gbps: 100\n  tflops: 2\n  drive_gbps: 5\n"
               "device:\n  memory: 24GiB\n  memory_gbps: 1000\n  tflops: 100\n  link_gbps: 25\n");
  }
  Ran plan(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"plan", "--shape", "mixtral-8x7b", "--schedule", "layerwise", "--hardware",
                                         (dir_ / "gpu.yaml").string(), "--json"});
    return run_moestro(arguments);
  }
  TempDir dir_;
};

TEST_F(PlanOfDenseWeights, AShareOfThemStays) {
  const Ran counted = plan({"--device", "cuda,dense=counted"}), half = plan({"--device", "cuda,dense=50%"});
  ASSERT_EQ(counted.exit_code, 0) << counted.err;
  ASSERT_EQ(half.exit_code, 0) << half.err;
  const json all_stay = json::parse(counted.out), in_turn = json::parse(half.out);
  EXPECT_EQ(all_stay["placement"]["streamed_layers"], 0) << "all of them fit";
  EXPECT_EQ(in_turn["placement"]["streamed_layers"], 16);
  EXPECT_GT(in_turn["decode"]["tokens_per_s"], 0);
  EXPECT_NE(in_turn["decode"]["tokens_per_s"], all_stay["decode"]["tokens_per_s"]);
}

TEST_F(PlanOfDenseWeights, ACardThatHoldsThemNotIsRefusedWithTheWayOut) {
  const Ran refused = plan({"--device", "cuda", "--vram", "3GiB"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("let dense weights take turns (dense=counted in --device)"));
  const Ran fits = plan({"--device", "cuda,dense=counted", "--vram", "3GiB"});
  ASSERT_EQ(fits.exit_code, 0) << fits.err;
  EXPECT_GT(json::parse(fits.out)["placement"]["streamed_layers"], 0);
}

}  // namespace
}  // namespace moestro::test
