// Reading experts ahead from the drive, on the CPU: the demo model decodes with a store whose memory holds a part of
// its experts and whose drive is slow, one request after another. Stall and bytes per token: on demand, foreseen,
// foreseen without error, foreseen on a virtual clock, and by one who knows the future (common/tier/clairvoyant).
//
//   moestro_ahead_bench [--resident 25,50] [--reads 0.5,1,2] [--judged 8] [--tokens 16] [--rounds 2] [--delay 1]
//
// A read takes --delay milliseconds and what the machine adds, which is measured; an expert and a layer's attention
// take that divided by --reads, so a large model's proportions hold for a small one. The predictor has learned from
// other requests, like that of a server that has run for long: those of models/demo/routes, and some that are computed
// here. Their counts are its history, as from the orchestrator. Of each request the round with the least stall counts:
// what other programs do to a time is not measured. Prints a JSON list; scripts/bench_ahead makes a table of it.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "common/activation/history.h"
#include "common/check.h"
#include "common/policy/make_policy.h"
#include "common/prediction/make_predictor.h"
#include "common/tier/clairvoyant.h"
#include "services/command_line/command_line.h"
#include "services/worker/device/host_outlook.h"
#include "store/client/status_client.h"
#include "store/client/store_client.h"
#include "store/replay/virtual_store.h"
#include "tests/device/demo_steps.h"
#include "tests/device/route_recorder.h"
#include "tests/store/child_process.h"

namespace moestro::device::testing {
namespace {

using engine::testing::Bench;
using std::chrono::milliseconds;

constexpr size_t kLearned = 10;  ///< requests that are computed for the predictor to learn from, after the recorded
constexpr int kLearnedTokens = 96;  ///< that each of them decodes
constexpr size_t kWarm = 2;      ///< more, which are computed before those that are judged
constexpr size_t kTimedReads = 24;
constexpr double kInstantly = 1e15;  ///< bytes/s: a read is its latency
constexpr milliseconds kPatience{10000};

struct Options {
  std::vector<int64_t> resident = {25, 50};  ///< percent of the experts
  std::vector<double> reads = {0.5, 1, 2};
  int judged = 8;  ///< requests
  int tokens = 16, rounds = 2, delay_ms = 1;
};

struct Method {
  const char* name;
  const char* policy;     ///< of the store; null: its default
  const char* predictor;  ///< "perfect": without error; "none"
};
constexpr Method kMethods[] = {{"on demand, lru", "lru", "none"},
                               {"on demand, default policy", nullptr, "none"},
                               {"foreseen", nullptr, "auto"},
                               {"foreseen without error", nullptr, "perfect"}};

/// Of one request.
struct Measured {
  Decoded decoded;
  uint64_t bytes = 0;
};

/// The better round of each request.
void keep_least(std::vector<Measured>& best, const std::vector<Measured>& more) {
  if (best.empty()) best = more;
  for (size_t i = 0; i < best.size(); ++i)
    if (more[i].decoded.stall_s < best[i].decoded.stall_s) best[i] = more[i];
}

nlohmann::ordered_json row_of(int64_t percent, double reads, const std::string& method, double tokens, double stall_s,
                              double time_s, double bytes) {
  return {{"resident_percent", percent},
          {"read_per_expert", reads},
          {"method", method},
          {"stall_ms_per_token", 1e3 * stall_s / tokens},
          {"time_ms_per_token", 1e3 * time_s / tokens},
          {"bytes_per_token", bytes / tokens}};
}

class AheadBench {
 public:
  explicit AheadBench(const Options& options)
      : options_(options),
        pack_(engine::testing::packed(demo_model(), DType::kBF16, DType::kBF16)),
        prompts_(demo_prompts(kLearned + kWarm + static_cast<size_t>(options.judged))) {
    const auto manifest = store::open_pack(pack_);
    MOESTRO_CHECK(manifest.is_ok(), manifest.status().message());
    for (const store::Blob& blob : manifest->blobs) {
      if (blob.kind == store::BlobKind::kDense) dense_bytes_ += blob.length;
      else expert_bytes_ = blob.length, ++experts_;
    }
    record();
    add_recorded();
  }

  void run(nlohmann::ordered_json& rows) {
    for (const int64_t percent : options_.resident)
      for (const double reads : options_.reads) one_setting(percent, reads, rows);
    for (auto& row : rows) row["learned"] = learned().size();
  }

