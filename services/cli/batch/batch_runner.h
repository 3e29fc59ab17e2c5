#pragma once
// Runs the lines of a batch that have no result yet.

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>

#include "common/status.h"
#include "services/cli/common/http_client.h"

namespace moestro::cli {

struct BatchOptions {
  std::filesystem::path input, output;
  Url url;
  HttpAccess access = {};
  int concurrency = 16;
  std::chrono::milliseconds answer_max = std::chrono::hours(1);  ///< longest wait for one answer
  std::chrono::milliseconds patience =
      std::chrono::minutes(5);  ///< limit without a finished line while the server is away or full
  std::chrono::milliseconds pause_first{250}, pause_max{10'000};  ///< between tries of a line
};

struct BatchReport {
  uint64_t lines = 0;        ///< in the input
  uint64_t done_before = 0;  ///< of them, done by earlier runs
  uint64_t done = 0;         ///< by this run
  uint64_t failed = 0;       ///< of all with a result
  uint64_t foreign = 0;      ///< results in the output whose custom_id the input does not have
  uint64_t retries = 0;
  uint64_t prompt_tokens = 0, completion_tokens = 0;  ///< of this run
  double seconds = 0;
  bool was_torn = false;
  std::string away;  ///< why the server could not be reached, while it cannot
  bool complete() const { return done_before + done == lines; }
};

/// Called by the thread that called run_batch, ten times a second.
using BatchProgress = std::function<void(const BatchReport&)>;

/// Blocks until every line has a result, `stop` is set (lines in flight are finished first), or it cannot continue. The
/// report is filled in all cases.
Status run_batch(const BatchOptions& options, const std::atomic<bool>& stop, const BatchProgress& progress,
                 BatchReport& report);

/// How long to wait before try number `tries` + 1 (tries >= 1): it doubles, varies with the line's number so that lines
/// do not all return at once, and is at least what the server asked for.
std::chrono::milliseconds retry_pause(const BatchOptions& options, int tries, uint64_t line_number,
                                      double retry_after_s);

}  // namespace moestro::cli
