// moestro-orchestrator: the request plane of one model.

#include <CLI/CLI.hpp>
#include <iostream>

#include "common/log.h"
#include "orchestrator/orchestrator.h"

int main(int argc, char** argv) {
  moestro::orchestrator::OrchestratorOptions options;
  std::string model, log_level = "info";
  CLI::App app{"Moestro's request plane: HTTP API, scheduler, workers of one model.", "moestro-orchestrator"};
  app.add_option("--model", model, "NAME=PACK: the model to serve and its pack")->required();
  app.add_option("--run-dir", options.run_dir, "Folder for orchestrator.sock, which workers connect to, and http.port")->required();
  app.add_option("--http", options.http, "HOST:PORT to listen on; port 0 takes a free one")->capture_default_str();
  app.add_option("--step-tokens", options.step_tokens, "Tokens of one step at most")->capture_default_str()->check(CLI::Range(1, 1 << 20));
  app.add_option("--queue-max", options.queue_max, "Sequences waiting or running at most")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--drain-s", options.drain_s, "Seconds that running requests get when it stops")->capture_default_str()->check(CLI::Range(0, 86400));
  app.add_option("--log-level", log_level, "trace, debug, info, warn, error")->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  const size_t equals = model.find('=');
  if (equals == std::string::npos || equals == 0) {
    std::cerr << "moestro-orchestrator: --model '" << model << "' is not NAME=PACK\n";
    return 2;
  }
  options.model_name = model.substr(0, equals);
  options.pack = model.substr(equals + 1);
  moestro::Status status = moestro::log::init("moestro-orchestrator", log_level);
  if (status.is_ok()) status = run_orchestrator(options);
  if (status.is_ok()) return 0;
  std::cerr << "moestro-orchestrator: " << status.message() << "\n";
  return 1;
}