 private:
  /// The routes of all requests. The engine is deterministic, so every measurement has the same.
  void record() {
    Bench bench(demo_model(), demo_engine(Nanos{0}, true));
    const auto& spec = bench.engine().spec();
    routes_.layers = static_cast<int32_t>(spec.moe_layers());
    routes_.experts = static_cast<int32_t>(spec.moe().experts);
    routes_.top_k = static_cast<int32_t>(spec.moe().top_k);
    bench.engine().set_route_observer([this](const engine::RoutedTokens& tokens) {
      device::testing::record(tokens, routes_);
    });
    Decoded ignored;
    for (size_t r = 0; r < prompts_.size(); ++r) {
      const Status status = decode(bench, r + 1, prompts_[r], r < kLearned ? kLearnedTokens : options_.tokens, ignored);
      MOESTRO_CHECK(status.is_ok(), status.message());
    }
  }

  /// Other requests to the same model, behind those that are computed here.
  void add_recorded() {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(demo_model().dir / "routes"))
      files.push_back(entry.path());
    std::ranges::sort(files);
    for (const auto& file : files) {
      const auto recorded = tier::read_routes(file);
      MOESTRO_CHECK(recorded.is_ok(), recorded.status().message());
      const Status added = tier::append_routes(routes_, *recorded);
      MOESTRO_CHECK(added.is_ok(), file.string() + ": " + added.message());
    }
  }

  std::unique_ptr<moestro::testing::ChildProcess> start_store(int64_t percent, const char* policy) {
    home_ = std::make_unique<engine::testing::TempDir>();
    const uint64_t slots = experts_ * static_cast<uint64_t>(percent) / 100;
    std::vector<std::string> words{moestro::testing::program("moestro-store"),
                                   "--run-dir", (home_->path() / "run").string(),
                                   "--arena-dir", (home_->path() / "arena").string(),
                                   "--dram", std::to_string(dense_bytes_ + slots * expert_bytes_),
                                   "--model", "m=" + pack_.string(),
                                   "--warm-start", "off", "--read-depth", "1",
                                   "--inject-read-faults", "delay=" + std::to_string(options_.delay_ms)};
    if (policy != nullptr) words.insert(words.end(), {"--policy", policy});
    auto store = std::make_unique<moestro::testing::ChildProcess>(words, (home_->path() / "store.log").string());
    MOESTRO_CHECK(store->says("ready"), store->output());
    return store;
  }
  std::string endpoint() const { return "ipc://" + (home_->path() / "run" / "store.sock").string(); }
  std::unique_ptr<store::StoreClient> attach() const {
    auto client = store::StoreClient::attach({.endpoint = endpoint(), .model = "m"});
    MOESTRO_CHECK(client.is_ok(), client.status().message());
    return std::move(*client);
  }
  uint64_t bytes_read() const {
    const auto status = store::query_store(endpoint(), kPatience);
    MOESTRO_CHECK(status.is_ok(), status.status().message());
    return status->bytes_read;
  }

  /// From the request for an expert to its arrival: of some, one at a time, what a quarter do not exceed.
  Nanos time_of_read(int64_t percent) {
    const auto store = start_store(percent, nullptr);
    const auto client = attach();
    std::vector<double> took;
    const SteadyClock clock;
    for (uint32_t blob = 0; blob < client->manifest().blobs.size() && took.size() < kTimedReads; ++blob) {
      if (client->manifest().blobs[blob].kind == store::BlobKind::kDense) continue;
      const Nanos begin = clock.now();
      MOESTRO_CHECK(client->fetch({&blob, 1}, {}).is_ok(), "the store is there");
      const auto arrived = client->next_arrival(kPatience);
      MOESTRO_CHECK(arrived.is_ok(), arrived.status().message());
      took.push_back(static_cast<double>((clock.now() - begin).count()));
    }
    std::ranges::sort(took);
    return Nanos(static_cast<int64_t>(took[took.size() / 4]));
  }

  std::vector<size_t> live() const {
    std::vector<size_t> requests;
    for (size_t r = kLearned; r < prompts_.size(); ++r) requests.push_back(r);
    return requests;
  }

  /// The recorded requests, then those that were computed here.
  std::vector<size_t> learned() const {
    std::vector<size_t> requests;
    for (size_t r = prompts_.size(); r < routes_.requests.size(); ++r) requests.push_back(r);
    for (size_t r = 0; r < kLearned; ++r) requests.push_back(r);
    return requests;
  }

