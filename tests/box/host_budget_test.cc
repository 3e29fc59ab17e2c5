// What workers take of the host's memory beside the arena, by the device they compute on.

#include "services/box/host_budget.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/places.h"

namespace moestro::box {
namespace {

WorkerMemory memory_of(const std::string& device, int64_t kv_host_tokens = 0) {
  config::BoxConfig box;
  box.workers.kv_host_tokens = kv_host_tokens;
  box.workers.device = device;
  box.workers.count = 2;
  const auto memory = worker_memory(box, test::source_dir() / "models/demo");
  EXPECT_TRUE(memory.is_ok()) << memory.status().message();
  return memory.is_ok() ? *memory : WorkerMemory{};
}

TEST(HostBudget, TheMemoryOfADeviceIsTheHostsOnlyWhereItIsEmulated) {
  const WorkerMemory cpu = memory_of("cpu"), emulated = memory_of("emulated:vram=1G,link=1GB/s"),
                     gpu = memory_of("cuda,vram=1G");
  EXPECT_GT(cpu.kv_bytes, 0u);
  EXPECT_GT(cpu.scratch_bytes, 0u);
  EXPECT_EQ(emulated.total(), cpu.total() + 2 * (uint64_t{1} << 30));
  EXPECT_EQ(gpu.kv_bytes + gpu.scratch_bytes + gpu.device_bytes, 0u) << "KV cache and activations lie in the GPU's";
  EXPECT_GT(gpu.process_bytes, cpu.process_bytes);
  EXPECT_EQ(memory_of("cuda,vram=1G", 2 * 8192).kv_bytes, 2 * cpu.kv_bytes)
      << "what is kept in host memory of twice the tokens";
}

TEST(HostBudget, OfAGpuKvWhoseHomeIsTheHostAndWhatTheHostAttendsWithCount) {
  config::BoxConfig box;
  box.workers.device = "cuda,vram=1G";
  box.workers.kv_tokens = 16384;
  const auto of = [&box](const std::string& home, const std::string& schedule) {
    box.workers.kv_home = home, box.workers.schedule = schedule;
    const auto memory = worker_memory(box, test::source_dir() / "models/demo");
    EXPECT_TRUE(memory.is_ok()) << memory.status().message();
    return *memory;
  };
  EXPECT_EQ(of("device", "auto").kv_bytes, 0U);
  EXPECT_EQ(of("host", "auto").kv_bytes, 2 * memory_of("cpu").kv_bytes) << "of twice the tokens";
  EXPECT_EQ(of("host", "auto").scratch_bytes, 0U);
  box.workers.kv_resident_tokens = 8192;
  EXPECT_EQ(of("host", "auto").kv_bytes, memory_of("cpu").kv_bytes) << "the rest stays on the card";
  box.workers.kv_resident_tokens = 0;
  box.orchestrator.step_tokens = 1024;
  // 4 heads of 32 and 2 of keys: queries and sums, keys and values of 1024 rows.
  EXPECT_EQ(of("host", "cgo").scratch_bytes, 1024U * 4 * (2 * 4 * 32 + 2 * 2 * 32));
  box.orchestrator.tpot_target = std::chrono::milliseconds(80), box.orchestrator.overtaking = true;
  EXPECT_EQ(of("host", "cgo").scratch_bytes, 1024U * 4 * (2 * 4 * 32 + 2 * 2 * 32)) << "no step overtakes another";
}

TEST(HostBudget, KvWhoseHomeIsTheHostCountsThere) {
  const auto bytes_of = [](const std::string& home, int64_t tokens, const std::string& schedule = "auto",
                           const std::string& kv = "") {
    config::BoxConfig box;
    box.workers.device = "emulated:vram=1G,link=1GB/s" + kv;
    box.workers.kv_home = home, box.workers.kv_tokens = tokens, box.workers.schedule = schedule;
    box.orchestrator.step_tokens = 1024;
    const auto memory = worker_memory(box, test::source_dir() / "models/demo");
    EXPECT_TRUE(memory.is_ok()) << memory.status().message();
    return memory.is_ok() ? *memory : WorkerMemory{};
  };
  const WorkerMemory here = bytes_of("device", 8192), host = bytes_of("host", 8192);
  EXPECT_EQ(bytes_of("device", 8192, "auto", ",kv=counted").kv_bytes, 0u) << "it takes of the device's memory";
  EXPECT_EQ(bytes_of("host", 8192, "auto", ",kv=counted").kv_bytes, host.kv_bytes);
  EXPECT_EQ(bytes_of("host", 4 * 8192).kv_bytes, 4 * host.kv_bytes);
  EXPECT_EQ(host.device_bytes, here.device_bytes) << "with the KV that is in use";
  EXPECT_GT(host.scratch_bytes, here.scratch_bytes) << "logits of as many sequences as a step has tokens";
  EXPECT_EQ(bytes_of("device", 8192, "expert-pipeline").scratch_bytes, host.scratch_bytes);
  // 4 heads of 32 and 2 of keys: queries and sums, keys and values of 1024 rows.
  EXPECT_EQ(bytes_of("host", 8192, "cgo").scratch_bytes, host.scratch_bytes + 1024 * 4 * (2 * 4 * 32 + 2 * 2 * 32))
      << "what the host attends to";
}

/// What `up` chooses is counted before memory is divided.
TEST(HostBudget, BuffersOfLargerStepsCount) {
  const auto scratch = [](std::optional<int64_t> buffers, std::optional<int64_t> tokens) {
    config::BoxConfig box;
    box.workers.step_buffers = buffers, box.orchestrator.step_tokens = tokens;
    const auto memory = worker_memory(box, test::source_dir() / "models/demo");
    EXPECT_TRUE(memory.is_ok()) << memory.status().message();
    return memory.is_ok() ? memory->scratch_bytes : 0;
  };
  EXPECT_EQ(scratch(std::nullopt, std::nullopt), scratch(512, std::nullopt));
  EXPECT_GT(scratch(4096, std::nullopt), 3 * scratch(512, std::nullopt)) << "logits are of 256 rows";
  EXPECT_EQ(scratch(std::nullopt, 4096), scratch(4096, std::nullopt));
  EXPECT_EQ(scratch(1024, 4096), scratch(1024, std::nullopt)) << "steps are as large as buffers";
}

TEST(HostBudget, BuffersOfStepsThatOvertakeCountWhereThereAreSuch) {
  const auto scratch = [](std::chrono::milliseconds target, bool overtaking, const char* model = "models/demo",
                          const char* device = "cpu") {
    config::BoxConfig box;
    box.orchestrator.tpot_target = target, box.orchestrator.overtaking = overtaking;
    box.workers.device = device;
    const auto memory = worker_memory(box, test::source_dir() / model);
    EXPECT_TRUE(memory.is_ok()) << memory.status().message();
    return memory.is_ok() ? memory->scratch_bytes : 0;
  };
  const std::chrono::milliseconds none{0}, some{80};
  EXPECT_GT(scratch(some, true), scratch(none, true));
  EXPECT_LT(scratch(some, true), scratch(none, true) + scratch(none, true) / 2) << "128 tokens beside 512";
  EXPECT_EQ(scratch(some, false), scratch(none, true));
  EXPECT_EQ(scratch(some, true, "models/demo", "cuda,vram=1G"), 0u);
  const char* const states = "tests/fixtures/models/qwen3_next_hybrid";
  EXPECT_EQ(scratch(some, true, states), scratch(none, true, states)) << "its sequences have states";
  const char* const encoder = "tests/fixtures/models/nllb_moe_scaled";
  EXPECT_EQ(scratch(some, true, encoder), scratch(none, true, encoder)) << "its sources are computed whole";
}

TEST(HostBudget, StatesOfSequencesAreTheHostsAlsoWhereADeviceCountsTheKvCache) {
  const auto of = [](const std::string& device) {
    config::BoxConfig box;
    box.workers.device = device;
    const auto memory = worker_memory(box, test::source_dir() / "tests/fixtures/models/qwen3_next_hybrid");
    EXPECT_TRUE(memory.is_ok()) << memory.status().message();
    return memory.is_ok() ? *memory : WorkerMemory{};
  };
  const WorkerMemory cpu = of("cpu"), counted = of("emulated:vram=1G,link=1GB/s,kv=counted");
  EXPECT_GT(cpu.state_bytes, 0u);
  EXPECT_EQ(counted.state_bytes, cpu.state_bytes);
  EXPECT_EQ(counted.kv_bytes, 0u);
  EXPECT_EQ(cpu.total() - cpu.kv_bytes + (uint64_t{1} << 30), counted.total());
}

TEST(HostBudget, EveryModelHasWorkersOfItsOwn) {
  const config::BoxConfig box;
  const auto models = test::source_dir() / "models";
  const auto one = worker_memory(box, models / "demo");
  ASSERT_TRUE(one.is_ok()) << one.status().message();
  const std::vector<std::filesystem::path> two{models / "demo", models / "demo"},
      other{models / "demo", models / "no such pack"};
  EXPECT_EQ(workers_bytes(box, two), 2 * one->total()) << "not those of the largest alone";
  EXPECT_EQ(workers_bytes(box, other), one->total());
}

}  // namespace
}  // namespace moestro::box
