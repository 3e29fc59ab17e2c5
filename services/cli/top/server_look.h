#pragma once
// What the orchestrator says of itself (/v1/moestro/status), as `moestro top` shows it.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "services/cli/top/device_look.h"

namespace moestro::cli {

struct ServerLook {
  std::string trouble;  ///< why there are no figures; empty: there are
  std::string json;     ///< as it came
  std::string state;
  double uptime_s = 0;
  uint64_t requests = 0, waiting = 0, waiting_of_batches = 0, running = 0, sequences_max = 0;
  uint64_t generated = 0, prompt = 0;  ///< tokens
  std::vector<std::string> problems;
  struct Batch {
    std::string id, status;
    uint64_t total = 0, completed = 0, failed = 0;  ///< lines
  };
  std::vector<Batch> batches;  ///< under way
  uint64_t lines_in_flight = 0, lines_retried = 0;
  DeviceLook device;
};

/// Of an answer of 200. Another program's answer is a trouble.
ServerLook read_server_status(std::string_view body);

/// Lines for the top of the page; rates are what lies between the looks.
std::vector<std::string> server_lines(const ServerLook& before, const ServerLook& now);

}  // namespace moestro::cli