  std::unique_ptr<prediction::Predictor> predictor(const std::string& name, activation::ActivationHistory& history) {
    if (name == "none") return nullptr;
    if (name == "perfect") return tier::make_perfect_predictor(routes_, live(), {});
    auto made = prediction::make_predictor(
        name, {.shape = {.layers = routes_.layers, .experts = routes_.experts, .top_k = routes_.top_k},
               .history = &history.view()});
    MOESTRO_CHECK(made.is_ok(), made.status().message());
    tier::train(routes_, learned(), {made->get(), [&](size_t request) { history.add(counts_of(request)); }});
    return std::move(*made);
  }

  activation::RequestCounts counts_of(size_t request) const {
    activation::RequestCounts counts({routes_.layers, routes_.experts, routes_.top_k});
    for (const tier::RoutedToken& token : routes_.requests[request].tokens)
      for (int32_t layer = 0; layer < routes_.layers; ++layer)
        for (const uint16_t expert : routes_.chosen(token, layer))
          (token.decode ? counts.answer : counts.prompt)
              .add(MoeLayerId(static_cast<uint32_t>(layer)), ExpertId(expert), 1);
    return counts;
  }

  std::vector<Measured> measure(int64_t percent, Nanos expert, const Method& method) {
    const auto store = start_store(percent, method.policy);
    Bench bench(demo_model(), demo_engine(expert, true),
                [this](std::unique_ptr<store::BlobSource>) { return attach(); });
    activation::ActivationHistory history({routes_.layers, routes_.experts, routes_.top_k}, 1000);
    const SteadyClock clock;
    std::unique_ptr<HostOutlook> outlook;
    std::unique_ptr<Foresight> foresight;
    if (auto made = predictor(method.predictor, history)) {
      auto host = HostOutlook::create(bench.source(), DType::kBF16, nullptr, clock);
      MOESTRO_CHECK(host.is_ok(), host.status().message());
      outlook = std::move(*host);
      foresight = std::make_unique<Foresight>(*outlook, std::move(made), routes_.top_k);
      bench.engine().set_expert_watch(foresight.get());
    }
    std::vector<Measured> judged;
    for (const size_t request : live())
      if (const Measured one = decode_one(bench, request); request >= kLearned + kWarm) judged.push_back(one);
    bench.engine().set_expert_watch(nullptr);
    return judged;
  }

  Measured decode_one(Bench& bench, size_t request) {
    Measured sum;
    std::vector<TokenId> next = prompts_[request];
    uint64_t before = 0;
    for (int i = 0; i <= options_.tokens; ++i) {
      bench.add(request + 1, next).sample = true;
      const auto begin = std::chrono::steady_clock::now();
      const auto outcome = bench.run();
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      MOESTRO_CHECK(outcome.is_ok() && outcome->sequences[0].status.is_ok(), "a step of the demo model");
      next = {outcome->sequences[0].sampled.at(0).id};
      if (i == 0) {  // the prompt's
        before = bytes_read();
        continue;
      }
      ++sum.decoded.steps, sum.decoded.time_s += took.count();
      sum.decoded.stall_s += static_cast<double>(outcome->stall_us) * 1e-6;
      sum.decoded.hits += outcome->expert_hits;
      sum.decoded.uses += outcome->expert_hits + outcome->expert_misses;
    }
    sum.bytes = bytes_read() - before;
    bench.release(request + 1);
    return sum;
  }

  void one_setting(int64_t percent, double reads, nlohmann::ordered_json& rows) {
    const Nanos read = time_of_read(percent);
    const Nanos expert(static_cast<int64_t>(static_cast<double>(read.count()) / reads));
    std::vector<Measured> best[std::size(kMethods)];
    for (int round = 0; round < options_.rounds; ++round)
      for (size_t m = 0; m < std::size(kMethods); ++m) {
        std::fprintf(stderr, "%d %% resident, a read costs %g experts (%.2f ms), %s, round %d\n",
                     static_cast<int>(percent), reads, static_cast<double>(read.count()) * 1e-6, kMethods[m].name,
                     round + 1);
        keep_least(best[m], measure(percent, expert, kMethods[m]));
      }
    for (size_t m = 0; m < std::size(kMethods); ++m) {
      Measured sum;
      for (const Measured& one : best[m]) {
        sum.decoded.steps += one.decoded.steps, sum.decoded.time_s += one.decoded.time_s;
        sum.decoded.stall_s += one.decoded.stall_s, sum.bytes += one.bytes;
        sum.decoded.hits += one.decoded.hits, sum.decoded.uses += one.decoded.uses;
      }
      auto row = row_of(percent, reads, kMethods[m].name, static_cast<double>(sum.decoded.steps), sum.decoded.stall_s,
                        sum.decoded.time_s, static_cast<double>(sum.bytes));
      row["hit_rate"] = sum.decoded.hit_percent() / 100;
      row["read_ms"] = static_cast<double>(read.count()) * 1e-6;
      rows.push_back(std::move(row));
    }
    rows.push_back(replayed(percent, reads, read, expert));
    rows.push_back(clairvoyant(percent, reads, read, expert));
  }

