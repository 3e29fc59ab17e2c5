#include "services/orchestrator/options.h"

#include <iostream>
#include <sstream>

#include "services/box/box_flags.h"
#include "services/box/https.h"
#include "services/box/named_pack.h"
#include "services/box/places.h"
#include "services/command_line/command_line.h"

namespace moestro::orchestrator {
namespace {

int64_t whole_seconds(std::chrono::milliseconds t) { return (t.count() + 999) / 1000; }

/// "https://a.example,http://localhost:3000". Browsers send no path and no trailing slash.
Result<std::vector<std::string>> origins_of(const std::string& list) {
  std::vector<std::string> origins;
  std::istringstream words(list);
  for (std::string origin; std::getline(words, origin, ',');) {
    const size_t host = origin.find("://");
    if (origin != "*" && (host == std::string::npos || host == 0 || host + 3 == origin.size() ||
                          origin.find_first_of("/ \t\r\n", host + 3) != std::string::npos))
      return invalid_argument("--cors '" + origin + "' is neither * nor an origin such as https://example.org");
    origins.push_back(origin);
  }
  return origins;
}

Result<OrchestratorOptions> options_of(const config::BoxConfig& box, const std::string& model,
                                       const std::string& store) {
  if (box.run.dir.empty())
    return invalid_argument("no directory for the socket: give --run-dir, or run.dir in the YAML file");
  MOESTRO_ASSIGN_OR_RETURN(const auto named, model.empty() ? box::model_of(box) : box::parse_named_pack(model));
  OrchestratorOptions options;
  options.model_name = named.name;
  MOESTRO_ASSIGN_OR_RETURN(options.aliases, box::aliases_of(box));
  options.pack = named.pack;
  options.run_dir = box.run.dir;
  options.store = store.empty() ? box::store_endpoint(box.run.dir) : store;
  MOESTRO_ASSIGN_OR_RETURN(options.access, shm::access_for_group(box.run.group));
  options.http = box.orchestrator.http;
  options.step_tokens = box.orchestrator.step_tokens;
  options.steps_in_flight = static_cast<size_t>(box.orchestrator.steps_in_flight);
  options.tpot_target = box.orchestrator.tpot_target;
  options.overtaking = box.orchestrator.overtaking;
  options.interactive_weight = box.orchestrator.interactive_weight;
  options.batch_aging = box.orchestrator.batch_aging;
  options.prefix_cache = box.orchestrator.prefix_cache;
  options.share_prefixes = box.orchestrator.share_prefixes;
  options.lenient = box.orchestrator.lenient;
  options.mixed_warn_share = box.orchestrator.mixed_warn_share;
  if (box.orchestrator.queue_max) options.queue_max = static_cast<size_t>(*box.orchestrator.queue_max);
  options.state = box.orchestrator.state;
  if (box.orchestrator.file_max) options.file_bytes_max = box.orchestrator.file_max->value;
  if (box.orchestrator.responses_kept) options.response_bytes_max = box.orchestrator.responses_kept->value;
  options.line_lease = box.orchestrator.line_lease;
  if (box.orchestrator.batch_lines) options.batch_lines = static_cast<size_t>(*box.orchestrator.batch_lines);
  options.worker_wait_s = whole_seconds(box.orchestrator.worker_wait);
  options.history_capacity = static_cast<int32_t>(box.history.capacity);
  options.history_checkpoint = box.history.checkpoint;
  options.api_keys = box.orchestrator.api_keys;
  MOESTRO_ASSIGN_OR_RETURN(options.origins, origins_of(box.orchestrator.cors));
  MOESTRO_RETURN_IF_ERROR(box::serves_https(box).status());
  options.tls_cert = box.orchestrator.tls_cert;
  options.tls_key = box.orchestrator.tls_key;
  options.reader_wait_s = whole_seconds(box.orchestrator.reader_wait);
  options.drain_s = whole_seconds(box.run.drain);
  return options;
}

}  // namespace

CommandLine parse_command_line(int argc, char** argv) {
  command_line::App app{"The HTTP API and the scheduler for the workers of one model. Started by moestro up",
                        "moestro-orchestrator"};
  std::string model, store;
  const box::BoxFlags flags(app, {"run.dir",
                                  "model.aliases",
                                  "orchestrator.http",
                                  "orchestrator.step_tokens",
                                  "orchestrator.steps_in_flight",
                                  "orchestrator.queue_max",
                                  "orchestrator.tpot_target",
                                  "orchestrator.overtaking",
                                  "orchestrator.interactive_weight",
                                  "orchestrator.batch_aging",
                                  "orchestrator.prefix_cache",
                                  "orchestrator.share_prefixes",
                                  "orchestrator.lenient",
                                  "orchestrator.mixed_warn_share",
                                  "orchestrator.worker_wait",
                                  "orchestrator.api_keys",
                                  "orchestrator.cors",
                                  "orchestrator.tls_cert",
                                  "orchestrator.tls_key",
                                  "orchestrator.reader_wait",
                                  "orchestrator.state",
                                  "orchestrator.file_max",
                                  "orchestrator.responses_kept",
                                  "orchestrator.batch_lines",
                                  "orchestrator.line_lease",
                                  "history.capacity",
                                  "history.checkpoint",
                                  "run.drain",
                                  "run.group",
                                  "run.log_level",
                                  "run.log_format"});
  app.add_option("--model", model, "Name of the model to serve, and its pack. Default: model.pack of the YAML file")
      ->type_name("NAME=PACK");
  app.add_option("--store", store,
                 "Socket of the store whose figures /metrics shows, ipc://PATH. Default: ipc://RUN_DIR/store.sock")
      ->type_name("SOCKET");
  if (const auto code = command_line::parse_program_line(app, argc, argv)) return {std::nullopt, "", "", *code};
  config::BoxConfig box;
  const Status status = flags.read(box);
  auto options = status.is_ok() ? options_of(box, model, store) : Result<OrchestratorOptions>(status);
  if (options.is_ok()) return {std::move(*options), box.run.log_level, box.run.log_format, 0};
  std::cerr << "moestro-orchestrator: " << options.status().message() << "\n";
  return {std::nullopt, "", "", 2};
}

}  // namespace moestro::orchestrator
