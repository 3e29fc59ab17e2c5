#pragma once
// What the orchestrator says of itself (/v1/moestro/status), as `moestro top` shows it.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "services/cli/top/device_look.h"
#include "services/cli/top/expert_map.h"

namespace moestro::cli {

struct ServerLook {
  std::string trouble;  ///< why there are no figures; empty: there are
  std::string json;     ///< as it came
  std::string state;
  double uptime_s = 0;
  uint64_t requests = 0, waiting = 0, waiting_of_batches = 0, running = 0, sequences_max = 0;
  uint64_t generated = 0, prompt = 0;  ///< tokens
  struct Problem {
    bool error = false;  ///< else a warning
    std::string words;
  };
  std::vector<Problem> problems;
  struct Batch {
    std::string id, status;
    uint64_t total = 0, completed = 0, failed = 0;  ///< lines
  };
  std::vector<Batch> batches;  ///< under way
  uint64_t lines_in_flight = 0, lines_retried = 0;
  struct Quantiles {
    double p50_s = -1, p99_s = -1;  ///< negative: nothing was counted
  };
  struct Recent {
    double seconds = 0;  ///< 0: the server does not say it
    Quantiles first_token, per_token, step;
  };
  Recent recent;
  uint64_t choices = 0, low = 0, skipped = 0;  ///< of experts by tokens, and those without a full copy; 0: no --mixed
  /// How fast the workers' steps are, and were forecast to be. Negative: not known.
  struct Speed {
    double measured = -1, stalled = -1, forecast = -1;  ///< tokens/s, of the time a share, tokens/s
    std::string forecast_bound;
  };
  Speed prompts, decoding;
  uint64_t forecast_sequences = 0;  ///< that it is for, at once
  DeviceLook device;
  ExpertMap experts;  ///< where it was asked for
};

/// Of an answer of 200. Another program's answer is a trouble.
ServerLook read_server_status(std::string_view body);

/// Lines for the top of the page; rates are what lies between the looks.
std::vector<Line> server_lines(const ServerLook& before, const ServerLook& now);

}  // namespace moestro::cli
