// What `moestro plan` makes of a pack's measured quality.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "services/cli/plan/mixed_choice.h"
#include "store/pack/manifest.h"
#include "tests/cli/run_moestro.h"
#include "tests/cli/temp_dir.h"
#include "tests/support/places.h"

namespace moestro::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::Ran;
using ::testing::HasSubstr;
using ::testing::Not;

/// A low copy has a quarter of the bytes.
uint64_t bytes(DType d) { return d == DType::kBF16 ? 400 : d == DType::kInt4 ? 100 : 0; }

Result<MixedChoice> choose(const PackQuality& q, const std::string& asked, double loss_max) {
  return choose_mixed(q, asked, loss_max, DType::kBF16, bytes);
}

const PackQuality kMeasured{.precisions = {{"bf16", 0, "bf16"}, {"int4", 0.004, "bf16"}},
                            .mixed = {{"int4", 25, 0.2, 0, 0.002, "bf16"},
                                      {"int4", 10, 0.4, 0, 0.001, "bf16"},  // worst with more slots
                                      {"int4", 10, 0.4, 0, 0.5, "f16"},     // of other full copies
                                      {"int4,t1=0", 10, 0.6, 0, 0.005, "bf16"},
                                      {"int4,t1=0,t2=0.5", 10, 0.2, 0.4, 0.02, "bf16"},
                                      {"int4,t1=0.75", 10, 0.9, 0, 0, "f16"},
                                      {"int8", 10, 0.9, 0, 0, "bf16"}}};  // which the pack has no more

TEST(MixedChoice, AutoTakesWhatSparesMostWithinTheLoss) {
  const std::pair<double, const char*> cases[] = {
      {0.03, "int4,t1=0,t2=0.5"}, {0.02, "int4,t1=0,t2=0.5"}, {0.019, "int4,t1=0"}, {0.004, "int4"}, {0.002, "int4"}};
  for (const auto& [most, mixed] : cases) {
    const auto chosen = choose(kMeasured, "auto", most);
    ASSERT_TRUE(chosen.is_ok()) << chosen.status().message();
    EXPECT_EQ(chosen->mixed, mixed) << most;
  }
  const auto chosen = *choose(kMeasured, "auto", 0.004);
  EXPECT_EQ(chosen.loss, 0.002) << "the worst of all slots";
  EXPECT_EQ(chosen.low_share, 0.4) << "with the fewest slots";
  EXPECT_DOUBLE_EQ(chosen.saved, 0.4 * 0.75);
  EXPECT_DOUBLE_EQ(choose(kMeasured, "auto", 0.02)->saved, 0.2 * 0.75 + 0.4);
}

