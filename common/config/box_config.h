#pragma once
// What one box runs: one store, workers of one model, one orchestrator. `moestro up` reads it from YAML and
// flags.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "common/config/schema.h"

namespace moestro::config {

struct BoxConfig {
  struct Model {
    std::string pack;
    std::string name;  ///< empty: the pack directory's name
    std::string aliases;  ///< comma-separated
  } model;
  struct Store {
    std::optional<Bytes> dram;
    std::string arena_dir;  ///< empty: `up` finds a place
    std::string payload_dir;  ///< empty: in arena_dir
    std::string numa = "auto";
    std::string io = "auto";
    std::string policy = "interval";
    std::string shares;  ///< "NAME=GUARANTEED..MAXIMAL,..."
    std::optional<Bytes> read_chunk;
    std::optional<int64_t> read_depth;
    std::optional<Bytes> scrub = Bytes{32 << 20};
    std::string inject_read_faults;
    bool poison_freed = false;
    std::string warm_start = "on";
  } store;
  struct Workers {
    int64_t count = 1;
    std::string device = "cpu";
    std::string cache = "auto";
    std::string predict = "auto";
    std::string cuda_graphs = "on";
    std::string cublas = "auto";
    std::optional<int64_t> threads;
    std::string pin_threads = "auto";
    std::optional<int64_t> numa_node;
    std::optional<int64_t> kv_tokens;
    std::optional<int64_t> state_slots;
    int64_t kv_host_tokens = 0;
    std::string kv_home = "device";
    int64_t kv_resident_tokens = 0;
    std::optional<int64_t> kv_ring_tokens;
    std::string kv_dtype = "f32";
    int64_t kv_sinks = 0;
    int64_t kv_window = 0;  ///< 0: no window
    std::optional<int64_t> context;
    std::string schedule = "auto";
    std::optional<int64_t> micro_batches, micro_batch_rows;
    std::optional<int64_t> step_buffers;
    std::optional<int64_t> reserve;
    std::string precision;  ///< empty: the pack's first
    std::string mixed = "off";
    std::optional<double> mixed_max_share;
    bool deterministic = false;
    std::optional<double> capacity_factor;
    std::chrono::milliseconds store_wait = std::chrono::seconds(60);
    std::string trace, timeline;
  } workers;
  struct Orchestrator {
    std::string http = "127.0.0.1:8080";
    std::optional<int64_t> step_tokens;
    int64_t steps_in_flight = 2;
    std::chrono::milliseconds tpot_target{0};
    bool overtaking = true;
    int64_t interactive_weight = 16;
    std::chrono::milliseconds batch_aging = std::chrono::seconds(60);
    bool prefix_cache = true;
    bool share_prefixes = false;
    bool lenient = false;
    std::optional<double> mixed_warn_share;
    std::optional<int64_t> queue_max;
    std::string state = "default";
    std::optional<Bytes> file_max = Bytes{512ull << 20};
    std::optional<Bytes> responses_kept = Bytes{256ull << 20};
    std::optional<int64_t> batch_lines;
    std::chrono::milliseconds line_lease{15'000};
    std::chrono::milliseconds worker_wait = std::chrono::seconds(60);
    std::string api_keys;  ///< empty: no keys are required
    std::string cors;      ///< empty: no other origin
    std::string tls_cert, tls_key;  ///< both or neither
    std::chrono::milliseconds reader_wait = std::chrono::minutes(5);
  } orchestrator;
  struct History {
    int64_t capacity = 512;
    std::chrono::milliseconds checkpoint = std::chrono::seconds(60);
  } history;
  struct Run {
    std::string dir;  ///< empty: $XDG_RUNTIME_DIR/moestro/NAME or /tmp/moestro-UID/NAME
    std::string group;  ///< empty: only the user
    std::string log_level = "info";
    std::string log_format = "text";
    std::string fault_points;
    std::chrono::milliseconds drain = std::chrono::seconds(30);
  } run;
};

/// Tokens of a step for which workers have buffers. Where neither steps nor buffers are given: kUsualStepTokens, unless
/// the worker chooses, as on a GPU.
int64_t step_buffers(const BoxConfig& config);

/// Tokens of a step that overtakes another, for which workers that do that have buffers as well; 0: none does.
inline constexpr int64_t kOvertakingTokens = 128;
int64_t overtaking_tokens(const BoxConfig& config);

/// The headings under which --help lists the flags, in their order.
const std::vector<std::string>& box_themes();

/// The table of all keys, bound to `config`, which must outlive it.
Schema box_schema(BoxConfig& config);

}  // namespace moestro::config
