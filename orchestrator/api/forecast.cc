#include "orchestrator/api/forecast.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "common/shm/whole_file.h"

namespace moestro::orchestrator {

using nlohmann::json;

namespace {

std::filesystem::path file_in(const std::filesystem::path& run_dir) {
  return run_dir / "forecast.json";
}

json phase_json(const Forecast::Phase& phase) {
  return {{"tokens_per_s", phase.tokens_per_s}, {"bound", phase.bound}};
}

Forecast::Phase phase_of(const json& phase) {
  return {phase.at("tokens_per_s").get<double>(), phase.at("bound").get<std::string>()};
}

}  // namespace

json forecast_json(const Forecast& f) {
  return {{"schedule", f.schedule},
          {"step_tokens", f.step_tokens},
          {"prompt", f.prompt},
          {"generate", f.generate},
          {"sequences", f.sequences},
          {"prompts", phase_json(f.prompts)},
          {"decoding", phase_json(f.decoding)}};
}

Status write_forecast(const std::filesystem::path& run_dir, const Forecast& forecast) {
  return shm::write_whole_file(file_in(run_dir), forecast_json(forecast).dump(1) + "\n", 0644);
}

void remove_forecast(const std::filesystem::path& run_dir) {
  std::error_code ignored;
  std::filesystem::remove(file_in(run_dir), ignored);
}

Result<Forecast> read_forecast(const std::filesystem::path& run_dir) {
  const auto file = file_in(run_dir);
  std::ifstream in(file, std::ios::binary);
  if (!in) return not_found("no " + file.string());
  try {
    const json told = json::parse(in);
    Forecast f;
    f.schedule = told.at("schedule").get<std::string>();
    f.step_tokens = told.at("step_tokens").get<int64_t>();
    f.prompt = told.at("prompt").get<int64_t>(), f.generate = told.at("generate").get<int64_t>();
    f.sequences = told.at("sequences").get<int64_t>();
    f.prompts = phase_of(told.at("prompts")), f.decoding = phase_of(told.at("decoding"));
    return f;
  } catch (const json::exception& e) {
    return corrupt(file.string() + " is no forecast: " + e.what());
  }
}

}  // namespace moestro::orchestrator
