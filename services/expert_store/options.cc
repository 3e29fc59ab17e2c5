#include "services/expert_store/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <vector>

#include "services/box/box_flags.h"
#include "services/box/host_budget.h"
#include "services/box/named_pack.h"

namespace moestro::store {
namespace {

Result<ProgramOptions> options_of(const box::BoxFlags& flags, const std::vector<std::string>& models) {
  config::BoxConfig box;
  MOESTRO_RETURN_IF_ERROR(flags.read(box));
  if (box.run.dir.empty()) return invalid_argument("no directory for the socket: give --run-dir, or run.dir in the YAML file");
  if (box.store.arena_dir.empty()) return invalid_argument("no directory for the arena: give --arena-dir, or store.arena_dir in the YAML file");
  ProgramOptions options;
  options.store.run_dir = box.run.dir;
  options.store.arena_dir = box.store.arena_dir;
  options.store.payload = box.store.payload_dir;
  MOESTRO_ASSIGN_OR_RETURN(options.store.access, shm::access_for_group(box.run.group));
  if (box.store.dram) options.store.dram_bytes = box.store.dram->value;
  options.store.io = box.store.io == "uring" ? IoKind::kUring : box.store.io == "pread" ? IoKind::kPread : IoKind::kAuto;
  options.store.poison_freed = box.store.poison_freed;
  options.store.warm_start = box.store.warm_start == "on";
  options.log_level = box.run.log_level;
  for (const std::string& text : models) {
    MOESTRO_ASSIGN_OR_RETURN(const auto model, box::parse_named_pack(text));
    options.store.models.push_back({model.name, model.pack});
  }
  if (models.empty()) {
    MOESTRO_ASSIGN_OR_RETURN(const auto model, box::model_of(box));
    options.store.models.push_back({model.name, model.pack});
  }
  // A pack that cannot be described is refused when it is opened.
  for (const ModelSource& model : options.store.models)
    if (const auto workers = box::worker_memory(box, model.pack)) options.store.others_bytes = std::max(options.store.others_bytes, workers->total());
  return options;
}

}  // namespace

ParsedOptions parse_options(int argc, char** argv) {
  CLI::App app("The expert store: reads packs into memory that every worker of this host shares.", "moestro-store");
  std::vector<std::string> models;
  const box::BoxFlags flags(
      app, {"run.dir", "store.arena_dir", "store.payload_dir", "store.dram", "store.io", "store.poison_freed", "store.warm_start", "run.group", "run.log_level"});
  app.add_option("--model", models, "NAME=PACK; once for each model; default: model.pack of the YAML file")->allow_extra_args(false);
  ParsedOptions parsed;
  if (const auto code = box::parse_program_line(app, argc, argv)) {
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
