#include "services/expert_store/options.h"

#include <iostream>
#include <vector>

#include "services/box/box_flags.h"
#include "services/box/host_budget.h"
#include "services/box/model_shares.h"
#include "services/box/named_pack.h"
#include "services/command_line/command_line.h"

namespace moestro::store {
namespace {

Result<ProgramOptions> options_of(const box::BoxFlags& flags, const std::vector<std::string>& models) {
  config::BoxConfig box;
  MOESTRO_RETURN_IF_ERROR(flags.read(box));
  if (box.run.dir.empty())
    return invalid_argument("no directory for the socket: give --run-dir, or run.dir in the YAML file");
  if (box.store.arena_dir.empty())
    return invalid_argument("no directory for the arena: give --arena-dir, or store.arena_dir in the YAML file");
  ProgramOptions options;
  options.store.run_dir = box.run.dir;
  options.store.arena_dir = box.store.arena_dir;
  options.store.payload = box.store.payload_dir;
  auto numa = machine::parse_node_choice(box.store.numa);
  if (!numa) return numa.status().with_context("--numa (store.numa)");
  options.store.numa = std::move(*numa);
  MOESTRO_ASSIGN_OR_RETURN(options.store.access, shm::access_for_group(box.run.group));
  options.store.workers = static_cast<uint32_t>(box.workers.count);
  if (box.store.dram) options.store.dram_bytes = box.store.dram->value;
  options.store.io = box.store.io == "uring"   ? IoKind::kUring
                     : box.store.io == "pread" ? IoKind::kPread
                                               : IoKind::kAuto;
  MOESTRO_ASSIGN_OR_RETURN(const auto shares, box::parse_model_shares(box.store.shares));
  for (const box::ModelShare& share : shares)
    options.store.shares.push_back({share.model, share.guaranteed, share.maximal.value_or(UINT64_MAX)});
  options.store.policy = box.store.policy;
  options.store.poison_freed = box.store.poison_freed;
  options.store.warm_start = box.store.warm_start == "on";
  if (box.store.read_chunk) options.store.read_chunk = static_cast<uint32_t>(box.store.read_chunk->value);
  if (options.store.read_chunk % 4096 != 0)
    return invalid_argument("store.read_chunk: " + std::to_string(options.store.read_chunk) +
                            " bytes is not a multiple of 4 KiB");
  if (box.store.read_depth) options.store.read_depth = static_cast<uint32_t>(*box.store.read_depth);
  options.store.scrub_bytes_per_s = box.store.scrub.value_or(config::Bytes{32 << 20}).value;
  if (!box.store.inject_read_faults.empty()) {
    MOESTRO_ASSIGN_OR_RETURN(options.store.read_faults, parse_fault_plan(box.store.inject_read_faults));
  }
  options.log_level = box.run.log_level, options.log_format = box.run.log_format,
  options.fault_points = box.run.fault_points;
  for (const std::string& text : models) {
    MOESTRO_ASSIGN_OR_RETURN(const auto model, box::parse_named_pack(text));
    options.store.models.push_back({model.name, model.pack});
  }
  if (models.empty()) {
    MOESTRO_ASSIGN_OR_RETURN(const auto model, box::model_of(box));
    options.store.models.push_back({model.name, model.pack});
  }
  std::vector<std::filesystem::path> packs;
  for (const ModelSource& model : options.store.models) packs.push_back(model.pack);
  options.store.others_bytes = box::workers_bytes(box, packs);
  return options;
}

}  // namespace

ParsedOptions parse_options(int argc, char** argv) {
  command_line::App app(
      "The expert store: reads packs into memory that all workers of this host share. Started by moestro up",
      "moestro-store");
  std::vector<std::string> models;
  const box::BoxFlags flags(app, {"run.dir", "run.group", "run.log_level", "run.log_format", "run.fault_points",
                                  "store.arena_dir", "store.payload_dir", "store.numa", "store.dram", "store.shares",
                                  "store.policy", "store.warm_start", "store.io", "store.read_chunk",
                                  "store.read_depth", "store.scrub", "store.inject_read_faults", "store.poison_freed"});
  app.add_option("--model", models,
                 "Name of a model, and its pack. Give it once for each model. Default: model.pack of the YAML file")
      ->allow_extra_args(false)
      ->type_name("NAME=PACK");
  app.get_option("--arena-dir")->advanced(false);  // required here
  ParsedOptions parsed;
  if (const auto code = command_line::parse_program_line(app, argc, argv)) {
    parsed.exit_code = *code;
    return parsed;
  }
  auto options = options_of(flags, models);
  if (!options) {
    std::cerr << "moestro-store: " << options.status().message() << "\n";
    parsed.exit_code = 2;
    return parsed;
  }
  parsed.options = std::move(*options);
  return parsed;
}

}  // namespace moestro::store
