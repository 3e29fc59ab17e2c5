// Runs a group of sequences by a schedule on virtual lanes. Reads a scenario (JSON) from standard input and prints a
// VirtualRun. scripts/bench_schedules makes the scenarios.

#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "common/lanes/timeline.h"
#include "common/planner/virtual_run.h"
#include "services/command_line/command_line.h"

namespace moestro {
namespace {

using nlohmann::json;

Result<planner::ModelSizes> sizes_of(const json& model) {
  MOESTRO_ASSIGN_OR_RETURN(const auto described, model::describe_model(model.at("config").dump(), ""));
  planner::Precisions precisions{.kv = DType::kBF16};
  MOESTRO_ASSIGN_OR_RETURN(precisions.experts, parse_dtype(model.at("experts").get<std::string>()));
  MOESTRO_ASSIGN_OR_RETURN(precisions.dense, parse_dtype(model.at("dense").get<std::string>()));
  return planner::model_sizes(described, precisions);
}

lanes::LaneRates rates_of(const json& rates) {
  lanes::LaneRates out;
  for (int i = 0; i < lanes::kLaneCount; ++i) {
    const auto lane = static_cast<lanes::Lane>(i);
    const auto at = rates.find(std::string(lanes::lane_name(lane)));
    if (at == rates.end()) continue;
    out[static_cast<size_t>(i)] = lanes::LaneRate{.flops_per_s = 1e12 * at->value("tflops", 0.0),
                                                  .bytes_per_s = 1e9 * at->value("gbps", 0.0),
                                                  .overhead = Nanos(at->value("overhead_ns", int64_t{0})),
                                                  .interrupts = lane == lanes::Lane::kHostToDevice};
  }
  return out;
}

Result<std::unique_ptr<lanes::Schedule>> schedule_of(const json& schedule, const lanes::ModelShape& shape,
                                                     planner::EvenRoutes& routes) {
  const std::string name = schedule.at("name");
  for (const char* share : {"weight_share", "dense_share", "kv_share"})
    if (const double value = schedule.value(share, 0.0); value < 0 || value > 1)
      return invalid_argument(std::string(share) + " is from 0 to 1");
  if (name == "cgo") return lanes::make_cgo_schedule(shape, {.weight_share = schedule.value("weight_share", 0.0)});
  if (name != "expert-pipeline") return invalid_argument("schedules are expert-pipeline and cgo, not " + name);
  const lanes::ExpertPipelineOptions options{.dense_share = schedule.value("dense_share", 0.0),
                                             .kv_share = schedule.value("kv_share", 0.0),
                                             .expert_slots = schedule.value("expert_slots", 16),
                                             .overlap = schedule.value("overlap", true),
                                             .early = schedule.value("early", true),
                                             .by_expert = schedule.value("by_expert", true)};
  if (options.expert_slots < 1) return invalid_argument("expert_slots is at least 1");
  return lanes::make_expert_pipeline_schedule(shape, options, routes);
}

Result<json> run_scenario(const json& in, const std::string& timeline_path) {
  MOESTRO_ASSIGN_OR_RETURN(const planner::ModelSizes sizes, sizes_of(in.at("model")));
  const lanes::ModelShape shape = planner::model_shape(sizes);
  planner::EvenRoutes routes(sizes.experts, sizes.top_k, in.value("ahead", 0));
  MOESTRO_ASSIGN_OR_RETURN(const auto prompt, schedule_of(in.at("prompt_schedule"), shape, routes));
  MOESTRO_ASSIGN_OR_RETURN(const auto decode, schedule_of(in.at("decode_schedule"), shape, routes));
  const json& group = in.at("group");
  const planner::GroupWorkload work{group.at("prompt"), group.at("generate"), group.at("sequences"),
                                    group.at("micro_batches")};
  std::unique_ptr<lanes::ChromeTrace> timeline;
  if (!timeline_path.empty()) {
    MOESTRO_ASSIGN_OR_RETURN(timeline, lanes::ChromeTrace::create(timeline_path, "virtual lanes"));
  }
  MOESTRO_ASSIGN_OR_RETURN(
      const planner::VirtualRun run,
      planner::run_virtually(work, rates_of(in.at("lanes")), *prompt, *decode, routes, timeline.get()));
  json busy = json::object();
  for (int i = 0; i < lanes::kLaneCount; ++i)
    busy[std::string(lanes::lane_name(static_cast<lanes::Lane>(i)))] = run.busy_seconds[i] / run.seconds();
  return json{{"tokens_per_s", run.tokens_per_s()},
              {"prompt_s", run.prompt_seconds},
              {"decode_s", run.decode_seconds},
              {"expert_bytes", sizes.expert_bytes},
              {"busy", busy}};
}

}  // namespace
}  // namespace moestro

int main(int argc, char** argv) {
  moestro::command_line::App app("Runs a scenario (JSON, standard input) on virtual lanes", "moestro_schedules_bench");
  std::string timeline;
  app.add_option("--timeline", timeline, "Write a Chrome trace of the run");
  if (const auto code = moestro::command_line::parse_program_line(app, argc, argv)) return *code;
  try {
    const auto ran = moestro::run_scenario(nlohmann::json::parse(std::cin), timeline);
    if (ran.is_ok()) return std::puts(ran->dump().c_str()) < 0;
    std::fprintf(stderr, "error: %s\n", ran.status().message().c_str());
  } catch (const nlohmann::json::exception& e) {
    std::fprintf(stderr, "error: the scenario: %s\n", e.what());
  }
  return 1;
}
