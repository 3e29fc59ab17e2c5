#include "services/cli/health_command.h"

#include <algorithm>
#include <cstdio>
#include <memory>

#include "services/box/places.h"
#include "services/cli/common/http_client.h"
#include "services/cli/common/output.h"
#include "services/cli/common/server_options.h"
#include "services/command_line/command_line.h"
#include "store/client/status_client.h"

namespace moestro::cli {
namespace {

constexpr std::chrono::milliseconds kWithin{3000};

struct Options {
  ServerOptions server;
  std::string url, store, worker;
};

Result<std::string> ask_store(const Options& options) {
  MOESTRO_ASSIGN_OR_RETURN(const auto report, store::query_store(box::store_endpoint(options.store), kWithin));
  if (options.worker.empty())
    return "the store serves " + std::to_string(report.models.size()) + " model(s) to " +
           std::to_string(report.workers.size()) + " worker(s)";
  const bool there = std::any_of(report.workers.begin(), report.workers.end(),
                                 [&](const auto& w) { return w.client == options.worker; });
  if (!there) return unavailable("worker '" + options.worker + "' is not attached to the store");
  return "worker '" + options.worker + "' is attached";
}

Result<std::string> ask_orchestrator(const Options& options) {
  ServerOptions asked = options.server;
  asked.url = options.url;
  MOESTRO_ASSIGN_OR_RETURN(const Server server, server_of(asked));
  HttpClient client(server.url, {.connect = kWithin, .silence = kWithin}, server.access);
  MOESTRO_ASSIGN_OR_RETURN(const HttpReply reply, client.get("/health"));
  if (reply.status != 200)
    return unavailable(options.url + " answers " + std::to_string(reply.status) + ": " +
                       one_line(reply.body.substr(0, 200)));
  return options.url + " can answer requests";
}

}  // namespace

void add_health_command(command_line::App& app, CommandResult& result) {
  command_line::App* command =
      app.add_subcommand("health", "Check one program, for container health checks: exit 0, or 1 and the reason");
  auto options = std::make_shared<Options>();
  command_line::Option* url =
      command->add_option("--url", options->url, "Check the orchestrator at this address")->type_name("URL");
  add_access_options(*command, options->server);
  command_line::Option* store =
      command->add_option("--store", options->store, "Check the store with this run directory")
          ->excludes(url)
          ->type_name("DIR");
  command->add_option("--worker", options->worker, "Check this worker, as that store sees it")
      ->needs(store)
      ->type_name("NAME");
  command->callback([options, &result] {
    if (options->url.empty() && options->store.empty())
      return fail(result,
                  invalid_argument("nothing to check: give --url URL, or --store DIR and perhaps --worker NAME"),
                  kExitUsage);
    const auto said = options->url.empty() ? ask_store(*options) : ask_orchestrator(*options);
    if (!said) return fail(result, said.status());
    std::printf("%s\n", said->c_str());
  });
}

}  // namespace moestro::cli
