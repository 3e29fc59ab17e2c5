// `--schedule auto` of `moestro up`: what it takes of a plan, and when it does not ask.

#include "services/cli/plan/box_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iterator>
#include <sstream>

#include "services/worker/choose_schedule.h"
#include "store/pack/packer.h"
#include "tests/cli/run_moestro.h"
#include "tests/cli/temp_dir.h"
#include "tests/support/places.h"

namespace moestro::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class BoxPlan : public testing::Test {
 protected:
  void SetUp() override { ::setenv("XDG_STATE_HOME", (dir_ / "state").c_str(), 1); }
  void TearDown() override { ::unsetenv("XDG_STATE_HOME"); }

  fs::path packed(const char* checkpoint) const {
    const auto made = store::pack_checkpoint(source_dir() / checkpoint, dir_ / "pack", {}, {});
    EXPECT_TRUE(made.is_ok()) << made.status().message();
    return dir_ / "pack";
  }
  /// Of a line that says what `up` misses for a choice.
  void run_named_command(const std::string& line, const std::string& why) const {
    ASSERT_THAT(line, AllOf(HasSubstr("schedule layerwise: " + why), HasSubstr(": moestro plan --model ")));
    std::string command = line.substr(line.find("moestro plan"));
    std::erase(command, '\'');
    std::istringstream words(command);
    std::vector<std::string> arguments{std::istream_iterator<std::string>(words), {}};
    const Ran ran = run_moestro({arguments.begin() + 1, arguments.end()});
    EXPECT_EQ(ran.exit_code, 0) << command << ": " << ran.err;
  }

  TempDir dir_;
};

/// A start never measures: without rates of an earlier plan nothing changes, with them the plan's choice is taken.
TEST_F(BoxPlan, UpTakesThePlanWhereRatesAreKnown) {
  const fs::path pack = packed("models/demo");
  config::BoxConfig box;
  box.model.pack = pack.string();
  // A link on which experts take longer than anything else, and more sequences than a step of layerwise has.
  box.workers.device = "emulated:vram=2MiB,link=2MB/s", box.workers.kv_tokens = 65536;
  box.workers.context = 64, box.workers.kv_dtype = "bf16", box.workers.threads = 1;
  const config::BoxConfig asked = box;
  run_named_command(cli::plan_schedule(box), "the speed of this machine has not been measured");
  EXPECT_EQ(box.workers.schedule, "auto");
  EXPECT_THAT(cli::plan_schedule(box), HasSubstr("schedule expert-pipeline (--schedule"));
  EXPECT_EQ(box.workers.schedule, "expert-pipeline");
  EXPECT_TRUE(box.workers.micro_batches.has_value());
  EXPECT_EQ(box.workers.kv_tokens, 65536) << "it was given";
  engine::EngineOptions engine;
  EXPECT_TRUE(worker::take_schedule(box, config::DeviceSpec::Kind::kEmulated, engine).is_ok());

  box = asked;
  box.workers.device = "emulated:vram=2MiB,link=2MB/s,kv=counted", box.workers.kv_tokens = 16384;
  cli::plan_schedule(box);
  EXPECT_EQ(box.workers.kv_home, "device") << "where KV lies is for the user to say";
  EXPECT_FALSE(box.workers.kv_ring_tokens.has_value() || box.workers.kv_resident_tokens > 0);

  const auto not_asked = [&](const char* why, const std::function<void(config::BoxConfig::Workers&)>& set) {
    config::BoxConfig other = asked;
    set(other.workers);
    const std::string schedule = other.workers.schedule;
    EXPECT_EQ(cli::plan_schedule(other), "") << why;
    EXPECT_EQ(other.workers.schedule, schedule) << why;
  };
  not_asked("it was named", [](auto& w) { w.schedule = "layerwise"; });
  not_asked("low copies are of layerwise", [](auto& w) { w.mixed = "int4"; });
  not_asked("KV moves", [](auto& w) { w.kv_home = "host"; });
  not_asked("rings are of KV that moves", [](auto& w) { w.kv_ring_tokens = 4096; });
  not_asked("as are those", [](auto& w) { w.kv_resident_tokens = 4096; });
  not_asked("all experts are on the device", [](auto& w) { w.device = "emulated:vram=2GiB,link=2MB/s"; });
  not_asked("all experts are in host memory", [](auto& w) { w.device = "cpu"; });
}

