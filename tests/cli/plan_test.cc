// `moestro plan`: what it prints and what it refuses, and the rates that it keeps.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "services/cli/plan/plan_model.h"
#include "services/worker/engine/kv_shares.h"
#include "tests/cli/run_moestro.h"
#include "tests/cli/temp_dir.h"
#include "tests/support/places.h"

namespace moestro::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// A host that is no one's, so that nothing here depends on the machine.
constexpr const char* kHost =
    "host:\n  memory: 200GiB\n  memory_gbps: 100\n  tflops: 2\n  drive_gbps: 5\n"
    "device:\n  memory: 24GiB\n  memory_gbps: 1000\n  tflops: 100\n  link_gbps: 25\n";

class PlanCommand : public testing::Test {
 protected:
  void SetUp() override {
    write_file(hardware(), kHost);
    ::setenv("XDG_STATE_HOME", (dir_ / "state").c_str(), 1);
  }
  void TearDown() override { ::unsetenv("XDG_STATE_HOME"); }

  std::string hardware() const { return (dir_ / "host.yaml").string(); }
  Ran plan(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "plan");
    return run_moestro(arguments);
  }
  /// A host of 4 GiB.
  std::string small_host() const {
    const fs::path file = dir_ / "small.yaml";
    write_file(file, "host:\n  memory: 4GiB\n  memory_gbps: 100\n  tflops: 2\n");
    return file.string();
  }
  Ran plan_text_of(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--shape", "mixtral-8x7b", "--hardware", hardware()});
    return plan(std::move(arguments));
  }
  /// Of Mixtral-8x7B on that host.
  json planned(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--shape", "mixtral-8x7b", "--hardware", hardware(), "--json"});
    const Ran ran = plan(std::move(arguments));
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    return ran.exit_code == 0 ? json::parse(ran.out) : json();
  }
  /// One line on stderr, nothing on stdout.
  void expect_refused(const std::vector<std::string>& arguments, int exit_code, const std::string& why) const {
    const Ran ran = plan(arguments);
    EXPECT_EQ(ran.exit_code, exit_code) << ran.err;
    EXPECT_THAT(ran.err, HasSubstr(why));
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
    EXPECT_EQ(ran.out, "");
  }

  TempDir dir_;
};

TEST_F(PlanCommand, OfACardThatIsNotHere) {
  const json plan = planned({"--device", "cuda", "--kv-dtype", "bf16"});
  EXPECT_EQ(plan["model"]["expert_bytes"], 3 * 4096 * 14336 * 2);
  EXPECT_EQ(plan["model"]["kv_bytes_per_token"], 2 * 32 * 8 * 128 * 2);
  EXPECT_EQ(plan["placement"]["host_experts"], 256);
  EXPECT_GT(plan["placement"]["device_experts"], 40);
  EXPECT_LT(plan["placement"]["device_experts"], 70) << "24 GiB, less dense weights, cache and workspace";
  EXPECT_EQ(plan["decode"]["bound"], "link");
  EXPECT_EQ(plan["tiers"].size(), 3u);
  const double now = plan["decode"]["tokens_per_s"];
  ASSERT_EQ(plan["what_ifs"].size(), 4u);
  EXPECT_EQ(plan["what_ifs"][2]["what"], "a link twice as fast");
  EXPECT_GT(plan["what_ifs"][2]["decode_tokens_per_s"], 1.5 * now);
  EXPECT_GT(plan["what_ifs"][0]["decode_tokens_per_s"], now);
  EXPECT_EQ(plan["what_ifs"][3]["decode_tokens_per_s"], now) << "the drive has nothing to do";
  // By hand: what is missing of two experts a layer, over the link.
  const double share = plan["placement"]["device_experts"].get<double>() / 256;
  const double link = 32 * 2 * (1 - share) * (3.0 * 4096 * 14336 * 2 / 25e9 + 10e-6);
  EXPECT_NEAR(plan["decode"]["lanes"]["link"]["busy_s"], link, 0.01 * link);
}

