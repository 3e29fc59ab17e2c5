#include "services/cli/pack/pack_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "services/cli/pack/inspect_command.h"
#include "services/cli/pack/progress.h"
#include "services/command_line/command_line.h"
#include "tests/pack/synthetic_checkpoint.h"
#include "tests/support/places.h"

namespace moestro::cli {
namespace {

using ::testing::HasSubstr;

struct Outcome {
  int exit_code = 0;
  std::string out, err;
};

Outcome run(const std::string& line) {
  command_line::App app("moestro", "moestro");
  CommandResult result;
  add_pack_command(app, result);
  add_inspect_command(app, result);
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  if (const auto code = app.parse(line).exit_code) result.exit_code = *code;
  return {result.exit_code, ::testing::internal::GetCapturedStdout(), ::testing::internal::GetCapturedStderr()};
}

class PackCommand : public ::testing::Test {
 protected:
  PackCommand() { testing::write_checkpoint(dir_ / "src", {}); }
  std::string src() const { return (dir_ / "src").string(); }
  std::string pack() const { return (dir_ / "pack").string(); }
  testing::TemporaryDirectory dir_;
};

TEST_F(PackCommand, PacksAndInspects) {
  const Outcome packed =
      run("pack " + src() + " -o " + pack() + " --experts int8,bf16 --dense f32 --jobs 2 --name toy");
  EXPECT_EQ(packed.exit_code, 0) << packed.err;
  EXPECT_THAT(packed.out, HasSubstr("packed "));
  const Outcome json = run("inspect " + pack() + " --verify --json");
  ASSERT_EQ(json.exit_code, 0) << json.err;
  const auto report = nlohmann::json::parse(json.out);
  EXPECT_EQ(report["model"], "toy");
  EXPECT_EQ(report["verified"], true);
  EXPECT_EQ(report["dense"]["precision"], "f32");
  EXPECT_EQ(report["experts"]["per_layer"], 3);
  EXPECT_EQ(report["experts"]["precisions"][1]["precision"], "bf16");
  EXPECT_EQ(report["experts"]["blob_bytes"], report["experts"]["precisions"][0]["blob_bytes"]);
  const Outcome text = run("inspect " + pack());
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_THAT(text.out, HasSubstr("Qwen2MoeForCausalLM"));
  EXPECT_THAT(text.out, HasSubstr("a shared expert of ffn 24 with a gate"));
}

TEST_F(PackCommand, SaysWhatALayerIsMadeOf) {
  testing::write_checkpoint(dir_ / "gpt", {.architecture = "GptOssForCausalLM", .config = R"({"quantization_config":
      {"quant_method": "mxfp4"}})", .hidden = 64, .ffn = 32});
  const Outcome packed = run("pack " + (dir_ / "gpt").string() + " -o " + pack());
  ASSERT_EQ(packed.exit_code, 0) << packed.err;
  EXPECT_THAT(packed.err, HasSubstr("weights stay in the formats that the source has them in"));
  const auto parts = nlohmann::json::parse(run("inspect " + pack() + " --json").out)["parts"];
  EXPECT_EQ(parts["attention"], "4 heads of 16 (2 of keys), biases, logits of sinks, a window of 8 in 1 of 2 layers");
  EXPECT_EQ(parts["router"], "softmax, top 2, weights that sum to 1, a bias of the logits");
  EXPECT_EQ(parts["expert"], "clamped SwiGLU (limit 7, alpha 1.702), biases in f32");
}

TEST_F(PackCommand, SaysWhatEncodersAndDecodersAreMadeOf) {
  const auto parts = [&](const std::string& fixture) {
    const std::string from = (dir_ / fixture).string(), to = from + "-pack";
    std::filesystem::copy(test::source_dir() / "tests/fixtures/models" / fixture, from);
    std::filesystem::copy_file(src() + "/tokenizer.json", from + "/tokenizer.json");
    const Outcome packed = run("pack " + from + " -o " + to + " --experts bf16,int8");
    EXPECT_EQ(packed.exit_code, 0) << packed.err;
    const auto report = nlohmann::json::parse(run("inspect " + to + " --verify --json").out);
    EXPECT_EQ(report["verified"], true);
    return report["parts"];
  };
  const auto of_switch = parts("switch_transformers_capacity"), of_nllb = parts("nllb_moe_scaled");
  EXPECT_EQ(of_switch["attention"], "4 heads of 12 (4 of keys), the first 3 layers are the encoder's, and the others "
                                    "attend to it, biases by distance");
  EXPECT_EQ(of_switch["router"], "softmax, top 1, at most 3 tokens of a source for an expert, whose others get nothing "
                                 "of it");
  EXPECT_EQ(of_switch["expert"], "ReLU without a gate");
  EXPECT_EQ(of_nllb["attention"], "4 heads of 16 (4 of keys), biases, the first 2 layers are the encoder's, and the "
                                  "others attend to it, sinusoidal positions, LayerNorm before it");
  EXPECT_EQ(of_nllb["router"], "softmax, top 2, weights that sum to 1, times 0.8");
  EXPECT_EQ(of_nllb["expert"], "ReLU without a gate, biases in f32");
}

TEST_F(PackCommand, MakesBlocksOrSaysWhatFits) {
  const Outcome refused = run("pack " + src() + " -o " + pack() + " --experts q4_k");
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("experts as q4_k: gate and up have rows of 72 numbers, and a block is 256; no"));
  EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
  testing::write_checkpoint(dir_ / "wide", {.architecture = "MixtralForCausalLM", .hidden = 64, .ffn = 256});
  const std::string wide = "pack " + (dir_ / "wide").string() + " -o " + pack();
  const Outcome packed = run(wide + " --experts q8_0,bf16 --dense q5_0");
  ASSERT_EQ(packed.exit_code, 0) << packed.err;
  const auto report = nlohmann::json::parse(run("inspect " + pack() + " --verify --json").out);
  EXPECT_EQ(report["verified"], true);
  EXPECT_EQ(report["dense"]["precision"], "q5_0");
  EXPECT_EQ(report["experts"]["precisions"][0]["precision"], "q8_0");
}

TEST_F(PackCommand, MixedNamesTheSourcesOwnFormats) {
  const Outcome refused = run("pack " + src() + " -o " + pack() + " --experts mixed,int2");
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("experts as mixed: the source does not have them so"));
}

