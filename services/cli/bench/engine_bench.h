#pragma once
// The engine's speed with a pack in this process, compared with the machine's limits.

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/status.h"
#include "common/tier/device_tier.h"
#include "kernels/ops.h"

namespace moestro::cli {

struct EngineBenchOptions {
  std::string store;  ///< ipc://RUN_DIR/store.sock; `pack` is then the name it serves. Empty: the pack is read into
                      ///< this process
  std::string pack, experts, isa, kv_dtype = "f32";
  std::vector<int64_t> prompts = {512}, generates = {64}, batches = {1};
  int64_t prompts_at_once = 1;  ///< that prefill computes
  int64_t depth = 32, repeats = 5, step_tokens = 512;
  int64_t kv_tokens = 0;       ///< 0: as many as the measurements need
  int64_t kv_sinks = 0, kv_window = 0;
  int64_t stream_bytes =
      0;  ///< memory that limits are streamed from; 0: 4 GiB, or a quarter of the free memory; on a CUDA device 512 MiB
  int threads = 0;
  bool deterministic = false, limits = true;
  // device::WorkerDeviceOptions
  std::string device = "cpu", cache = "auto", predict = "none", cuda_graphs = "on", cublas = "auto";
  std::string schedule = "auto", kv_home = "device";  ///< worker::take_schedule
  int64_t micro_batches = 0, kv_resident_tokens = 0, kv_ring_tokens = 0;  ///< 0: as a worker takes them
  std::optional<double> capacity_factor;  ///< nullopt: no token is dropped
  std::string mixed = "off";              ///< config::parse_mixed
};

/// One measurement: prefill of `batch` prompts of `tokens`, or `tokens` decoded by each of `batch` sequences after
/// `depth`.
struct EngineCase {
  bool prefill = false;
  int64_t tokens = 0, batch = 1, depth = 0;
};

/// The results of one repeat of a case, with limits measured at the same time. 0: not measured.
struct EngineRun {
  double seconds = 0, tokens = 0;
  double weight_bytes = 0, operations = 0;
  double expert_hits = 0,
         expert_misses = 0;  ///< in a store's memory, while tokens were counted; a pack in this process has no misses
  double stalled_seconds = 0;  ///< of `seconds`, those in which nothing was computed because experts were missing
  double host_experts = 0;     ///< that the CPU computed for a GPU
  // Of a device with its own memory, while tokens were counted:
  tier::LayerCounters tier;
  double moved_bytes = 0;  ///< over its link
  std::map<std::string, double> limits;  ///< bytes/s or operations/s, by LimitKind::name
};

/// A limit of the machine.
struct LimitKind {
  std::string name;   ///< "dram_read"
  std::string unit;   ///< "bytes/s", of weights; "FLOP/s"
  std::string how;    ///< how it is measured
  std::string share;  ///< name of the engine's share of it; of several with one name, the best counts
  std::array<std::string, 2> column;  ///< head of that share in the table; empty: only in JSON
};

struct EngineBenchResult {
  EngineCase what;
  std::vector<EngineRun> runs;
};

struct EngineBenchReport {
  std::string model, experts;
  kernels::Isa isa = kernels::Isa::kScalar;
  int threads = 0;
  int64_t step_tokens = 0, kv_tokens = 0, stream_bytes = 0;
  double model_bytes = 0;
  std::vector<LimitKind> limits;  ///< that were measured
  std::vector<EngineBenchResult> results;
};

/// Progress: `done` of `total` units of work, and the current work.
using BenchProgress = std::function<void(uint64_t done, uint64_t total, const std::string& what)>;

/// Takes turns with another program instead of repeating alone: `next` waits for the index of the case to run; nullopt
/// at the end.
struct BenchTurns {
  std::function<std::optional<size_t>(size_t cases)> next;
  std::function<void(const EngineRun&)> done;
};

/// `turns` may be null: then every case runs options.repeats times.
Result<EngineBenchReport> bench_engine(const EngineBenchOptions& options, const BenchProgress& progress,
                                       const BenchTurns* turns = nullptr);

/// "prefill 512", "decode 64 x 32".
std::string case_name(const EngineCase& c);

}  // namespace moestro::cli
