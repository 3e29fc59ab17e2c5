#pragma once
// What `moestro up` has forecast of a cluster: RUN_DIR/forecast.json, which it writes before it starts the
// orchestrator. The status shows it beside what is measured.

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "common/status.h"

namespace moestro::orchestrator {

struct Forecast {
  struct Phase {
    double tokens_per_s = 0;
    std::string bound;  ///< planner::lane_name of the busiest lane
  };
  std::string schedule;
  int64_t step_tokens = 0;                          ///< at most
  int64_t prompt = 0, generate = 0, sequences = 0;  ///< that it is for: so many at once
  Phase prompts, decoding;
};

nlohmann::json forecast_json(const Forecast& forecast);

/// In the run directory. Taken for whole or not at all: a forecast of an earlier start goes first.
Status write_forecast(const std::filesystem::path& run_dir, const Forecast& forecast);
void remove_forecast(const std::filesystem::path& run_dir);

/// kNotFound: `up` made none, as where the machine has not been measured. kCorrupt: it is no forecast.
Result<Forecast> read_forecast(const std::filesystem::path& run_dir);

}  // namespace moestro::orchestrator
