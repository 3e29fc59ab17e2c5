#include "services/cli/up/launch_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/config/yaml_file.h"
#include "tests/cli/temp_dir.h"
#include "tests/support/as_stranger.h"

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
  box.model = {.pack = "/packs/demo", .name = "demo", .aliases = "one,two/three"};
  return box;
}

/// As on a machine without GPUs.
std::vector<WorkerPlace> same_workers(size_t count) {
  return std::vector<WorkerPlace>(count, {.device = "cpu", .numa_node = {}, .share = {}, .note = ""});
}
Status check(config::BoxConfig& box) {
  return check_box(box, {.plugin = "/nowhere/libmoestro_cuda.so", .pci_devices = "/nowhere", .nodes = {0}}).status();
}

TEST(LaunchPlan, EveryProgramStartsFromTheBoxFile) {
  config::BoxConfig box = demo_box();
  box.workers.count = 2;
  const auto launches = plan_launches(box, {"/run/m", "/arena"}, same_workers(2), std::vector{0, 1});
  ASSERT_EQ(launches.size(), 4u);
  EXPECT_EQ(command_of(launches[0]), "moestro-store -c /run/m/box.yaml");
  EXPECT_EQ(command_of(launches[1]), "moestro-worker -c /run/m/box.yaml --name worker-0");
  EXPECT_EQ(command_of(launches[2]), "moestro-worker -c /run/m/box.yaml --name worker-1");
  EXPECT_EQ(command_of(launches[3]), "moestro-orchestrator -c /run/m/box.yaml");
}

TEST(LaunchPlan, AWorkerIsToldItsDeviceAndItsNode) {
  config::BoxConfig box = demo_box();
  box.workers.device = "cuda";
  box.workers.count = 2;
  const std::vector<WorkerPlace> workers = {
      {.device = "cuda:0", .numa_node = {}, .share = {}, .note = ""},
      {.device = "cuda:1,vram=4GiB", .numa_node = 1, .share = {.k = 2, .of = 3}, .note = ""}};
  const auto launches = plan_launches(box, {"/run/m", "/arena"}, workers, {});
  ASSERT_EQ(launches.size(), 4u);
  EXPECT_EQ(command_of(launches[1]), "moestro-worker -c /run/m/box.yaml --name worker-0 --device cuda:0");
  EXPECT_EQ(
      command_of(launches[2]),
      "moestro-worker -c /run/m/box.yaml --name worker-1 --device cuda:1,vram=4GiB --numa-node 1 --cpu-share 2/3");
}

TEST(LaunchPlan, WeightsLieOnTheNodesThatAllWorkersKeepTo) {
  config::BoxConfig box = demo_box();
  const auto store = [&](std::vector<std::optional<int64_t>> nodes, const std::vector<int>& memory_nodes) {
    std::vector<WorkerPlace> workers = same_workers(nodes.size());
    for (size_t i = 0; i < nodes.size(); ++i) workers[i].numa_node = nodes[i];
    return command_of(plan_launches(box, {"/run/m", "/arena"}, workers, memory_nodes)[0]);
  };
  const std::string plain = "moestro-store -c /run/m/box.yaml";
  const std::vector<int> four{0, 1, 2, 3};
  EXPECT_EQ(store({1, 1}, four), plain + " --numa 1");
  EXPECT_EQ(store({3, 0, 1}, four), plain + " --numa 0-1,3");
  EXPECT_EQ(store({1, std::nullopt}, four), plain) << "one keeps to no node";
  EXPECT_EQ(store({1, 5}, four), plain) << "a node without memory";
  EXPECT_EQ(store({0, 0}, {0}), plain) << "one node";
  EXPECT_EQ(store({1, 1}, {}), plain) << "numactl has chosen";
  box.workers.numa_node = 2;
  EXPECT_EQ(store({std::nullopt, std::nullopt}, four), plain + " --numa 2");
  box.store.numa = "off";
  EXPECT_EQ(store({1, 1}, four), plain);
}

TEST(LaunchPlan, TheBoxFileReadsBackWithThePlacesFilledIn) {
  test::TempDir dir;
  config::BoxConfig box = demo_box();
  box.store.dram = config::Bytes{3ull << 30};
  box.workers.trace = "/t/it's \"this\": one # \xc3\xa9.jsonl";
  box.run.drain = std::chrono::milliseconds(1500);
  ASSERT_TRUE(write_box_file(box, {dir.path(), "/arena"}).is_ok());
  config::BoxConfig back;
  config::Schema schema = config::box_schema(back);
  const Status read = config::load_yaml_file(dir / "box.yaml", schema);
  ASSERT_TRUE(read.is_ok()) << read.message();
  EXPECT_EQ(std::filesystem::status(dir / "box.yaml").permissions(), std::filesystem::perms(0600))
      << "it may have a password";
  EXPECT_EQ(back.run.dir, dir.path());
  EXPECT_EQ(back.store.arena_dir, "/arena");
  EXPECT_EQ(back.store.dram, box.store.dram);
  EXPECT_EQ(back.workers.trace, box.workers.trace);
  EXPECT_EQ(back.run.drain, box.run.drain);
  EXPECT_FALSE(back.workers.threads.has_value());
}