/// The link takes longer than anything else, so steps grow as far as the KV cache fills them; rates need not be known.
TEST_F(BoxPlan, UpTakesLargerStepsWhereExpertsDoNotFit) {
  const fs::path pack = packed("models/demo");
  config::BoxConfig box;
  box.model.pack = pack.string();
  box.workers.device = "emulated:vram=2MiB,link=20MB/s", box.workers.threads = 1;
  const config::BoxConfig asked = box;
  EXPECT_THAT(cli::plan_steps(box), AllOf(HasSubstr("steps of up to 4096 tokens"), HasSubstr("instead of")));
  EXPECT_EQ(box.workers.step_buffers, 4096);
  EXPECT_FALSE(box.orchestrator.step_tokens.has_value()) << "the scheduler goes by measured steps";
  engine::EngineOptions engine;
  ASSERT_TRUE(worker::take_schedule(box, config::DeviceSpec::Kind::kEmulated, engine).is_ok());
  EXPECT_EQ(engine.step_tokens_max, 4096);
  EXPECT_EQ(cli::plan_steps(box), "") << "it is given now";

  const auto stays = [&](const char* why, const std::function<void(config::BoxConfig&)>& set) {
    config::BoxConfig other = asked;
    set(other);
    const auto before = other.workers.step_buffers;
    EXPECT_EQ(cli::plan_steps(other), "") << why;
    EXPECT_EQ(other.workers.step_buffers, before) << why;
  };
  stays("steps were given", [](auto& b) { b.orchestrator.step_tokens = 512; });
  stays("buffers were given", [](auto& b) { b.workers.step_buffers = 512; });
  stays("all experts are on the device", [](auto& b) { b.workers.device = "emulated:vram=2GiB,link=20MB/s"; });
  stays("all experts are in host memory", [](auto& b) { b.workers.device = "cpu"; });
  stays("low copies are not in forecasts", [](auto& b) { b.workers.mixed = "int4"; });
  stays("KV moves", [](auto& b) { b.workers.kv_home = "host"; });
  stays("a window keeps blocks for each step", [](auto& b) { b.workers.kv_window = 256; });
  stays("a GPU's worker chooses", [](auto& b) { b.workers.device = "cuda"; });
  stays("the link is fast", [](auto& b) { b.workers.device = "emulated:vram=2MiB,link=100GB/s"; });
  stays("the KV cache holds no larger step", [](auto& b) { b.workers.kv_tokens = 640; });
}

/// Their states stay on the device, and pipelines with them are not compared with runs.
TEST_F(BoxPlan, UpPlansNoModelWithStatesOfSequences) {
  const fs::path pack = packed("tests/fixtures/models/qwen3_next_hybrid");
  config::BoxConfig box;
  box.model.pack = pack.string(), box.workers.device = "emulated:vram=4KiB,link=2MB/s";
  box.workers.context = 32;
  EXPECT_EQ(cli::plan_schedule(box), "");
  EXPECT_EQ(box.workers.schedule, "auto");
}

TEST_F(BoxPlan, UpNamesWhatMeasuresTheDrive) {
  const fs::path pack = packed("models/demo");
  const Ran rates =
      run_moestro({"plan", "--model", pack.string(), "--threads", "1", "--prompt", "16", "--generate", "16"});
  ASSERT_EQ(rates.exit_code, 0) << rates.err;
  config::BoxConfig box;
  box.model.pack = pack.string(), box.workers.threads = 1;
  cli::PlanOptions options;
  options.pack = pack.string();
  const auto model = cli::read_planned_model(options);
  ASSERT_TRUE(model.is_ok()) << model.status().message();
  box.store.dram = config::Bytes{model->sizes.dense_bytes + model->sizes.experts_bytes() / 2};
  run_named_command(cli::plan_schedule(box), "the speed of the drive has not been measured");
  EXPECT_THAT(cli::plan_schedule(box), AllOf(HasSubstr("schedule "), Not(HasSubstr("not been measured"))));
  const auto forecast = cli::forecast_box(box);
  ASSERT_TRUE(forecast.has_value());
  EXPECT_EQ(forecast->schedule, "layerwise");
  EXPECT_GT(forecast->prompts.tokens_per_s, forecast->decoding.tokens_per_s);
  EXPECT_EQ(forecast->sequences, 12) << "of 640 tokens in 8192";
  EXPECT_FALSE(forecast->decoding.bound.empty());
  box.workers.device = "cuda";
  EXPECT_FALSE(cli::forecast_box(box).has_value()) << "a GPU's rates are not measured";
}

}  // namespace
}  // namespace moestro::test