TEST_F(PlanCommand, TextNamesBytesForecastAndWhatWouldHelp) {
  const Ran ran = plan({"--shape", "mixtral-8x7b", "--hardware", hardware(), "--device", "cuda"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  for (const char* text : {"device memory", "256 of 256 experts", "bound by the link", "1 GiB more device memory",
                           "assumed:"})
    EXPECT_THAT(ran.out, HasSubstr(text));
  EXPECT_EQ(ran.err, "") << "nothing was measured";
}

TEST_F(PlanCommand, ADriveIsUsedWhereHostMemoryIsTooSmall) {
  const json plan = planned({"--dram", "48GiB", "--sequences", "64"});
  EXPECT_LT(plan["placement"]["host_experts"], 256);
  EXPECT_EQ(plan["decode"]["bound"], "drive");
  EXPECT_GT(plan["decode"]["drive_bytes_per_step"], 0);
  EXPECT_EQ(plan["tiers"].size(), 2u);
  const json small = planned({"--dram", "24GiB", "--sequences", "64"});
  EXPECT_LT(small["decode"]["tokens_per_s"], plan["decode"]["tokens_per_s"]);
}

/// Two layers of 84 MB take turns, as embedding and head and the experts of a token leave no more room.
TEST_F(PlanCommand, DenseWeightsLargerThanMemoryAreReadInEachStep) {
  const json all = planned({"--dram", "5GiB"}), some = planned({"--dram", "3GiB"}), few = planned({"--dram", "1GiB"});
  const auto parts = [](const json& plan) { return plan["tiers"][0].dump(); };
  EXPECT_THAT(parts(all), Not(HasSubstr("layers stay")));
  EXPECT_THAT(parts(some), HasSubstr("layers stay, each step reads"));
  EXPECT_THAT(parts(few), HasSubstr("0 of 32 layers stay"));
  EXPECT_EQ(few["decode"]["bound"], "drive");
  EXPECT_LT(few["decode"]["tokens_per_s"], some["decode"]["tokens_per_s"]);
  EXPECT_LT(some["decode"]["tokens_per_s"], all["decode"]["tokens_per_s"]);
  const double layers = 32 * 84e6;
  EXPECT_GT(few["decode"]["drive_bytes_per_step"].get<double>(), layers);
  EXPECT_EQ(few["placement"]["streamed_layers"], 32);
  EXPECT_EQ(all["placement"]["streamed_layers"], 0);
}

TEST_F(PlanCommand, CountsInFormatsThatPackingMakes) {
  const json bf16 = planned({}), blocks = planned({"--experts", "q4_k", "--dense", "q8_0"});
  EXPECT_EQ(blocks["model"]["experts"], "q4_k");
  const double expert = 3.0 * 4096 * 14336 * 4.5 / 8;
  EXPECT_NEAR(blocks["model"]["expert_bytes"].get<double>(), expert, 0.01 * expert);
  // Embedding and routers stay bf16.
  EXPECT_GT(blocks["model"]["dense_bytes"].get<double>(), 8.5 / 16 * bf16["model"]["dense_bytes"].get<double>());
  EXPECT_LT(blocks["model"]["dense_bytes"], bf16["model"]["dense_bytes"]);
  EXPECT_EQ(planned({"--experts", "int2"})["model"]["experts"], "int2");
}

TEST_F(PlanCommand, PrefetchAndHitsCount) {
  const double even = planned({"--device", "cuda"})["decode"]["tokens_per_s"];
  EXPECT_GT(planned({"--device", "cuda", "--hits", "0.8"})["decode"]["tokens_per_s"], even);
  EXPECT_LT(planned({"--device", "cuda", "--no-prefetch"})["decode"]["tokens_per_s"], even);
  EXPECT_GE(planned({"--device", "cuda", "--foreseen", "1"})["decode"]["tokens_per_s"], even);
}

TEST_F(PlanCommand, AnEmulatedDeviceHasItsOwnLink) {
  const json plan = planned({"--device", "emulated:vram=20GiB,link=10GB/s"});
  EXPECT_EQ(plan["rates"]["link_bytes_per_s"], 10e9);
  EXPECT_EQ(plan["placement"]["device_experts"], (20ll << 30) / (3ll * 4096 * 14336 * 2));
}

TEST_F(PlanCommand, DramIsEnoughWhereAFileHasNoHostMemory) {
  const fs::path file = dir_ / "rates.yaml";
  write_file(file, "host:\n  memory_gbps: 100\n  tflops: 2\n");
  const Ran ran = plan({"--shape", "mixtral-8x7b", "--hardware", file.string(), "--dram", "900GiB", "--device",
                        "emulated:vram=20GiB,link=10GB/s", "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(json::parse(ran.out)["placement"]["host_experts"], 256);
}

TEST_F(PlanCommand, WhatCannotFitIsRefusedWithTheLeastThatWould) {
  const std::vector<std::string> model{"--shape", "mixtral-8x7b", "--hardware", hardware()};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), model.begin(), model.end());
    return more;
  };
  expect_refused(with({"--dram", "512MiB"}), 1, "does not fit: --dram of 512 MiB is too small; the least is 99");
  expect_refused(with({"--device", "cuda", "--vram", "2GiB"}), 1, "device memory of 2.00 GiB is too small");
  expect_refused(with({"--device", "emulated:vram=100MiB,link=10GB/s"}), 1, "device memory of 100 MiB is too small");
  expect_refused({"--shape", "mixtral-8x7b", "--hardware", small_host(), "--prompt", "16384"}, 1, "host memory of");
}

TEST_F(PlanCommand, WhatEncoderDecoderModelsLackIsRefusedByName) {
  const fs::path file = dir_ / "config.json";
  write_file(file, R"({"architectures": ["NllbMoeForConditionalGeneration"], "d_model": 64, "encoder_layers": 4,
    "decoder_layers": 4, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64, "num_experts": 4, "vocab_size": 100, "pad_token_id": 1, "max_position_embeddings": 600})");
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--shape", file.string(), "--hardware", hardware()});
    return more;
  };
  EXPECT_EQ(run_moestro(with({"plan", "--prompt", "512", "--generate", "512"})).exit_code, 0) << "two contexts";
  expect_refused(with({"--prompt", "601"}), 2, "--prompt 601 is more than the model's context of 600 tokens");
  expect_refused(with({"--generate", "600"}), 2, "--generate 600 behind a start token is more than");
  expect_refused(with({"--prompt", "513"}), 2, "one step, which has 512 tokens (--step-tokens)");
  expect_refused(with({"--schedule", "expert-pipeline"}), 2, "encoder-decoder models run layerwise");
  expect_refused(with({"--device", "cuda", "--schedule", "cgo"}), 2, "GPUs do not compute encoder-decoder models yet");
  expect_refused(with({"--mixed", "int2"}), 2, "--mixed");
  expect_refused(with({"--foreseen", "0.9"}), 2, "--foreseen with an encoder-decoder model");
  expect_refused(with({"--device", "emulated:vram=1GiB,link=1GB/s,dense=50%"}), 2, "take dense=counted");
}

