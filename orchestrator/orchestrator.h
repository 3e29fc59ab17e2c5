#pragma once
// The orchestrator as a whole: control thread, HTTP server and API of one model.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/shm/file_access.h"
#include "common/status.h"

namespace moestro::orchestrator {

struct OrchestratorOptions {
  std::string model_name;
  std::vector<std::string> aliases;   ///< further names that requests may use for it
  std::filesystem::path pack;
  std::filesystem::path run_dir;      ///< orchestrator.sock and http.port are made in it
  std::string store;                  ///< the socket of the store whose figures /metrics has
  shm::FileAccess access;             ///< which users may use the socket
  std::string http = "127.0.0.1:8080";
  std::optional<int64_t> step_tokens;  ///< nullopt: as workers can, while that does not take much longer than usual
  size_t steps_in_flight = 2;         ///< of each worker: 1 or 2
  bool overtaking = true;             ///< ControlOptions
  std::chrono::milliseconds tpot_target{0};  ///< as ControlOptions have these three
  int64_t interactive_weight = 16;
  std::chrono::milliseconds batch_aging{60000};
  bool prefix_cache = true;           ///< equal prefixes share KV blocks
  bool share_prefixes = false;        ///< also those of different projects
  bool lenient = false;               ///< fields that are not known are ignored
  std::optional<double> mixed_warn_share = {};  ///< ServiceOptions
  size_t queue_max = 4096;
  std::filesystem::path api_keys;     ///< file of hashed keys; empty: everybody who can connect
  std::vector<std::string> origins;   ///< that browsers may call from
  std::filesystem::path tls_cert, tls_key;  ///< PEM files: https; empty: http
  int64_t reader_wait_s = 300;        ///< a client that takes nothing for so long is cut off
  int64_t worker_wait_s = 60;         ///< requests that wait while no worker is there fail after so long
  std::string state = "default";      ///< where files, batches and responses are kept (state/open_state.h)
  uint64_t file_bytes_max = 512ull << 20;
  uint64_t response_bytes_max = 256ull << 20;  ///< of responses that are kept; 0: none is
  std::optional<size_t> batch_lines;  ///< lines of batches in the queue or running; nullopt: by the workers' places
  std::chrono::milliseconds line_lease{
      15'000};  ///< an orchestrator that shares batches is considered dead after this long without a renewal
  int32_t history_capacity = 512;     ///< past requests whose activations are kept; 0: none
  std::chrono::milliseconds history_checkpoint = std::chrono::seconds(60);
  int64_t drain_s = 30;               ///< time for running requests when it is told to stop
};

/// Serves until SIGTERM or SIGINT, then drains. An error says why it could not serve.
Status run_orchestrator(const OrchestratorOptions& options);

}  // namespace moestro::orchestrator
