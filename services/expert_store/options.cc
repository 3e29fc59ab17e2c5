#include "services/expert_store/options.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <vector>

#include "common/config/box_config.h"
#include "common/config/units.h"
#include "common/config/yaml_file.h"

namespace moestro::store {
namespace {

struct Flags {
  std::string run_dir, arena_dir, dram, io, level, config;
  std::vector<std::string> models;
  bool poison = false;
};

void declare(CLI::App& app, Flags& flags) {
  app.add_option("--run-dir", flags.run_dir, "Directory of the socket, store.sock (run.dir)");
  app.add_option("--arena-dir", flags.arena_dir, "Directory of the shared arena: a tmpfs or hugetlbfs (store.arena_dir)");
  app.add_option("--dram", flags.dram, "Size of the arena, as 16GiB; default: what the packs need, at most what is free (store.dram)");
  app.add_option("--model", flags.models, "NAME=PACK; once for each model (model.name, model.pack)")->allow_extra_args(false);
  app.add_option("--io", flags.io, "How packs are read: auto, uring or pread (store.io)")->check(CLI::IsMember({"auto", "uring", "pread"}));
  app.add_flag("--poison-freed", flags.poison, "Fill freed ranges with NaNs, so that a use after eviction shows (store.poison_freed)");
  app.add_option("--log-level", flags.level, "trace, debug, info, warn or error (run.log_level)");
  app.add_option("-c,--config", flags.config, "YAML file of the box, whose keys are in parentheses above");
}

Result<ModelSource> parse_model(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    return invalid_argument("--model '" + text + "': write NAME=PACK");
  return ModelSource{text.substr(0, equals), text.substr(equals + 1)};
}

Status take_box(const Flags& flags, config::BoxConfig& box) {
  config::Schema schema = config::box_schema(box);
  if (!flags.config.empty()) MOESTRO_RETURN_IF_ERROR(config::load_yaml_file(flags.config, schema));
  struct Given {
    const char* flag;
    const char* key;
    const std::string& text;
  };
  for (const Given& given : {Given{"--run-dir", "run.dir", flags.run_dir}, Given{"--arena-dir", "store.arena_dir", flags.arena_dir},
                             Given{"--io", "store.io", flags.io}, Given{"--log-level", "run.log_level", flags.level}})
    if (!given.text.empty()) MOESTRO_RETURN_IF_ERROR(schema.set(given.key, given.text, given.flag));
  if (flags.dram.empty()) return Status::ok();
  // Not through the table, whose smallest size is a guard for people: the packs say what is too small, with the numbers.
  const auto bytes = config::parse_size(flags.dram);
  if (!bytes) return bytes.status().with_context("--dram");
  box.store.dram = config::Bytes{*bytes};
  return Status::ok();
}

Result<ProgramOptions> options_of(const Flags& flags) {
  config::BoxConfig box;
  MOESTRO_RETURN_IF_ERROR(take_box(flags, box));
  ProgramOptions options;
  if (box.run.dir.empty()) return invalid_argument("no directory for the socket: give --run-dir, or run.dir in the YAML file");
  if (box.store.arena_dir.empty()) return invalid_argument("no directory for the arena: give --arena-dir, or store.arena_dir in the YAML file");
  options.store.run_dir = box.run.dir;
  options.store.arena_dir = box.store.arena_dir;
  if (box.store.dram) options.store.dram_bytes = box.store.dram->value;
  options.store.io = box.store.io == "uring" ? IoKind::kUring : box.store.io == "pread" ? IoKind::kPread : IoKind::kAuto;
  options.store.poison_freed = flags.poison || box.store.poison_freed;
  options.log_level = box.run.log_level;
  for (const std::string& text : flags.models) {
    MOESTRO_ASSIGN_OR_RETURN(auto model, parse_model(text));
    options.store.models.push_back(std::move(model));
  }
  if (flags.models.empty() && !box.model.pack.empty()) {
    const std::filesystem::path pack = box.model.pack;
    const std::string last = pack.has_filename() ? pack.filename().string() : pack.parent_path().filename().string();
    options.store.models.push_back({box.model.name.empty() ? last : box.model.name, pack});
  }
  if (options.store.models.empty()) return invalid_argument("no model to serve: give --model NAME=PACK, or model.pack in the YAML file");
  return options;
}

}  // namespace

ParsedOptions parse_options(int argc, char** argv) {
  CLI::App app("The expert store: reads packs into memory that every worker of this host shares.", "moestro-store");
  Flags flags;
  declare(app, flags);
  ParsedOptions parsed;
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {  // --help
    parsed.exit_code = app.exit(e);
    return parsed;
  } catch (const CLI::ParseError& e) {
    std::cerr << "moestro-store: " << e.what() << "; see --help\n";
    parsed.exit_code = 2;
    return parsed;
  }
  auto options = options_of(flags);
  if (!options) {
    std::cerr << "moestro-store: " << options.status().message() << "\n";
    parsed.exit_code = 2;
    return parsed;
  }
  parsed.options = std::move(*options);
  return parsed;
}

}  // namespace moestro::store