TEST(MixedChoice, WhatLosesMoreOrWasNotMeasuredIsRefused) {
  const std::tuple<const char*, double, const char*> cases[] = {
      {"auto", 0.0015,
       "auto: every setting that was measured raises perplexity by more than 0.15 %; the least is 0.20 %, with int4"},
      {"int4,t1=0", 0.004, "int4,t1=0 raises perplexity by 0.50 %, more than --max-loss 0.40 %"},
      {"int4,t1=0.25", 1, "was not measured of this pack"},
      {"int4,t1=0.75", 1, "what it costs with experts as bf16 was not measured of this pack"},
      {"int8", 1, "has no experts as int8"},
      {"int4,t1=nan", 1, "'nan' is not a number from 0 to 1"},
      {"bf16", 1, "experts as bf16 are not smaller than as bf16"}};
  for (const auto& [asked, most, why] : cases) {
    const auto refused = choose(kMeasured, asked, most);
    ASSERT_FALSE(refused.is_ok()) << asked;
    EXPECT_EQ(refused.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(refused.status().message(), HasSubstr(why));
  }
  EXPECT_EQ(choose(kMeasured, "int4,t1=0", 0.005)->mixed, "int4,t1=0");
  EXPECT_THAT(choose({}, "auto", 1).status().message(), HasSubstr("nothing was"));
  EXPECT_THAT(choose_mixed(kMeasured, "auto", 1, DType::kInt4, bytes).status().message(),
              HasSubstr("no setting that was measured goes with experts as int4"));
}

TEST(MixedChoice, LossesArePercentsOrParts) {
  EXPECT_DOUBLE_EQ(*parse_loss("1%"), 0.01);
  EXPECT_DOUBLE_EQ(*parse_loss("0.5%"), 0.005);
  EXPECT_DOUBLE_EQ(*parse_loss("0.02"), 0.02);
  for (const char* bad : {"", "%", "nan", "inf%", "-1%", "1 %", "1%%", "much"})
    EXPECT_THAT(parse_loss(bad).status().message(), HasSubstr("is no loss, such as 1% or 0.01")) << bad;
}

class PlanOfAMeasuredPack : public ::testing::Test {
 protected:
  void SetUp() override {
    const Ran packed = test::run_moestro({"pack", (test::source_dir() / "models" / "demo").string(), "-o",
                                          pack_.string(), "--experts", "bf16,int4,int2"});
    ASSERT_EQ(packed.exit_code, 0) << packed.err;
    identity_ = json::parse(test::run_moestro({"inspect", pack_.string(), "--json"}).out)["identity"];
    test::write_file(dir_ / "host.yaml", "host:\n  memory: 200GiB\n  memory_gbps: 100\n  tflops: 2\n  drive_gbps: 5\n"
                                         "device:\n  memory: 24GiB\n  memory_gbps: 1000\n  tflops: 100\n"
                                         "  link_gbps: 25\n");
    write(kept());
  }
  json kept() const {
    return {{"format", "moestro-quality"},
            {"version", 1},
            {"identity", identity_},
            {"precisions",
             {{{"precision", "bf16"}, {"loss", 0}, {"against", "bf16"}},
              {{"precision", "int4"}, {"loss", 0.12}, {"against", "bf16"}}}},
            {"mixed", {mixed_row("int4", 0.3, 0.004), mixed_row("int4,t1=0", 0.4, 0.02)}}};
  }
  static json mixed_row(const char* mixed, double low_share, double loss) {
    return {{"mixed", mixed}, {"slots", 10}, {"full", "bf16"}, {"low_share", low_share}, {"skipped_share", 0},
            {"loss", loss}};
  }
  void write(const json& file) const { test::write_file(pack_ / kQualityFile, file.dump()); }
  Ran plan(std::vector<std::string> more) const {
    more.insert(more.begin(), {"plan", "--model", pack_.string(), "--hardware", (dir_ / "host.yaml").string(),
                               "--prompt", "32", "--generate", "32"});
    return test::run_moestro(more);
  }
  void expect_refused(const std::vector<std::string>& more, int exit_code, const std::string& why) const {
    const Ran ran = plan(more);
    EXPECT_EQ(ran.exit_code, exit_code) << ran.err;
    EXPECT_THAT(ran.err, HasSubstr(why));
  }

  test::TempDir dir_;
  const fs::path pack_ = dir_ / "pack";
  std::string identity_;
};

TEST_F(PlanOfAMeasuredPack, ChoosesAndSaysHowToRunIt) {
  const Ran text = plan({"--mixed", "auto", "--max-loss", "1%"});
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("--mixed int4: +0.40 % perplexity; 30 % of choices low, 0 % skipped"));
  EXPECT_THAT(text.out, HasSubstr("quality: experts as bf16 +0.00 % perplexity against bf16\n"));
  EXPECT_THAT(text.out, HasSubstr(" --mixed int4\n"));
  const Ran more = plan({"--mixed", "auto", "--max-loss", "2%", "--json"});
  ASSERT_EQ(more.exit_code, 0) << more.err;
  const json quality = json::parse(more.out)["quality"];
  EXPECT_EQ(quality["mixed"]["mixed"], "int4,t1=0");
  EXPECT_EQ(quality["mixed"]["loss"], 0.02);
  EXPECT_EQ(quality["experts_loss"], 0);
  EXPECT_EQ(quality["experts_against"], "bf16");
  const Ran off = plan({"--json"});
  EXPECT_EQ(json::parse(off.out)["quality"]["mixed"], nullptr);
}

