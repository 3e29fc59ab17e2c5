#pragma once
// Decodes with a pack held in this process.

#include <cstdint>
#include <string>
#include <vector>

#include "common/status.h"

namespace moestro::cli {

struct EngineBenchOptions {
  std::string pack, precision;
  int64_t prompt = 32, gen = 32, batch = 1, repeat = 5;
  int threads = 0;
  bool deterministic = false;
};

/// One repetition.
struct EngineRun {
  double prefill_tokens_per_s = 0;
  double decode_tokens_per_s = 0;   ///< of the whole batch
  double weight_bytes_per_step = 0; ///< mean over the decode steps
  double read_bytes_per_s = 0;      ///< the read loop, in passes between the decode steps
  double bandwidth_share = 0;       ///< weight bytes per second of decoding / read_bytes_per_s
};

struct EngineBenchReport {
  int threads = 0;
  std::string isa;
  std::vector<EngineRun> runs;
};

Result<EngineBenchReport> bench_engine(const EngineBenchOptions& options);

}  // namespace moestro::cli
