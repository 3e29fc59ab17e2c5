#include "tests/engine/engine_bench.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "store/pack/packer.h"
#include "tests/support/places.h"

namespace moestro::engine::testing {

namespace fs = std::filesystem;

TempDir::TempDir() {
  static std::atomic<int> count{0};
  path_ = fs::temp_directory_path() / ("moestro-engine-" + std::to_string(::getpid()) + "-" + std::to_string(count++));
  fs::create_directories(path_);
}
TempDir::~TempDir() {
  std::error_code error;
  fs::remove_all(path_, error);
}

std::vector<Fixture> all_fixtures() {
  const fs::path models = test::source_dir() / "tests/fixtures/models";
  std::vector<Fixture> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(models, error))
    if (fs::exists(entry.path() / "reference.json")) found.push_back({entry.path().filename().string(), entry.path()});
  std::sort(found.begin(), found.end(), [](const Fixture& a, const Fixture& b) { return a.name < b.name; });
  return found;
}

std::vector<Fixture> fixtures() {
  std::vector<Fixture> found = all_fixtures();
  std::erase_if(found, &Fixture::has_encoder);
  return found;
}

std::vector<Fixture> native_fixtures() {
  std::vector<Fixture> found;
  std::error_code error;
  for (const char* kind : {"gguf", "quantised"})
    for (const auto& entry : fs::directory_iterator(test::source_dir() / "tests/fixtures" / kind, error))
      found.push_back({entry.path().filename().string(), entry.path()});
  std::ranges::sort(found, {}, &Fixture::name);
  return found;
}

std::vector<Fixture> one_of_each_architecture() {
  std::vector<Fixture> found = fixtures();
  std::set<std::string> seen;
  std::erase_if(found, [&](const Fixture& fixture) {
    std::ifstream file(fixture.dir / "config.json");
    return !seen.insert(nlohmann::json::parse(file).at("architectures").at(0).get<std::string>()).second;
  });
  return found;
}

bool Fixture::has_states() const { return name.starts_with("qwen3_next") || name.starts_with("qwen3_5"); }

bool Fixture::has_encoder() const { return name.starts_with("switch_transformers") || name.starts_with("nllb_moe"); }

bool Fixture::has_latents() const {
  std::ifstream file(dir / "config.json");
  return nlohmann::json::parse(file).contains("kv_lora_rank");
}

const Fixture& any_fixture() {
  static const std::vector<Fixture> all = fixtures();
  static const auto found = std::ranges::find(all, "dots1_bias", &Fixture::name);
  MOESTRO_CHECK(found != all.end(), "no dots1_bias in tests/fixtures/models of " + test::source_dir().string());
  return *found;
}

std::vector<Reference> Fixture::prompts(const std::string& dtype) const {
  std::ifstream file(dir / "reference.json");
  const auto json = nlohmann::json::parse(file);
  std::vector<Reference> out;
  for (const auto& p : json.at(dtype).at("prompts"))
    out.push_back({p.at("ids").get<std::vector<TokenId>>(), p.at("logprobs").get<std::vector<double>>(),
                   p.at("greedy").get<std::vector<TokenId>>(), p.at("greedy_logprobs").get<std::vector<double>>()});
  return out;
}

const fs::path& packed(const Fixture& fixture, DType experts, DType dense, std::optional<DType> low) {
  static TempDir root;
  static std::map<std::string, fs::path> packs;
  const std::string key = fixture.name + "-" + std::string(dtype_name(experts)) + "-" + std::string(dtype_name(dense)) +
                          (low ? "-" + std::string(dtype_name(*low)) : "");
  const auto [it, fresh] = packs.try_emplace(key, root.path() / key);
  if (fresh) {
    store::PackOptions options;
    if (experts != DType::kMixed) options.experts = {experts};
    if (low) options.experts.push_back(*low);
    if (dense != DType::kMixed) options.dense = dense;
    const auto summary = store::pack_checkpoint(fixture.dir, it->second, options, {});
    MOESTRO_CHECK(summary.is_ok(), summary.status().message());
  }
  return it->second;
}

