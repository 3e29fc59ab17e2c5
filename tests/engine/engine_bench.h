#pragma once
// What the engine tests share: a packed fixture, an engine over it, and a small scheduler that gives out KV blocks.

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "kernels/ops.h"
#include "services/worker/engine/engine.h"
#include "services/worker/engine/pass.h"
#include "store/resident_source.h"

namespace moestro::engine::testing {

/// A directory that is gone at the end.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

struct Reference {
  std::vector<TokenId> ids;
  std::vector<double> logprobs;  ///< of ids[1:]
  std::vector<TokenId> greedy;   ///< after ids
  std::vector<double> greedy_logprobs;
};

/// The source of a target in the fixtures of encoder-decoder models (scripts/python/encoder_decoder_fixtures.py).
std::vector<TokenId> source_of(const std::vector<TokenId>& target);

struct Fixture {
  std::string name;
  std::filesystem::path dir;
  std::vector<Reference> prompts(const std::string& dtype) const;
  bool has_states() const;   ///< states of sequences, which --kv-window does not have
  bool has_encoder() const;  ///< an encoder-decoder model, which has no such window either
  bool has_latents() const;  ///< latent attention, which --kv-window does not have
};
/// The models of tests/fixtures/models.
std::vector<Fixture> all_fixtures();
/// Those without an encoder: every schedule and device runs them, and sequences share blocks.
std::vector<Fixture> fixtures();
/// Those of tests/fixtures/gguf and quantised: with weights of blocks.
std::vector<Fixture> native_fixtures();
/// The first of each architecture of fixtures(): for tests of what its other options have no part in.
std::vector<Fixture> one_of_each_architecture();
/// Of every fixture, packed once per process: experts and dense weights at these precisions; kMixed: their own. `low`:
/// of experts too.
const std::filesystem::path& packed(const Fixture& fixture, DType experts, DType dense,
                                    std::optional<DType> low = std::nullopt);
/// One that runs on every device, for tests that need any model.
const Fixture& any_fixture();

struct BenchOptions {
  DType experts = DType::kF32, dense = DType::kF32;
  bool deterministic = true;
  int threads = 1;
  EngineOptions engine = {.model = "m", .kv_tokens = 4096, .poison_kv = true};
  /// Null: the CPU's, as the above says.
  std::unique_ptr<kernels::Ops> (*make_ops)() = nullptr;
  /// Null: the CPU's, over the operations. `source`: what the engine leases from.
  std::function<Backend(kernels::Ops& ops, store::BlobSource& source)> make_backend = {};
  const Clock* clock = nullptr;  ///< null: the machine's
  uint32_t micro_batch = 0;      ///< sequences of a micro-batch, where a plan does not say; 0: all
};

/// An engine with its own source and operations; `wrap` may put a test double around the source.
class Bench {
 public:
  using Wrap = std::function<std::unique_ptr<store::BlobSource>(std::unique_ptr<store::BlobSource>)>;
  Bench(const Fixture& fixture, BenchOptions options = {}, const Wrap& wrap = {});

  Engine& engine() { return *engine_; }
  store::BlobSource& source() { return *source_; }

  /// Adds tokens of sequence `id` at its next positions to the plan under construction. Of an encoder-decoder model,
  /// the source of a new sequence, source_of(tokens), is encoded at once.
  PlanSequence& add(uint64_t id, const std::vector<TokenId>& tokens);
  /// The same for a new sequence that begins with the first `blocks` KV blocks of another.
  PlanSequence& add_behind(uint64_t other, size_t blocks, uint64_t id, const std::vector<TokenId>& tokens);
  /// Runs the plan under construction.
  Result<StepOutcome> run();
  Status run(StepOutcome& out);
  /// The same while the step at hand has parked, from a break.
  Status overtake(StepOutcome& out);
  /// Of all steps so far.
  const DeviceWork& device_work() const { return device_work_; }
  StepPlan& plan() { return plan_; }
  const std::vector<uint32_t>& table(uint64_t id) { return blocks_[id]; }
  /// The first `count` blocks of a sequence, which it does not see any more, may be written by any.
  void leave_behind(uint64_t id, size_t count);
  /// An entry of the sequence's block table goes to a block in host memory, or comes from there to a block of the cache
  /// that is free (which, `any` says): copies of the plan under construction.
  void move_out(uint64_t id, size_t entry, uint32_t host_block);
  void bring_back(uint64_t id, size_t entry, uint32_t host_block, uint64_t any);
  void release(uint64_t id);

  /// Log-probabilities of ids[1:], prompts in chunks of `chunk` tokens, all sequences in one batch. One list per
  /// prompt.
  std::vector<std::vector<float>> score(const std::vector<std::vector<TokenId>>& prompts, size_t chunk);
  /// The sum of a text's final hidden states from position `from` on, in chunks of `chunk` tokens; `beside` are other
  /// texts, computed in the same steps.
  std::vector<double> sum_states(const std::vector<TokenId>& ids, int64_t from, size_t chunk,
                                 const std::vector<std::vector<TokenId>>& beside = {});
  /// The likeliest token, `count` times; their log-probabilities as the sampler reports them go to `logprobs`.
  std::vector<TokenId> greedy(const std::vector<TokenId>& prompt, int count, std::vector<double>* logprobs = nullptr);

 private:
  std::unique_ptr<kernels::Ops> ops_;
  SteadyClock clock_;
  std::unique_ptr<store::BlobSource> source_;
  std::unique_ptr<Engine> engine_;
  StepPlan plan_, running_;
  PlanId last_plan_;  ///< by run()
  DeviceWork device_work_;
  const uint32_t micro_batch_;
  void encode(uint64_t id, const std::vector<TokenId>& source);
  void add_states(uint64_t id, int64_t first, int64_t end, PlanSequence& s);
  uint64_t next_plan_ = 1;
  uint64_t next_sequence_ = 1000;
  std::map<uint64_t, int64_t> lengths_;
  std::map<uint64_t, std::vector<uint32_t>> blocks_;
  std::map<uint64_t, std::vector<uint32_t>> memories_;  ///< blocks of each sequence's source
  std::map<uint64_t, size_t> left_;  ///< leading blocks of a sequence that are not its own any more
  std::vector<uint32_t> free_;
  std::vector<uint32_t> free_states_;
  std::map<uint64_t, uint32_t> states_;                          ///< a sequence's own slot
  std::map<uint64_t, std::map<int64_t, uint32_t>> kept_states_;  ///< of a sequence, after so many of its blocks
  std::map<uint64_t, std::map<int64_t, uint32_t>> states_behind_;  ///< the same, kept by the one that it began behind
  std::set<uint64_t> moved_;             ///< sequences whose table is to be sent anew
};

}  // namespace moestro::engine::testing