TEST_F(PlanCommand, SearchesSchedulesAndSaysWhichWorkersRun) {
  const std::vector<std::string> many{"--device",    "cuda", "--kv-dtype", "bf16",
                                      "--sequences", "960",  "--generate", "32"};
  const json plan = planned(many);
  EXPECT_EQ(plan["asked_schedule"], "auto");
  ASSERT_EQ(plan["schedules"].size(), 3u) << plan["left_out"];
  EXPECT_EQ(plan["schedule"], "expert-pipeline") << "cgo is the paper's, which no GPU's worker runs";
  EXPECT_EQ(plan["runs"], true);
  EXPECT_EQ(plan["arrangement"]["dense_share"], 1);
  const json& fastest = plan["schedules"][0];
  EXPECT_EQ(fastest["schedule"], "cgo");
  EXPECT_EQ(fastest["runs"], false);
  EXPECT_LT(fastest["seconds"], plan["seconds"]);
  EXPECT_GT(plan["schedules"][2]["seconds"], 5 * plan["seconds"].get<double>()) << "layerwise";
  EXPECT_GT(plan["candidates"], 1000);
  for (const json& option : plan["schedules"]) {
    EXPECT_EQ(option["bubbles"].size(), option["schedule"] == "expert-pipeline" ? 4u : 0u);
    EXPECT_EQ(option["tiers"].size(), 3u);
    EXPECT_GT(option["decode"]["lanes"]["link"]["busy_s"], 0);
    for (const json& tier : option["tiers"])
      if (!tier["capacity_bytes"].is_null()) EXPECT_LE(tier["bytes"], tier["capacity_bytes"]) << option["schedule"];
  }
  const Ran text = plan_text_of(many);
  EXPECT_THAT(text.out, HasSubstr("a forecast only: of the published system"));
  EXPECT_THAT(text.out, HasSubstr("below: expert-pipeline"));
  EXPECT_THAT(text.out, HasSubstr("to run it: moestro up --schedule expert-pipeline --micro-batches "));
  EXPECT_THAT(text.out, HasSubstr(" --kv-home host --context 544 --kv-ring-tokens "));
  auto pinned = many, pipeline = many, layerwise = many;
  layerwise.insert(layerwise.end(), {"--schedule", "layerwise"});
  const json larger = planned(layerwise);
  EXPECT_EQ(larger["what_ifs"].back()["what"], "--step-tokens 2048");
  EXPECT_GT(larger["what_ifs"].back()["prompt_tokens_per_s"], 2 * larger["prompt"]["tokens_per_s"].get<double>());
  pipeline.insert(pipeline.end(), {"--schedule", "expert-pipeline"});
  EXPECT_THAT(plan_text_of(pipeline).out, HasSubstr("what has to arrive in a layer"));
  pinned.insert(pinned.end(), {"--schedule", "cgo"});
  const json cgo = planned(pinned);
  EXPECT_EQ(cgo["schedule"], "cgo");
  EXPECT_EQ(cgo["runs"], false);
  EXPECT_EQ(cgo["schedules"].size(), 1u);
  EXPECT_GT(cgo["decode"]["lanes"]["host"]["busy_s"], 0) << "the host attends";
}