Bench::Bench(const Fixture& fixture, BenchOptions options, const Wrap& wrap) : micro_batch_(options.micro_batch) {
  ops_ = options.make_ops
             ? options.make_ops()
             : kernels::make_cpu_ops(
                   {.threads = options.threads, .deterministic = options.deterministic, .isa = kernels::best_isa()});
  auto resident = store::ResidentSource::open(packed(
      fixture, options.experts, options.dense,
      options.engine.mixed ? std::optional(options.engine.mixed->low) : std::nullopt));
  MOESTRO_CHECK(resident.is_ok(), resident.status().message());
  source_ = std::move(*resident);
  if (wrap) source_ = wrap(std::move(source_));
  auto engine =
      Engine::create(options.engine, *source_,
                     options.make_backend ? options.make_backend(*ops_, *source_) : cpu_backend(*ops_),
                     options.clock != nullptr ? *options.clock : clock_);
  MOESTRO_CHECK(engine.is_ok(), engine.status().message());
  engine_ = std::move(*engine);
  plan_.model = running_.model = options.engine.model;
  for (int64_t b = engine_->limits().kv_blocks; b-- > 0;) free_.push_back(static_cast<uint32_t>(b));
  for (int64_t s = engine_->limits().state_slots; s-- > 0;) free_states_.push_back(static_cast<uint32_t>(s));
}

std::vector<TokenId> source_of(const std::vector<TokenId>& target) {
  constexpr TokenId kVocab = 128;
  const TokenId first = target.front();
  std::vector<TokenId> source;
  for (TokenId i = 0; i < 1 + 7 * first % 40; ++i)
    source.push_back(3 + (31 * first + 17 * i * i + 5 * i) % (kVocab - 3));
  return source;
}

void Bench::encode(uint64_t id, const std::vector<TokenId>& source) {
  StepPlan plan;
  plan.id = PlanId(next_plan_++);
  plan.model = plan_.model;
  PlanSequence& s = plan.sequences.emplace_back();
  s.id = SequenceId(id), s.source = true;
  for (size_t i = 0; i < source.size(); ++i) plan.tokens.push_back({0, static_cast<int32_t>(i), source[i]});
  while (s.memory.size() * kernels::kKvBlockTokens < source.size()) {
    MOESTRO_CHECK(!free_.empty(), "the test's KV cache is large enough");
    s.memory.push_back(free_.back());
    free_.pop_back();
  }
  memories_[id] = s.memory;
  StepOutcome out;
  const Status status = engine_->step(plan, out);
  MOESTRO_CHECK(status.is_ok(), status.message());
  MOESTRO_CHECK(out.sequences.front().status.is_ok(), out.sequences.front().status.message());
}

PlanSequence& Bench::add(uint64_t id, const std::vector<TokenId>& tokens) {
  if (engine_->limits().encoder_decoder && !lengths_.contains(id)) encode(id, source_of(tokens));
  const auto index = static_cast<uint32_t>(plan_.sequences.size());
  PlanSequence& s = plan_.sequences.emplace_back();
  s.id = SequenceId(id);
  int64_t& length = lengths_[id];
  const int64_t before = length;
  for (const TokenId t : tokens) plan_.tokens.push_back({index, static_cast<int32_t>(length++), t});
  auto& table = blocks_[id];
  s.blocks_first = static_cast<uint32_t>(table.size());
  while (static_cast<int64_t>(table.size()) * kernels::kKvBlockTokens < length) {
    MOESTRO_CHECK(!free_.empty(), "the test's KV cache is large enough");
    table.push_back(free_.back());
    s.blocks.push_back(free_.back());
    free_.pop_back();
  }
  if (moved_.erase(id) > 0) s.blocks_first = 0, s.blocks = table;
  add_states(id, before, length, s);
  return s;
}

/// Its own slot, and one for the state after each block, as long as there is room.
void Bench::add_states(uint64_t id, int64_t first, int64_t end, PlanSequence& s) {
  constexpr size_t kLeft = 40;  // for sequences that are to come
  if (engine_->limits().state_slots == 0) return;
  const auto take = [this] {
    MOESTRO_CHECK(!free_states_.empty(), "the test's engine has a state slot left");
    const uint32_t slot = free_states_.back();
    free_states_.pop_back();
    return slot;
  };
  if (!states_.contains(id)) s.state = states_[id] = take();
  else s.state = states_[id];
  for (int64_t block = first / kernels::kKvBlockTokens + 1; block * kernels::kKvBlockTokens <= end; ++block)
    if (free_states_.size() > kLeft)
      s.states.push_back({block * kernels::kKvBlockTokens, kept_states_[id][block] = take()});
  s.states.push_back({end, states_[id]});
}

