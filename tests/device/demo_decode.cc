#include "tests/device/demo_decode.h"

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/check.h"
#include "tests/support/places.h"

namespace moestro::device::testing {

engine::testing::Fixture demo_model() { return {"demo", test::source_dir() / "models/demo"}; }

uint64_t demo_expert_bytes() {
  const auto host = store::ResidentSource::open(engine::testing::packed(demo_model(), DType::kBF16, DType::kBF16));
  MOESTRO_CHECK(host.is_ok(), host.status().message());
  for (const store::Blob& b : (*host)->manifest().blobs)
    if (b.kind == store::BlobKind::kExpert) return b.length;
  return 0;
}

std::vector<std::vector<TokenId>> demo_prompts(size_t count) {
  std::ifstream file(demo_model().dir / "reference.json");
  const auto prompts = nlohmann::json::parse(file).at("prompts");
  std::vector<std::vector<TokenId>> all;
  for (size_t i = 0; i < count; ++i)
    all.push_back(prompts.at(i * prompts.size() / count).at("ids").get<std::vector<TokenId>>());
  return all;
}

Status decode(engine::testing::Bench& bench, uint64_t id, const std::vector<TokenId>& prompt, int tokens,
              Decoded& out) {
  std::vector<TokenId> next = prompt;
  for (int i = 0; i <= tokens; ++i) {
    bench.add(id, next).sample = true;
    const auto begin = std::chrono::steady_clock::now();
    MOESTRO_ASSIGN_OR_RETURN(const auto outcome, bench.run());
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    MOESTRO_RETURN_IF_ERROR(outcome.sequences[0].status);
    next = {outcome.sequences[0].sampled.at(0).id};
    if (i == 0 && prompt.size() > 1) continue;
    ++out.steps, out.time_s += took.count();
    out.hits += outcome.expert_hits, out.uses += outcome.expert_hits + outcome.expert_misses;
    out.stall_s += static_cast<double>(outcome.stall_us) * 1e-6;
  }
  bench.release(id);
  return Status::ok();
}

}  // namespace moestro::device::testing
