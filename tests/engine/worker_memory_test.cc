// What a worker has for itself alone, beside the arena that all share: its KV cache and workspace, and little more. The
// model's dense weights are several times that, so one copy of them would show.

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <sstream>

#include "kernels/ops.h"
#include "services/worker/engine/engine.h"
#include "store/client/store_client.h"
#include "store/pack/packer.h"
#include "tests/pack/synthetic_checkpoint.h"
#include "tests/store/child_process.h"

namespace moestro::engine {
namespace {

using moestro::testing::ChildProcess;

constexpr uint64_t kBesides = 24 << 20;  ///< libraries' data, threads, sockets, workspace of a narrow model
constexpr int64_t kPromptTokens = 32;

/// Of this process: memory that no other one shares. Pages of the arena are not among it, whoever has touched them.
uint64_t own_bytes() {
  std::ifstream in("/proc/self/smaps_rollup");
  uint64_t kib = 0;
  for (std::string line; std::getline(in, line);) {
    unsigned long n = 0;
    if (std::sscanf(line.c_str(), "Anonymous: %lu", &n) == 1 ||
        std::sscanf(line.c_str(), "Private_Hugetlb: %lu", &n) == 1)
      kib += n;
  }
  return kib << 10;
}

Status compute_prompt(Engine& engine) {
  StepPlan plan;
  plan.id = PlanId(1), plan.model = "m";
  PlanSequence& sequence = plan.sequences.emplace_back();
  sequence.id = SequenceId(1), sequence.blocks = {0, 1}, sequence.sample = true;
  for (int32_t i = 0; i < kPromptTokens; ++i) plan.tokens.push_back({0, i, i});
  StepOutcome out;
  MOESTRO_RETURN_IF_ERROR(engine.step(plan, out));
  return out.sequences.at(0).status;
}

/// A worker's life: attach, engine, a step. Then it says what it holds, and stays.
Status work(const std::string& endpoint) {
  MOESTRO_ASSIGN_OR_RETURN(const auto client, store::StoreClient::attach({.endpoint = endpoint, .model = "m"}));
  const auto ops =
      kernels::make_cpu_ops({.threads = 2, .deterministic = false, .isa = kernels::best_isa(), .cpus = {}});
  const SteadyClock clock;
  EngineOptions options{.model = "m", .kv_tokens = 256};
  MOESTRO_ASSIGN_OR_RETURN(const auto engine, Engine::create(options, *client, *ops, clock));
  MOESTRO_RETURN_IF_ERROR(compute_prompt(*engine));
  std::fprintf(stderr, "holds %llu %lld\n", static_cast<unsigned long long>(own_bytes()),
               static_cast<long long>(engine->kv_bytes()));
  while (true) ::pause();
}

class WorkerMemory : public ::testing::Test {
 protected:
  WorkerMemory() {
    testing::CheckpointOptions checkpoint{
        .architecture = "MixtralForCausalLM", .hidden = 256, .ffn = 128, .experts = 4, .vocab = 65536};
    checkpoint.value = [](const std::string& tensor, int64_t index) {  // hashing each of 34 million names takes a while
      return tensor.ends_with("norm.weight") ? 1.0F : static_cast<float>(index % 251 - 125) / 4096.0F;
    };
    testing::write_checkpoint(dir_ / "src", checkpoint);
    const auto packed = store::pack_checkpoint(dir_ / "src", dir_ / "pack", {}, {});
    EXPECT_TRUE(packed) << packed.status().message();
    const auto manifest = store::open_pack(dir_ / "pack");
    for (const store::Blob& blob : manifest->blobs)
      if (blob.kind == store::BlobKind::kDense) dense_bytes_ += blob.length;
  }
  std::string endpoint() const { return "ipc://" + (dir_ / "run" / "store.sock").string(); }
  std::unique_ptr<ChildProcess> start(std::vector<std::string> words, const char* log) {
    return std::make_unique<ChildProcess>(std::move(words), (dir_ / log).string());
  }
  testing::TemporaryDirectory dir_;
  uint64_t dense_bytes_ = 0;
};

TEST_F(WorkerMemory, DenseWeightsAreUsedWhereTheyLieInTheArena) {
  ASSERT_GT(dense_bytes_, 2 * kBesides) << "a copy would not show";
  const auto store = start({moestro::testing::program("moestro-store"), "--run-dir", (dir_ / "run").string(),
                            "--arena-dir", (dir_ / "arena").string(), "--model", "m=" + (dir_ / "pack").string()},
                           "store.log");
  ASSERT_TRUE(store->says("ready")) << store->output();
  std::vector<std::unique_ptr<ChildProcess>> workers;
  for (const char* log : {"first.log", "second.log", "third.log"}) {
    workers.push_back(start({"/proc/self/exe", "--work", endpoint()}, log));
    ASSERT_TRUE(workers.back()->says("holds ")) << workers.back()->output();
    std::istringstream words(workers.back()->output().substr(workers.back()->output().find("holds ") + 6));
    uint64_t held = 0, kv = 0;
    words >> held >> kv;
    EXPECT_GT(kv, 0u);
    EXPECT_GT(held, kv) << "the cache is this worker's own";
    EXPECT_LT(held, kv + kBesides) << "of " << dense_bytes_
                                   << " bytes of dense weights some are copied, or buffers have grown";
  }
}

}  // namespace
}  // namespace moestro::engine

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "--work") {
    std::fprintf(stderr, "%s\n", moestro::engine::work(argv[2]).message().c_str());
    return 1;
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