PlanSequence& Bench::add_behind(uint64_t other, size_t blocks, uint64_t id, const std::vector<TokenId>& tokens) {
  const auto& table = blocks_[other];
  MOESTRO_CHECK(!blocks_.contains(id) && blocks <= table.size(), "a new sequence behind blocks that are there");
  blocks_[id].assign(table.begin(), table.begin() + static_cast<std::ptrdiff_t>(blocks));
  lengths_[id] = static_cast<int64_t>(blocks) * kernels::kKvBlockTokens;
  PlanSequence& s = add(id, tokens);
  s.blocks_first = 0;
  s.blocks = blocks_[id];
  if (engine_->limits().state_slots == 0) return s;
  const auto block = static_cast<int64_t>(blocks);
  auto& from = kept_states_[other].contains(block) ? kept_states_ : states_behind_;
  s.state = from[other].contains(block) ? from[other][block] : states_.at(other);
  states_behind_[id][block] = s.state;
  return s;
}

Status Bench::run(StepOutcome& out) {
  plan_.id = PlanId(next_plan_++);
  const bool goes_on = std::any_of(plan_.tokens.begin(), plan_.tokens.end(),
                                   [](const PlanToken& t) { return t.id == kSampledByParent; });
  plan_.parent = goes_on ? last_plan_ : PlanId(0);
  last_plan_ = plan_.id;
  if (plan_.micro_batches.empty() && micro_batch_ > 0)
    for (uint32_t i = 0; i < plan_.sequences.size(); i += micro_batch_) plan_.micro_batches.push_back(i);
  running_.model = plan_.model;
  std::swap(plan_, running_);
  const Status status = engine_->step(running_, out);
  device_work_.host_experts += out.device.host_experts, device_work_.host_rows += out.device.host_rows,
      device_work_.rewinds += out.device.rewinds;
  running_.sequences.clear();
  running_.tokens.clear();
  running_.micro_batches.clear();
  running_.released.clear();
  running_.kv_copies.clear();
  return status;
}

Status Bench::overtake(StepOutcome& out) {
  StepPlan plan = std::exchange(plan_, StepPlan());
  plan_.model = plan.model;
  plan.id = PlanId(next_plan_++);
  return engine_->overtake(plan, out);
}

Result<StepOutcome> Bench::run() {
  StepOutcome out;
  MOESTRO_RETURN_IF_ERROR(run(out));
  return out;
}

void Bench::leave_behind(uint64_t id, size_t count) {
  for (size_t& left = left_[id]; left < count; ++left) free_.push_back(blocks_[id].at(left));
}

void Bench::move_out(uint64_t id, size_t entry, uint32_t host_block) {
  const uint32_t block = blocks_.at(id).at(entry);
  plan_.kv_copies.push_back({block, static_cast<uint32_t>(engine_->limits().kv_blocks) + host_block});
  free_.push_back(block);
}

void Bench::bring_back(uint64_t id, size_t entry, uint32_t host_block, uint64_t any) {
  std::swap(free_.at(any % free_.size()), free_.back());
  plan_.kv_copies.push_back({static_cast<uint32_t>(engine_->limits().kv_blocks) + host_block, free_.back()});
  blocks_.at(id).at(entry) = free_.back();
  free_.pop_back();
  moved_.insert(id);
}

void Bench::release(uint64_t id) {
  const auto& table = blocks_[id];
  free_.insert(free_.end(), table.rbegin(), table.rend() - static_cast<std::ptrdiff_t>(left_[id]));
  if (const auto memory = memories_.extract(id); !memory.empty())
    free_.insert(free_.end(), memory.mapped().rbegin(), memory.mapped().rend());
  blocks_.erase(id);
  left_.erase(id);
  lengths_.erase(id);
  if (states_.contains(id)) free_states_.push_back(states_.extract(id).mapped());
  for (const auto& [block, slot] : kept_states_[id]) free_states_.push_back(slot);
  kept_states_.erase(id);
  states_behind_.erase(id);
  plan_.released.push_back({SequenceId(id), INT64_MAX});
}