TEST_F(PackCommand, FailsInOneLine) {
  for (const std::string& line : {"pack " + src() + "/absent -o " + pack(), "inspect " + src(), "inspect " + pack()}) {
    const Outcome outcome = run(line);
    EXPECT_EQ(outcome.exit_code, 1) << line;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
}

TEST_F(PackCommand, RemarksGoToStandardErrorOneLineEach) {
  testing::CheckpointOptions options{.dtype = DType::kF16,
                                     .other_dtypes = {{"model.layers.0.mlp.gate.weight", DType::kF32}}};
  options.config = R"({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}})";
  testing::write_checkpoint(dir_ / "mixed", options);
  const Outcome packed = run("pack " + (dir_ / "mixed").string() + " -o " + pack());
  ASSERT_EQ(packed.exit_code, 0) << packed.err;
  EXPECT_THAT(packed.err, HasSubstr("moestro: dense weights are of several formats and become f32"));
  EXPECT_THAT(packed.err, HasSubstr("\nmoestro: rope_type 'dynamic': beyond 64 positions"));
  EXPECT_EQ(std::count(packed.out.begin(), packed.out.end(), '\n'), 1) << packed.out;
  const auto report = nlohmann::json::parse(run("inspect " + pack() + " --json").out);
  EXPECT_EQ(report["dense"]["precision"], "f32");
  EXPECT_EQ(report["experts"]["precisions"][0]["precision"], "f16");
}

TEST_F(PackCommand, DamageIsAFailure) {
  ASSERT_EQ(run("pack " + src() + " -o " + pack()).exit_code, 0);
  std::string bytes = testing::read_text(dir_ / "pack" / "dense.bin");
  bytes[5000] = static_cast<char>(bytes[5000] ^ 1);
  testing::write_text(dir_ / "pack" / "dense.bin", bytes);
  const Outcome outcome = run("inspect " + pack() + " --verify");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("differ from their checksum"));
  testing::write_text(dir_ / "pack" / "tokenizer.json", "{} ");
  EXPECT_THAT(run("inspect " + pack() + " --verify").err,
              HasSubstr("1 blobs and 1 other files are damaged, the first"));
  bytes[5000] = static_cast<char>(bytes[5000] ^ 1);
  testing::write_text(dir_ / "pack" / "dense.bin", bytes);
  EXPECT_THAT(run("inspect " + pack() + " --verify").err, HasSubstr("tokenizer.json: is not as it was packed"));
}

TEST_F(PackCommand, RowsOfTwoBitsAreWholeGroups) {
  const Outcome refused = run("pack " + src() + " -o " + pack() + " --experts int2");
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_THAT(refused.err, HasSubstr("whole groups of 64 numbers"));
}

TEST_F(PackCommand, WrongCommandLines) {
  EXPECT_EQ(run("pack " + src()).exit_code, 2);
  EXPECT_EQ(run("pack " + src() + " -o " + pack() + " --experts int3").exit_code, 2);
  EXPECT_EQ(run("pack " + src() + " -o " + pack() + " --dense int2").exit_code, 2);
  EXPECT_EQ(run("pack " + src() + " -o " + pack() + " --jobs 0").exit_code, 2);
  EXPECT_EQ(run("inspect").exit_code, 2);
  EXPECT_FALSE(std::filesystem::exists(dir_ / "pack"));
}

TEST(HumanBytes, ReadsWell) {
  EXPECT_EQ(human_bytes(12), "12 B");
  EXPECT_EQ(human_bytes(1536), "1.50 KiB");
  EXPECT_EQ(human_bytes(uint64_t{3} << 40), "3.00 TiB");
}

}  // namespace
}  // namespace moestro::cli