TEST_F(PlanOfAMeasuredPack, LowCopiesRunWithTheLayerwiseScheduleAlone) {
  const Ran without = plan({"--sequences", "512", "--json"});
  ASSERT_EQ(without.exit_code, 0) << without.err;
  const json any = json::parse(without.out);
  EXPECT_GT(any["schedules"].size() + any["left_out"].size(), 1u);
  const Ran ran = plan({"--sequences", "512", "--mixed", "auto", "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const json planned = json::parse(ran.out);
  ASSERT_EQ(planned["schedules"].size(), 1u);
  EXPECT_EQ(planned["schedule"], "layerwise");
  EXPECT_THAT(plan({"--sequences", "512", "--mixed", "auto"}).out, HasSubstr("to run it: moestro up --mixed int4\n"));
  EXPECT_EQ(plan({"--schedule", "layerwise", "--mixed", "auto"}).exit_code, 0);
  expect_refused({"--schedule", "expert-pipeline", "--mixed", "auto"}, 2, "leave out --schedule expert-pipeline");
}

TEST_F(PlanOfAMeasuredPack, APrecisionThatLosesTooMuchIsRefused) {
  expect_refused({"--experts", "int4"}, 2, "experts as int4 raise perplexity by 12.00 % against bf16");
  EXPECT_EQ(plan({"--experts", "int4", "--max-loss", "12%"}).exit_code, 0);
  fs::remove(pack_ / kQualityFile);
  EXPECT_EQ(plan({"--experts", "int4"}).exit_code, 0) << "nothing is known of it";
}

TEST_F(PlanOfAMeasuredPack, TwoBitsAreRefusedOnlyWhereTheyWereMeasured) {
  const Ran unknown = plan({"--experts", "int2"});
  ASSERT_EQ(unknown.exit_code, 0) << unknown.err;
  EXPECT_THAT(unknown.out, HasSubstr("what experts as int2 cost in quality was not measured"));
  json file = kept();
  file["precisions"].push_back({{"precision", "int2"}, {"loss", 0.5}, {"against", "bf16"}});
  write(file);
  expect_refused({"--experts", "int2"}, 2, "experts as int2 raise perplexity by 50.00 %");
}

TEST_F(PlanOfAMeasuredPack, WhatIsWrongIsRefusedByName) {
  expect_refused({"--mixed", "int4,t1=0"}, 2, "--mixed: int4,t1=0 raises perplexity by 2.00 %");
  expect_refused({"--mixed", "auto", "--max-loss", "0.1%"}, 2, "the least is 0.40 %, with int4");
  expect_refused({"--max-loss", "nan"}, 2, "--max-loss: 'nan' is no loss");
  expect_refused({"--mixed", "auto", "--device", "cuda"}, 2, "--mixed on a GPU");
  const Ran shape = test::run_moestro({"plan", "--shape", "mixtral-8x7b", "--mixed", "auto"});
  EXPECT_EQ(shape.exit_code, 2);
  EXPECT_THAT(shape.err, HasSubstr("give --model PACK"));

  json file = kept();
  file["identity"] = "0123456789abcdef";
  write(file);
  expect_refused({}, 2, "another version of the pack");
  for (const auto& [what, value] : {std::pair<const char*, json>{"/format", "x"}, {"/version", 2}, {"/mixed", 3},
                                    {"/mixed/0/loss", "low"}, {"/mixed/0/low_share", 1.5}, {"/mixed/1/slots", 0},
                                    {"/mixed/1/full", ""}, {"/precisions/0/precision", ""},
                                    {"/precisions/1/against", ""}}) {
    file = kept();
    file[json::json_pointer(what)] = value;
    write(file);
    expect_refused({}, 1, kQualityFile);
  }
  test::write_file(pack_ / kQualityFile, "{");
  expect_refused({}, 1, "is no measurement of quality");
  fs::remove(pack_ / kQualityFile);
  expect_refused({"--mixed", "auto"}, 2, "nothing was");
}

}  // namespace
}  // namespace moestro::cli