std::vector<std::vector<float>> Bench::score(const std::vector<std::vector<TokenId>>& prompts, size_t chunk) {
  std::vector<std::vector<float>> out(prompts.size());
  const uint64_t base = next_sequence_;
  next_sequence_ += prompts.size();
  for (size_t first = 0;; first += chunk) {
    std::vector<size_t> running;
    for (size_t i = 0; i < prompts.size(); ++i) {
      if (first >= prompts[i].size()) continue;
      const size_t last = std::min(first + chunk, prompts[i].size());
      PlanSequence& s = add(base + i, {prompts[i].begin() + static_cast<std::ptrdiff_t>(first),
                                       prompts[i].begin() + static_cast<std::ptrdiff_t>(last)});
      for (size_t p = first; p < last; ++p)
        s.score_targets.push_back(p + 1 < prompts[i].size() ? prompts[i][p + 1] : -1);
      running.push_back(i);
    }
    if (running.empty()) break;
    const auto outcome = run();
    MOESTRO_CHECK(outcome.is_ok(), outcome.status().message());
    for (size_t k = 0; k < running.size(); ++k) {
      const SequenceOutcome& s = outcome->sequences[k];
      MOESTRO_CHECK(s.status.is_ok(), s.status.message());
      for (size_t p = 0; p < s.scores.size(); ++p)
        if (first + p + 1 < prompts[running[k]].size()) out[running[k]].push_back(s.scores[p].logprob);
    }
  }
  for (size_t i = 0; i < prompts.size(); ++i) release(base + i);
  return out;
}

std::vector<double> Bench::sum_states(const std::vector<TokenId>& ids, int64_t from, size_t chunk,
                                      const std::vector<std::vector<TokenId>>& beside) {
  std::vector<double> sum;
  const uint64_t base = next_sequence_;
  next_sequence_ += 1 + beside.size();
  const auto part = [chunk](const std::vector<TokenId>& all, size_t first) {
    return std::vector<TokenId>(all.begin() + static_cast<std::ptrdiff_t>(first),
                                all.begin() + static_cast<std::ptrdiff_t>(std::min(first + chunk, all.size())));
  };
  for (size_t first = 0; first < ids.size(); first += chunk) {
    for (size_t i = 0; i < beside.size(); ++i)
      if (first < beside[i].size()) add(base + 1 + i, part(beside[i], first)).sample = true;
    const size_t index = plan_.sequences.size();
    const bool wanted = static_cast<int64_t>(std::min(first + chunk, ids.size())) > from;
    add(base, part(ids, first)).state_sum_from = wanted ? std::max(from, static_cast<int64_t>(first)) : -1;
    const auto outcome = run();
    MOESTRO_CHECK(outcome.is_ok(), outcome.status().message());
    const SequenceOutcome& s = outcome->sequences[index];
    MOESTRO_CHECK(s.status.is_ok(), s.status.message());
    MOESTRO_CHECK(s.state_sum.empty() == !wanted, "a sum where one is wanted");
    sum.resize(std::max(sum.size(), s.state_sum.size()));
    for (size_t i = 0; i < s.state_sum.size(); ++i) sum[i] += s.state_sum[i];
  }
  for (size_t i = 0; i <= beside.size(); ++i) release(base + i);
  return sum;
}

std::vector<TokenId> Bench::greedy(const std::vector<TokenId>& prompt, int count, std::vector<double>* logprobs) {
  const uint64_t id = next_sequence_++;
  std::vector<TokenId> out, next = prompt;
  for (int i = 0; i < count; ++i) {
    PlanSequence& s = add(id, next);
    s.sample = true;
    if (logprobs != nullptr) s.sampling.logprobs = 0;
    const auto outcome = run();
    MOESTRO_CHECK(outcome.is_ok() && outcome->sequences[0].status.is_ok(), "greedy decoding");
    out.push_back(outcome->sequences[0].sampled.at(0).id);
    if (logprobs != nullptr) logprobs->push_back(outcome->sequences[0].sampled.at(0).score.logprob);
    next = {out.back()};
  }
  release(id);
  return out;
}

}  // namespace moestro::engine::testing
