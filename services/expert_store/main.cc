// moestro-store: owns the weights of one host and shares them with its workers.

#include <CLI/CLI.hpp>
#include <atomic>
#include <csignal>
#include <iostream>

#include "common/config/units.h"
#include "common/log.h"
#include "store/server/store_server.h"

namespace {

std::atomic<bool> stop{false};
void on_signal(int) { stop.store(true, std::memory_order_relaxed); }

struct Flags {
  moestro::store::StoreOptions options;
  std::string dram, io = "auto", level = "info";
  std::vector<std::string> models;
};

void declare(CLI::App& app, Flags& flags) {
  app.add_option("--run-dir", flags.options.run_dir, "Directory of the socket store.sock")->required();
  app.add_option("--arena-dir", flags.options.arena_dir, "Directory of the shared arena: a tmpfs or hugetlbfs")->required();
  app.add_option("--dram", flags.dram, "Size of the arena, such as 16GiB (default: what the packs need, at most what is free)");
  app.add_option("--model", flags.models, "NAME=PACK, once for each model")->required()->allow_extra_args(false);
  app.add_option("--io", flags.io, "How packs are read")->check(CLI::IsMember({"auto", "uring", "pread"}));
  app.add_flag("--poison-freed", flags.options.poison_freed, "Fill freed ranges with NaNs, so that a use after eviction shows");
  app.add_option("--log-level", flags.level, "trace, debug, info, warn or error");
  app.set_config("-c,--config", "", "File with options of this program (INI or TOML)");
}

moestro::Status finish(Flags& flags) {
  using moestro::store::IoKind;
  if (!flags.dram.empty()) {
    MOESTRO_ASSIGN_OR_RETURN(flags.options.dram_bytes, moestro::config::parse_size(flags.dram));
  }
  flags.options.io = flags.io == "uring" ? IoKind::kUring : flags.io == "pread" ? IoKind::kPread : IoKind::kAuto;
  for (const std::string& model : flags.models) {
    const size_t equals = model.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == model.size())
      return moestro::invalid_argument("--model '" + model + "': write NAME=PACK");
    flags.options.models.push_back({model.substr(0, equals), model.substr(equals + 1)});
  }
  return moestro::log::init("moestro-store", flags.level);
}

int fail(const moestro::Status& status, int code) {
  std::cerr << "moestro-store: " << status.message() << "\n";
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("The expert store: reads packs into memory shared with every worker of this host", "moestro-store");
  Flags flags;
  declare(app, flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  if (const auto status = finish(flags); !status) return fail(status, 2);
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  auto server = moestro::store::StoreServer::start(flags.options, stop);
  if (!server) return stop.load() ? 0 : fail(server.status(), 1);
  moestro::log::info("ready at {}", (*server)->endpoint());
  if (const auto status = (*server)->run(stop); !status) return fail(status, 1);
  return 0;
}