TEST_F(PlanCommand, SaysHowToRunWhatItForecasts) {
  std::vector<std::string> many{"--device",      "emulated:vram=28GiB,link=10GB/s,kv=counted",
                                "--kv-dtype",    "bf16",
                                "--sequences",   "512",
                                "--prompt",      "256",
                                "--generate",    "128"};
  json plan;
  for (const std::string schedule : {"auto", "expert-pipeline", "cgo"}) {
    auto asked = many;
    asked.insert(asked.end(), {"--schedule", schedule});
    plan = planned(asked);
    EXPECT_EQ(plan["runs"], true);
    EXPECT_EQ(plan["schedule"], schedule == "auto" ? "expert-pipeline" : schedule);
    const std::string flags = plan["flags"];
    EXPECT_THAT(flags, AllOf(HasSubstr("--schedule " + plan["schedule"].get<std::string>()),
                             HasSubstr("--micro-batches"), HasSubstr("--step-tokens"), HasSubstr("--kv-home host"),
                             HasSubstr("--kv-ring-tokens")));
    EXPECT_THAT(plan_text_of(asked).out, HasSubstr("to run it: moestro up " + flags));
    if (plan["schedule"] == "cgo") EXPECT_THAT(flags, Not(HasSubstr("--kv-resident-tokens")));
  }
  auto slow = many;
  slow[1] += ",compute=1us";
  EXPECT_EQ(planned(slow)["schedule"], "cgo") << "the cores that compute for it have time to attend";
  EXPECT_THAT(plan_text_of(many).out, HasSubstr("the host would attend on the cores that compute for the device"));
  many.insert(many.end(), {"--step-tokens", "512"});
  const json pinned = planned(many);
  EXPECT_THAT(pinned["flags"].get<std::string>(), Not(HasSubstr("--step-tokens"))) << "it is as it was given";
  EXPECT_LE(pinned["prompt"]["step_rows"], 512);
  EXPECT_GT(plan["prompt"]["step_rows"], 512);
  const json one = planned({"--device", "emulated:vram=28GiB,link=10GB/s,kv=counted"});
  EXPECT_EQ(one["schedule"], "layerwise");
  EXPECT_EQ(one["flags"], "") << "the default does it";
}

/// Workers on GPUs do not compute with bf16 in 12 bits.
TEST_F(PlanCommand, APackThatGpusDoNotComputeWithIsRefusedForThem) {
  const fs::path pack = dir_ / "pack";
  const Ran packed = run_moestro(
      {"pack", (source_dir() / "models" / "demo").string(), "-o", pack.string(), "--experts", "bf16-12bit"});
  ASSERT_EQ(packed.exit_code, 0) << packed.err;
  const std::vector<std::string> arguments{"--model",  pack.string(), "--hardware", hardware(),
                                           "--prompt", "16",          "--generate", "16"};
  auto cpu = arguments, gpu = arguments;
  cpu.insert(cpu.end(), {"--device", "cpu"}), gpu.insert(gpu.end(), {"--device", "cuda"});
  EXPECT_EQ(plan(cpu).exit_code, 0) << plan(cpu).err;
  expect_refused(gpu, 2, "bf16-12bit on this device; choose another with --precision");
}