TEST(LaunchPlan, ABoxFileThatCannotBeWrittenIsNamed) {
  EXPECT_THAT(write_box_file(demo_box(), {"/nowhere/at/all", "/arena"}).message(),
              HasSubstr("/nowhere/at/all/box.yaml"));
}

TEST(LaunchPlan, APackThatThisUserMayNotReadIsNotMissing) {
  namespace fs = std::filesystem;
  const test::TempDir dir;
  fs::permissions(dir.path(), fs::perms(0755));
  fs::create_directories(dir / "home" / "tiny");
  test::write_file(dir / "home" / "tiny" / "manifest", "x");
  const auto refusal = [&] {
    const test::AsStranger stranger;
    config::BoxConfig box;
    box.model.pack = (dir / "home" / "tiny").string();
    return check(box).message();
  };
  EXPECT_EQ(refusal(), "");
  fs::permissions(dir / "home" / "tiny" / "manifest", fs::perms::none);
  EXPECT_THAT(refusal(), HasSubstr("chmod -R a+rX " + (dir / "home" / "tiny").string()));
  fs::permissions(dir / "home" / "tiny", fs::perms::none);
  EXPECT_THAT(refusal(), HasSubstr("chmod -R a+rX " + (dir / "home" / "tiny").string()));
  fs::permissions(dir / "home", fs::perms::none);
  EXPECT_THAT(refusal(), HasSubstr("may not enter " + (dir / "home").string()));
  for (const fs::path& closed : {dir / "home", dir / "home" / "tiny"})
    fs::permissions(closed, fs::perms::owner_all);  // so that they can be removed
}

TEST(LaunchPlan, ABoxIsCheckedBeforeAnythingIsMade) {
  test::TempDir dir;
  config::BoxConfig box;
  EXPECT_THAT(check(box).message(), HasSubstr("--model"));
  box.model.pack = (dir / "nothing").string();
  EXPECT_EQ(check(box).code(), Code::kNotFound);
  EXPECT_THAT(check(box).message(), HasSubstr("moestro pack"));
  std::filesystem::create_directory(dir / "tiny");
  test::write_file(dir / "tiny" / "manifest", "x");
  box.model.pack = (dir / "tiny").string() + "/";
  ASSERT_TRUE(check(box).is_ok()) << check(box).message();
  EXPECT_EQ(box.model.name, "tiny");
  EXPECT_EQ(box.model.pack, std::filesystem::weakly_canonical(dir / "tiny"));
  test::write_file(dir / "tiny" / "config.json", R"({"architectures": ["SwitchTransformersForConditionalGeneration"],
    "d_model": 32, "d_kv": 6, "d_ff": 24, "num_heads": 4, "num_layers": 4, "num_experts": 4, "vocab_size": 100})");
  EXPECT_TRUE(check(box).is_ok()) << check(box).message();
  const std::string cpu = std::exchange(box.workers.device, "emulated:vram=1GiB,link=1GB/s");
  EXPECT_TRUE(check(box).is_ok()) << check(box).message();
  box.workers.device = "cuda:0";
  EXPECT_THAT(check(box).message(), HasSubstr("GPUs do not compute encoder-decoder models yet"));
  box.workers.device = cpu;
  std::filesystem::remove(dir / "tiny" / "config.json");
  box.workers.device = "cuda:1";
  EXPECT_THAT(check(box).message(), HasSubstr("--device cuda:1: the CUDA plugin is not built"));
  box.workers.device = "gpu";
  EXPECT_THAT(check(box).message(), HasSubstr("--device (workers.device): 'gpu' is no device"));
  box.workers.device = "cpu";
  box.orchestrator.mixed_warn_share = 0.1;
  EXPECT_THAT(check(box).message(), HasSubstr("--mixed-warn-share (orchestrator.mixed_warn_share)"));
  box.workers.mixed = "int4";
  EXPECT_TRUE(check(box).is_ok()) << check(box).message();
  box.orchestrator.http = "80x";
  EXPECT_THAT(check(box).message(), HasSubstr("HOST:PORT"));
  for (const char* text : {"9080", ":9080"}) {
    box.orchestrator.http = text;
    ASSERT_TRUE(check(box).is_ok());
    EXPECT_EQ(box.orchestrator.http, "127.0.0.1:9080") << text;
  }
}

}  // namespace
}  // namespace moestro::cli
