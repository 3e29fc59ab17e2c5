// What the orchestrator and the wire cost beside the engine: a control plane and its scheduler here, a worker and a
// store as processes of their own, against `moestro bench engine` on the same store. All take turns, a round each.
//
//   moestro_wire_bench --model PACK [--batch 16] [--tokens 64] [--depth 32] [--rounds 5]

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "common/model/model_spec.h"
#include "services/command_line/command_line.h"
#include "store/pack/manifest.h"
#include "tests/bench/wire/engine_turns.h"
#include "tests/bench/wire/plane.h"

namespace moestro::bench {
namespace {

struct Options {
  std::string pack, arena = "/dev/shm";
  Load load;
  int rounds = 5, threads = 0;
};

double at(std::vector<double> v, double share) {
  if (v.empty()) return 0;
  std::sort(v.begin(), v.end());
  return v[std::min(v.size() - 1, static_cast<size_t>(share * static_cast<double>(v.size())))];
}

std::string program(const char* name) {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / name).string();
}

/// Gone with this program.
struct TempDir {
  explicit TempDir(const std::string& parent) : path(parent + "/moestro-wire-XXXXXX") {
    if (::mkdtemp(path.data()) == nullptr) path.clear();
  }
  ~TempDir() {
    std::error_code ignored;
    if (!path.empty()) std::filesystem::remove_all(path, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  std::string operator/(const char* name) const { return path + "/" + name; }
  std::string path;
};

/// The store's process, the engine alone, and two planes: with two steps in flight and with one.
struct Setup {
  TempDir dir, arena;
  std::unique_ptr<testing::ChildProcess> store;
  std::unique_ptr<Plane> ahead, in_turn;
  std::unique_ptr<EngineTurns> engine;

  explicit Setup(const Options& o) : dir(std::filesystem::temp_directory_path().string()), arena(o.arena) {}
  std::string socket(const char* name) const { return "ipc://" + (dir / name); }
  std::string start(const Options& o);
};

std::vector<std::string> worker_words(const Setup& s, const Options& o, const std::string& endpoint) {
  const int64_t tokens = o.load.batch * (o.load.depth + o.load.tokens + 16);
  std::vector<std::string> words = {program("moestro-worker"), "--model",        "m",      "--store",
                                    s.socket("store.sock"),    "--orchestrator", endpoint, "--kv-tokens",
                                    std::to_string(tokens)};
  if (o.threads > 0) words.insert(words.end(), {"--threads", std::to_string(o.threads)});
  return words;
}

std::string Setup::start(const Options& o) {
  store = std::make_unique<testing::ChildProcess>(
      std::vector<std::string>{program("moestro-store"), "--run-dir", dir.path, "--arena-dir", arena.path, "--model",
                               "m=" + o.pack},
      (dir / "store.log"));
  for (int i = 0; i < 120 && !std::filesystem::exists(dir / "store.sock"); ++i) ::usleep(500'000);
  ahead = Plane::start(socket("ahead.sock"), 2, worker_words(*this, o, socket("ahead.sock")), (dir / "ahead.log"));
  in_turn = Plane::start(socket("turn.sock"), 1, worker_words(*this, o, socket("turn.sock")), (dir / "turn.log"));
  for (const auto& plane : {&ahead, &in_turn})
    if (!*plane || !(*plane)->wait_for_worker(std::chrono::seconds(120)))
      return "the worker does not come:\n" + (*plane ? (*plane)->log() : "") + store->output();
  std::vector<std::string> words = {program("moestro"),
                                    "bench",
                                    "engine",
                                    "--store",
                                    socket("store.sock"),
                                    "--model",
                                    "m",
                                    "--prompt",
                                    "0",
                                    "--generate",
                                    std::to_string(o.load.tokens),
                                    "--batch",
                                    std::to_string(o.load.batch),
                                    "--depth",
                                    std::to_string(o.load.depth),
                                    "--turns",
                                    "--no-limits"};
  if (o.threads > 0) words.insert(words.end(), {"--threads", std::to_string(o.threads)});
  engine = std::make_unique<EngineTurns>(words);
  return engine->ready() ? "" : "`moestro bench engine` does not start";
}

Result<int64_t> vocabulary(const std::string& pack) {
  MOESTRO_ASSIGN_OR_RETURN(const store::Manifest manifest, store::open_pack(pack));
  MOESTRO_ASSIGN_OR_RETURN(const auto description,
                           model::describe_model(manifest.config_json, manifest.generation_config_json));
  return description.spec.vocab;
}

struct Figures {
  std::vector<double> rate, ratio, busy, added;
  void take(const Decoded& d, double engine) {
    rate.push_back(d.rate());
    ratio.push_back(d.rate() / engine);
    busy.push_back(d.engine_seconds / d.seconds);
    added.insert(added.end(), d.added_us.begin(), d.added_us.end());
  }
};

int measure(const Options& o) {
  Setup setup(o);
  if (const std::string error = setup.start(o); !error.empty()) return std::fprintf(stderr, "%s\n", error.c_str()), 1;
  std::vector<double> engine;
  Figures ahead, in_turn;
  for (int round = 0; round <= o.rounds; ++round) {
    Load load = o.load;
    load.seed = static_cast<uint64_t>(round);
    std::string error;
    const double alone = setup.engine->run();
    const Decoded two = setup.ahead->run(load, error);
    const Decoded one = error.empty() ? setup.in_turn->run(load, error) : Decoded{};
    if (!error.empty() || alone <= 0) return std::fprintf(stderr, "a round failed: %s\n", error.c_str()), 1;
    if (round == 0) continue;  // warms up
    engine.push_back(alone);
    ahead.take(two, alone);
    in_turn.take(one, alone);
  }
  std::printf("%lld sequences, %lld tokens each after %lld; medians of %d rounds\n",
              static_cast<long long>(o.load.batch), static_cast<long long>(o.load.tokens),
              static_cast<long long>(o.load.depth), o.rounds);
  std::printf("%-28s %10s %16s %14s %22s\n", "", "tokens/s", "of bench engine", "engine busy", "added a step p50, p99");
  std::printf("%-28s %10.1f\n", "moestro bench engine", at(engine, 0.5));
  for (const auto& [name, f] : {std::pair{"worker, 2 steps in flight", &ahead}, {"worker, 1 step in flight", &in_turn}})
    std::printf("%-28s %10.1f %16.3f %13.1f%% %10.0f us, %5.0f us\n", name, at(f->rate, 0.5), at(f->ratio, 0.5),
                100 * at(f->busy, 0.5), at(f->added, 0.5), at(f->added, 0.99));
  return 0;
}

}  // namespace
}  // namespace moestro::bench

int main(int argc, char** argv) {
  using moestro::bench::Options;
  moestro::command_line::App app("What the orchestrator and the wire cost beside the engine.", "moestro_wire_bench");
  Options o;
  app.add_option("--model", o.pack, "a pack")->required();
  app.add_option("--batch", o.load.batch, "sequences that decode at once")
      ->check(moestro::command_line::Range(1, 256))
      ->capture_default_str();
  app.add_option("--tokens", o.load.tokens, "tokens that each samples")
      ->check(moestro::command_line::Range(4, 100000))
      ->capture_default_str();
  app.add_option("--depth", o.load.depth, "tokens of each prompt")
      ->check(moestro::command_line::Range(1, 100000))
      ->capture_default_str();
  app.add_option("--rounds", o.rounds, "after one that warms up")
      ->check(moestro::command_line::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--threads", o.threads, "of each engine; 0: one per physical core")
      ->check(moestro::command_line::Range(0, 1024))
      ->capture_default_str();
  app.add_option("--arena-dir", o.arena, "where the store's memory lies: a tmpfs")->capture_default_str();
  if (const auto code = moestro::command_line::parse_program_line(app, argc, argv)) return *code;
  const auto vocab = moestro::bench::vocabulary(o.pack);
  if (!vocab.is_ok()) return std::fprintf(stderr, "%s\n", vocab.status().message().c_str()), 1;
  o.load.vocab = *vocab;
  return moestro::bench::measure(o);
}