/// The engine takes a ring only if the longest sequence has room in it.
TEST_F(PlanCommand, TheEngineTakesTheRingThatIsNamed) {
  cli::PlanOptions options;
  options.shape = "mixtral-8x7b";
  const auto model = cli::read_planned_model(options);
  ASSERT_TRUE(model.is_ok()) << model.status().message();
  int rings = 0, too_small_for_any = 0;
  for (const auto& [schedule, sequences] : {std::pair("expert-pipeline", "64"), std::pair("expert-pipeline", "512"),
                                            std::pair("cgo", "512")})
    for (const char* length : {"100", "256", "2000"}) {
      const json plan = planned({"--device", "emulated:vram=28GiB,link=10GB/s,kv=counted", "--kv-dtype", "bf16",
                                 "--schedule", schedule, "--sequences", sequences, "--prompt", length,
                                 "--generate", "28"});
      std::istringstream words(plan["flags"].get<std::string>());
      engine::EngineOptions o;
      o.kv_home = engine::KvHome::kHost;
      for (std::string flag, value; words >> flag >> value;) {
        if (flag == "--kv-tokens") o.kv_tokens = std::stoll(value);
        if (flag == "--kv-ring-tokens") o.kv_ring_tokens = std::stoll(value);
        if (flag == "--kv-resident-tokens") o.kv_resident_tokens = std::stoll(value);
        if (flag == "--context") o.context_max = std::stoll(value);
        if (flag == "--step-tokens") o.step_tokens_max = std::stoll(value);
      }
      if (o.kv_ring_tokens == 0) continue;
      ++rings;
      const auto shared = engine::share_kv(o, model->description.spec);
      EXPECT_TRUE(shared.is_ok()) << plan["flags"] << ": " << shared.status().message();
      o.context_max = 0;
      too_small_for_any += !engine::share_kv(o, model->description.spec).is_ok();
    }
  EXPECT_GT(rings, 1);
  EXPECT_GT(too_small_for_any, 0) << "the named --context counts";
}

TEST_F(PlanCommand, AScheduleIsLeftOutWithItsReason) {
  const Ran ran = plan({"--shape", "mixtral-8x7b", "--dram", "200GiB", "--sequences", "64", "--device", "cuda",
                        "--hardware", (source_dir() / "configs/hardware/l4.yaml").string()});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("cgo              is left out: the host's rates are not known"));
}

TEST_F(PlanCommand, WrongLinesAreRefusedInOneLine) {
  const std::vector<std::string> model{"--shape", "mixtral-8x7b", "--hardware", hardware()};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), model.begin(), model.end());
    return more;
  };
  expect_refused(with({"--schedule", "cgo"}), 2, "--schedule cgo: it needs a device in addition");
  expect_refused(with({"--schedule", "fast"}), 2, "--schedule fast is unknown");
  expect_refused(with({"--dram", "much"}), 2, "--dram: ");
  expect_refused(with({"--vram", "4GiB"}), 2, "--vram goes with");
  expect_refused(with({"--vram", "0", "--device", "cuda"}), 2, "more than nothing");
  expect_refused(with({"--device", "gpu"}), 2, "--device");
  expect_refused(with({"--experts", "int5"}), 2, "--experts");
  expect_refused(with({"--experts", "mixed"}), 2, "--experts mixed with --shape");
  expect_refused(with({"--experts", "q2_k"}), 2, "--experts q2_k with --shape: nothing is converted to it");
  expect_refused(with({"--dense", "int2"}), 2, "in their own formats are planned with --model");
  const std::string demo = (source_dir() / "models" / "demo").string();
  expect_refused({"--shape", demo, "--hardware", hardware(), "--experts", "q4_k"}, 2,
                 "--experts q4_k: this model has rows of 128 numbers, and a block is 256");
  expect_refused({"--shape", demo, "--hardware", hardware(), "--dense", "q6_k"}, 2, "--dense q6_k: this model has");
  expect_refused(with({"--kv-dtype", "int4"}), 2, "int4");
  expect_refused(with({"--prompt", "40000"}), 2, "more than the model's context of 32768 tokens");
  expect_refused({"--hardware", hardware()}, 2, "--model PACK");
  expect_refused({"--shape", "mixtral-8x7b", "--device", "cuda"}, 2, "needs --hardware");
}