  tier::ReplaySetup setup_of(int64_t percent, Nanos read, Nanos expert) const {
    return {.slots = static_cast<int32_t>(experts_ * static_cast<uint64_t>(percent) / 100),
            .expert_bytes = expert_bytes_,
            .times = {.attention = expert, .expert = expert, .link_latency = read},
            .chunk = INT32_MAX,
            .warm = kWarm};
  }
  nlohmann::ordered_json row_of_replay(int64_t percent, double reads, const char* method,
                                       const tier::ReplayReport& report) const {
    const auto seconds = [](Nanos t) { return std::chrono::duration<double>(t).count(); };
    auto row = row_of(percent, reads, method, options_.judged * options_.tokens, seconds(report.stall),
                      seconds(report.time), static_cast<double>(report.moved_bytes));
    row["hit_rate"] = report.hit_rate();
    return row;
  }

  /// As foreseen, on a virtual clock, with the store's own machine: the stall that is left there was foreseen wrongly,
  /// and not late.
  nlohmann::ordered_json replayed(int64_t percent, double reads, Nanos read, Nanos expert) {
    const tier::ReplaySetup setup = setup_of(percent, read, expert);
    const auto experts = static_cast<uint32_t>(experts_);
    auto policy = policy::make_policy("interval", experts);  // a store's default
    MOESTRO_CHECK(policy.is_ok(), policy.status().message());
    auto host = store::VirtualStore::create({.experts = experts,
                                             .experts_held = static_cast<uint32_t>(setup.slots),
                                             .expert_bytes = expert_bytes_,
                                             .drive = {kInstantly, read}},
                                            std::move(*policy));
    MOESTRO_CHECK(host.is_ok(), host.status().message());
    activation::ActivationHistory history({routes_.layers, routes_.experts, routes_.top_k}, 1000);
    const auto made = predictor("auto", history);
    const auto requests = live();
    return row_of_replay(percent, reads, "foreseen, by replay",
                         tier::replay_on_cpu(routes_, requests, setup, {made.get()}, **host));
  }

  /// Of the requests that count, with those before them replayed.
  nlohmann::ordered_json clairvoyant(int64_t percent, double reads, Nanos read, Nanos expert) const {
    return row_of_replay(percent, reads, "clairvoyant",
                         tier::clairvoyant(routes_, live(), setup_of(percent, read, expert)).report);
  }

  const Options options_;
  const std::filesystem::path pack_;
  const std::vector<std::vector<TokenId>> prompts_;
  uint64_t dense_bytes_ = 0, expert_bytes_ = 0, experts_ = 0;
  tier::Routes routes_;
  std::unique_ptr<engine::testing::TempDir> home_;  ///< of the store that runs
};

}  // namespace
}  // namespace moestro::device::testing

int main(int argc, char** argv) {
  using namespace moestro;
  device::testing::Options o;
  command_line::App app("What reading ahead from a slow drive is worth on the CPU", "moestro_ahead_bench");
  app.add_option("--resident", o.resident, "Percent of the experts that the store's memory holds")
      ->delimiter(',')
      ->check(command_line::Range(int64_t{5}, int64_t{99}));
  app.add_option("--reads", o.reads, "What a read costs, in computations of one expert")
      ->delimiter(',')
      ->check(command_line::PositiveNumber());
  app.add_option("--judged", o.judged, "Requests that count")->check(command_line::Range(1, 8));
  app.add_option("--tokens", o.tokens, "Tokens that each decodes")->check(command_line::Range(1, 256));
  app.add_option("--rounds", o.rounds, "Measurements of everything, in turn")->check(command_line::Range(1, 100));
  app.add_option("--delay", o.delay_ms, "Milliseconds that each read takes longer")->check(command_line::Range(0, 100));
  if (const auto code = command_line::parse_program_line(app, argc, argv)) return *code;
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  device::testing::AheadBench(o).run(rows);
  std::printf("%s\n", rows.dump(1).c_str());
  return 0;
}
