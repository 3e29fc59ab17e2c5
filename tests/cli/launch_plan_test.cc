#include "services/cli/up/launch_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/temp_dir.h"

namespace moestro::cli {
namespace {

using testing::HasSubstr;

std::string command_of(const Launch& launch) {
  std::string text = launch.binary;
  for (const std::string& argument : launch.arguments) text += " " + argument;
  return text;
}

config::BoxConfig demo_box() {
  config::BoxConfig box;
  box.model = {"/packs/demo", "demo"};
  return box;
}

TEST(LaunchPlan, TheDefaultsOfOneBox) {
  const auto launches = plan_launches(demo_box(), {"/run/m", "/arena"}, 8);
  ASSERT_EQ(launches.size(), 3u);
  EXPECT_EQ(command_of(launches[0]),
            "moestro-store --run-dir /run/m --arena-dir /arena --model demo=/packs/demo --io auto "
            "--log-level info");
  EXPECT_EQ(command_of(launches[1]),
            "moestro-worker --model demo --name worker-0 --store ipc:///run/m/store.sock --orchestrator "
            "ipc:///run/m/orchestrator.sock "
            "--device cpu --log-level info");
  EXPECT_EQ(command_of(launches[2]),
            "moestro-orchestrator --model demo=/packs/demo --run-dir /run/m --http 127.0.0.1:8080 --drain-s "
            "30 --log-level info");
}

TEST(LaunchPlan, EveryKeyReachesItsProgram) {
  config::BoxConfig box = demo_box();
  box.store = {config::Bytes{4ull << 30}, "", "pread", true};
  box.workers.count = 2;
  box.workers.kv_tokens = 4096;
  box.workers.context = 512;
  box.workers.reserve = 3;
  box.workers.precision = "int8";
  box.workers.deterministic = true;
  box.workers.trace = "/t/routes.jsonl";
  box.workers.timeline = "/t/time.json";
  box.orchestrator = {"0.0.0.0:0", 7, 9, "default"};
  box.run.log_level = "debug";
  const auto launches = plan_launches(box, {"/run/m", "/arena"}, 8);
  ASSERT_EQ(launches.size(), 4u);
  EXPECT_THAT(
      command_of(launches[0]),
      HasSubstr("--dram 4294967296 --model demo=/packs/demo --io pread --poison-freed --log-level debug"));
  EXPECT_THAT(command_of(launches[2]), HasSubstr("--name worker-1 "));
  EXPECT_THAT(
      command_of(launches[2]),
      HasSubstr("--threads 4 --kv-tokens 4096 --context 512 --reserve 3 --precision int8 --deterministic "
                "--trace /t/routes.worker-1.jsonl --timeline /t/time.worker-1.json"));
  EXPECT_THAT(command_of(launches[3]), HasSubstr("--http 0.0.0.0:0 --step-tokens 7 --queue-max 9"));
}

TEST(LaunchPlan, NamesGoBeforeTheFirstDot) {
  EXPECT_EQ(insert_name("/a.b/routes.jsonl.zst", "worker-1"), "/a.b/routes.worker-1.jsonl.zst");
  EXPECT_EQ(insert_name("routes", "w"), "routes.w");
  EXPECT_EQ(insert_name(".hidden", "w"), ".hidden.w");
}

TEST(LaunchPlan, ABoxIsCheckedBeforeAnythingIsMade) {
  test::TempDir dir;
  config::BoxConfig box;
  EXPECT_THAT(check_box(box).message(), HasSubstr("--model"));
  box.model.pack = (dir / "nothing").string();
  EXPECT_EQ(check_box(box).code(), Code::kNotFound);
  EXPECT_THAT(check_box(box).message(), HasSubstr("moestro pack"));
  std::filesystem::create_directory(dir / "tiny");
  test::write_file(dir / "tiny" / "manifest", "x");
  box.model.pack = (dir / "tiny").string() + "/";
  ASSERT_TRUE(check_box(box).is_ok()) << check_box(box).message();
  EXPECT_EQ(box.model.name, "tiny");
  EXPECT_EQ(box.model.pack, std::filesystem::weakly_canonical(dir / "tiny"));
  box.orchestrator.http = "8080";
  EXPECT_THAT(check_box(box).message(), HasSubstr("HOST:PORT"));
}

TEST(LaunchPlan, NamesThatCouldLeaveTheirPlaceAreRefused) {
  for (const char* name : {"", ".", "..", "a/b", "a b", "a=b", "-x", "\xc3\xbc", "a\n"})
    EXPECT_FALSE(check_model_name(name).is_ok()) << name;
  EXPECT_FALSE(check_model_name(std::string(65, 'a')).is_ok());
  for (const char* name : {"demo", "Qwen3-30B-A3B", "a.b_c"})
    EXPECT_TRUE(check_model_name(name).is_ok()) << name;
}

}  // namespace
}  // namespace moestro::cli