TEST_F(PlanCommand, AShapeThatIsNoneIsRefusedByName) {
  expect_refused({"--shape", "no-such-model", "--hardware", hardware()}, 1, "neither a file nor one of");
  const auto refused = [&](const std::string& config, const std::string& why) {
    const fs::path path = dir_ / "config.json";
    write_file(path, config);
    const Ran ran = plan({"--shape", path.string(), "--hardware", hardware()});
    EXPECT_NE(ran.exit_code, 0) << config;
    EXPECT_THAT(ran.err, AllOf(HasSubstr("--shape"), HasSubstr(why))) << config;
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
  };
  refused("", "JSON");
  refused(R"({"architectures": ["LlamaForCausalLM"]})", "LlamaForCausalLM");
  refused(R"({"architectures": ["MixtralForCausalLM"], "hidden_size": 4096})", "is missing");
}

TEST_F(PlanCommand, AFolderOfACheckpointIsEnough) {
  const fs::path demo = source_dir() / "models" / "demo";
  const Ran ran = plan({"--shape", demo.string(), "--hardware", hardware(), "--json", "--prompt", "32", "--generate",
                        "32"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_GT(json::parse(ran.out)["decode"]["tokens_per_s"], 0);
}

TEST_F(PlanCommand, AHardwareFileWithoutANeededRateIsRefused) {
  const fs::path file = dir_ / "some.yaml";
  const auto err = [&](const std::string& yaml, std::vector<std::string> more) {
    write_file(file, yaml);
    more.insert(more.end(), {"--shape", "mixtral-8x7b", "--hardware", file.string()});
    const Ran ran = plan(more);
    EXPECT_EQ(ran.exit_code, 2) << yaml;
    return ran.err;
  };
  const std::string memory = "host:\n  memory: 200GiB\n";
  EXPECT_THAT(err(memory, {}), HasSubstr("host.memory_gbps is missing"));
  EXPECT_THAT(err(memory + "  memory_gbps: 100\n", {}), HasSubstr("host.tflops is missing"));
  EXPECT_THAT(err(memory + "  memory_gbps: 100\n  tflops: 2\n", {"--dram", "48GiB"}),
              HasSubstr("host.drive_gbps is missing"));
  // One sequence leaves room for all experts, as many as fit do not. And not even one fits on the device.
  const std::string rates = "  memory_gbps: 100\n  tflops: 2\n";
  EXPECT_THAT(err("host:\n  memory: 100GiB\n" + rates, {"--sequences", "256"}),
              HasSubstr("host.drive_gbps is missing"));
  const std::string card = "device:\n  memory: 7GiB\n  memory_gbps: 1000\n  tflops: 100\n  link_gbps: 25\n";
  EXPECT_THAT(err("host:\n  memory: 64GiB\n" + rates + card,
                  {"--device", "cuda", "--prompt", "32000", "--schedule", "expert-pipeline"}),
              HasSubstr("host.drive_gbps is missing"));
  EXPECT_THAT(err(memory, {"--device", "cuda"}), HasSubstr("device.memory is missing"));
  EXPECT_THAT(err(memory + "  memory_gbps: -1\n", {}), HasSubstr("memory_gbps"));
  EXPECT_THAT(err("hots:\n  memory: 1GiB\n", {}), HasSubstr("hots"));
}

TEST_F(PlanCommand, TheDrivesRateCanBeGivenBesideAHardwareFile) {
  const fs::path card = source_dir() / "configs/hardware/rtx-4090.yaml";
  const auto with_drive = [&](const std::string& rate) {
    return plan({"--shape", "mixtral-8x7b", "--device", "cuda", "--hardware", card.string(), "--dram", "48GiB",
                 "--drive", rate, "--json"});
  };
  const auto generated_per_s = [&](const std::string& rate) {
    const Ran ran = with_drive(rate);
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    const json report = json::parse(ran.out);
    EXPECT_THAT(report["rates"]["source"].get<std::string>(), HasSubstr("--drive"));
    return report["decode"]["tokens_per_s"].get<double>();
  };
  EXPECT_GT(generated_per_s("10GB/s"), 1.5 * generated_per_s("2GB/s"));
  for (const std::string wrong : {"fast", "0", "-1GB/s"}) {
    const Ran ran = with_drive(wrong);
    EXPECT_EQ(ran.exit_code, 2) << wrong;
    EXPECT_THAT(ran.err, HasSubstr("--drive " + wrong));
  }
}

TEST_F(PlanCommand, EveryCardThatIsThere) {
  for (const auto& entry : fs::directory_iterator(source_dir() / "configs/hardware")) {
    const Ran ran = plan({"--shape", "mixtral-8x7b", "--experts", "int4", "--device", "cuda", "--dram", "80GiB",
                          "--hardware", entry.path().string()});
    EXPECT_EQ(ran.exit_code, 0) << entry.path() << ": " << ran.err;
  }
}

TEST_F(PlanCommand, MeasuresOnceAndKeepsIt) {
  const std::vector<std::string> small{"--shape", (source_dir() / "models" / "demo").string(), "--prompt", "16",
                                       "--generate", "16", "--json"};
  const Ran first = plan(small);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(json::parse(first.out)["rates"]["source"], "measured on this machine");
  const Ran second = plan(small);
  ASSERT_EQ(second.exit_code, 0) << second.err;
  EXPECT_THAT(json::parse(second.out)["rates"]["source"].get<std::string>(), HasSubstr("measured earlier"));
  EXPECT_EQ(json::parse(second.out)["decode"], json::parse(first.out)["decode"]);
  EXPECT_EQ(second.err, "");
  for (const auto& entry : fs::directory_iterator(dir_ / "state" / "moestro" / ".rates"))
    write_file(entry.path(), "{\"version\": 1");
  const Ran third = plan(small);
  ASSERT_EQ(third.exit_code, 0) << third.err;
  EXPECT_EQ(json::parse(third.out)["rates"]["source"], "measured on this machine") << "a damaged file is as none";
}

TEST_F(PlanCommand, OfAPack) {
  const fs::path pack = dir_ / "pack";
  const Ran packed = run_moestro({"pack", (source_dir() / "models" / "demo").string(), "-o", pack.string()});
  ASSERT_EQ(packed.exit_code, 0) << packed.err;
  const std::vector<std::string> arguments{"--model",    pack.string(), "--hardware", hardware(), "--prompt", "32",
                                           "--generate", "32",          "--json"};
  const Ran ran = plan(arguments);
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const json of_pack = json::parse(ran.out);
  const Ran of_shape = plan({"--shape", (source_dir() / "models" / "demo").string(), "--hardware", hardware(),
                             "--prompt", "32", "--generate", "32", "--json"});
  ASSERT_EQ(of_shape.exit_code, 0) << of_shape.err;
  const json shape = json::parse(of_shape.out)["model"];
  EXPECT_EQ(of_pack["model"]["expert_bytes"], shape["expert_bytes"]);
  const double dense = of_pack["model"]["dense_bytes"];
  EXPECT_NEAR(shape["dense_bytes"].get<double>(), dense, 4096.0 * (of_pack["model"]["layers"].get<double>() + 2))
      << "a pack's blobs end at pages";
  expect_refused({"--model", pack.string(), "--dense", "int8", "--hardware", hardware()}, 2, "--dense goes with");

  fs::resize_file(pack / "manifest", fs::file_size(pack / "manifest") / 2);
  expect_refused(arguments, 1, "manifest");
  expect_refused({"--model", (dir_ / "none").string()}, 1, "none");
}

/// Experts and dense weights of several formats, on a GPU: as the pack has them in each layer.
TEST_F(PlanCommand, OfAPackWhoseFormatsAreMixed) {
  const fs::path pack = dir_ / "mixed";
  const fs::path file = source_dir() / "tests/fixtures/gguf/qwen3moe_k_quants/qwen3moe_k_quants.gguf";
  const Ran packed = run_moestro({"pack", file.string(), "-o", pack.string()});
  ASSERT_EQ(packed.exit_code, 0) << packed.err;
  const Ran ran = plan({"--model", pack.string(), "--hardware", hardware(), "--device", "cuda", "--prompt", "32",
                        "--generate", "32", "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_GT(json::parse(ran.out)["decode"]["tokens_per_s"].get<double>(), 0);
}

}  // namespace
}  // namespace moestro::test
