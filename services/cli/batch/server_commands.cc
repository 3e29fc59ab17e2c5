#include "services/cli/batch/server_commands.h"

#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "services/cli/batch/batch_client.h"
#include "services/cli/batch/batch_input.h"
#include "services/cli/batch/batch_targets.h"
#include "services/cli/common/json_text.h"
#include "services/cli/common/output.h"
#include "services/cli/common/server_options.h"
#include "services/cli/instance/instances.h"
#include "services/command_line/command_line.h"

namespace moestro::cli {
namespace {

using nlohmann::json;

struct ServerCommandOptions {
  ServerOptions server;
  std::string id, input, endpoint, window = "24h", output, errors;
  std::vector<std::string> metadata;
  int64_t limit = 20;
  bool wait = false, json = false, drop_results = false;
};

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

uint64_t lines(const json& batch, const char* what) {
  const auto counts = batch.find("request_counts");
  return counts != batch.end() && counts->is_object() ? count_or(*counts, what) : 0;
}

bool is_over(const json& batch) {
  const std::string status = text_or(batch, "status");
  return status == "completed" || status == "failed" || status == "cancelled" || status == "expired";
}

void print_json(const json& value) {
  std::printf("%s\n", json_text(value).c_str());
}

/// What is wrong with a value of --metadata; empty: nothing.
std::string not_metadata(const std::string& pair) {
  const size_t equals = pair.find('=');
  return equals == std::string::npos || equals == 0 ? "'" + pair + "' is not NAME=TEXT" : not_utf8(pair);
}

/// "batch_1 in_progress: 12 of 50 lines done, 1 of them failed"
void print_batch(const json& batch) {
  std::string text = text_or(batch, "id") + " " + text_or(batch, "status") + ": " +
                     std::to_string(lines(batch, "completed") + lines(batch, "failed")) + " of " +
                     std::to_string(lines(batch, "total")) + " lines done";
  if (const uint64_t failed = lines(batch, "failed"); failed > 0)
    text += ", " + std::to_string(failed) + " of them failed";
  for (const char* file : {"output_file_id", "error_file_id"})
    if (const std::string id = text_or(batch, file); !id.empty())
      text += std::string(file[0] == 'o' ? "; output " : "; errors ") + id;
  if (const auto errors = batch.find("errors");
      errors != batch.end() && errors->is_object() && (*errors)["data"].is_array())
    for (const json& error : (*errors)["data"]) text += "; " + text_or(error, "message");
  std::printf("%s\n", one_line(text).c_str());
}

/// Asks twice a second; a server that is away is waited for, for five minutes.
Result<json> wait_over(BatchClient& client, const std::string& id) {
  constexpr double kPatience = 300;
  std::unique_ptr<Progress> bar;
  for (double heard = now_s();;) {
    const auto batch = client.batch(id);
    if (batch.is_ok()) {
      heard = now_s();
      const uint64_t total = lines(*batch, "total");
      if (!bar && total > 0) bar = std::make_unique<Progress>("batch", total);
      const uint64_t failed = lines(*batch, "failed");
      if (bar)
        bar->update(lines(*batch, "completed") + failed,
                    text_or(*batch, "status") + (failed > 0 ? ", " + std::to_string(failed) + " failed" : ""), now_s());
      if (is_over(*batch)) return batch;
    } else if (batch.status().message().find("answers 4") != std::string::npos || now_s() - heard > kPatience) {
      return batch;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
  }
}

Status report(const Result<json>& batch, const ServerCommandOptions& options) {
  MOESTRO_RETURN_IF_ERROR(batch.status());
  if (options.json) print_json(*batch);
  else print_batch(*batch);
  const std::string status = text_or(*batch, "status");
  if (!options.wait) return Status::ok();
  if (status != "completed") return unavailable("the batch is " + status);
  if (const uint64_t failed = lines(*batch, "failed"); failed > 0)
    return unavailable(std::to_string(failed) + " of " + std::to_string(lines(*batch, "total")) +
                       " lines failed; why: moestro batch results " + text_or(*batch, "id") +
                       " -o OUT.jsonl --errors ERRORS.jsonl");
  return Status::ok();
}

/// Of an order that failed. If it arrived although its answer did not, the server keeps the file for its batch.
void remove_upload(const std::string& file, BatchClient& client) {
  if (const Status removed = client.remove_file(file); !removed.is_ok())
    note("the uploaded " + file + " is still on the server: " + removed.message());
}

Status submit(const ServerCommandOptions& options, BatchClient& client) {
  std::string endpoint = options.endpoint.empty() ? endpoint_of_batch(options.input) : options.endpoint;
  if (endpoint.empty()) endpoint = "/v1/completions";  // then the server says what is wrong with the lines
  json order{{"endpoint", endpoint}, {"completion_window", options.window}};
  for (const std::string& pair : options.metadata) {
    const size_t equals = pair.find('=');
    order["metadata"][pair.substr(0, equals)] = pair.substr(equals + 1);
  }
  std::error_code ignored;
  const auto size = std::filesystem::file_size(options.input, ignored);
  Result<std::string> file = [&] {
    Progress bar("upload", ignored ? 0 : size);
    return client.upload(options.input, [&](uint64_t sent) { bar.update(sent, "bytes", now_s()); });
  }();
  MOESTRO_RETURN_IF_ERROR(file.status());
  order["input_file_id"] = *file;
  auto batch = client.create(order);
  if (!batch.is_ok()) remove_upload(*file, client);
  if (batch.is_ok() && options.wait) {
    note(text_or(*batch, "id") + " is submitted; it goes on if this command is stopped");
    batch = wait_over(client, text_or(*batch, "id"));
  }
  return report(batch, options);
}

Status status(const ServerCommandOptions& options, BatchClient& client) {
  return report(options.wait ? wait_over(client, options.id) : client.batch(options.id), options);
}

Status cancel(const ServerCommandOptions& options, BatchClient& client) {
  return report(client.cancel(options.id, options.drop_results), options);
}

/// The second would replace the first.
Status check_results(const ServerCommandOptions& options) {
  if (options.errors.empty()) return Status::ok();
  if (same_target(options.output, options.errors))
    return invalid_argument("--output and --errors are the same file, " + options.output + "; give two");
  if (same_target(options.output, part_of_target(options.errors)))
    return invalid_argument("--output " + options.output + " is needed to write --errors; give another file");
  return Status::ok();
}

Status results(const ServerCommandOptions& options, BatchClient& client) {
  for (const std::string& target : {options.output, options.errors})  // not after waiting for hours
    if (!target.empty()) MOESTRO_RETURN_IF_ERROR(check_target(target));
  MOESTRO_ASSIGN_OR_RETURN(const json batch, options.wait ? wait_over(client, options.id) : client.batch(options.id));
  if (!is_over(batch))
    return unavailable("the batch is " + text_or(batch, "status") + "; its results are there when it is over (--wait)");
  const bool failed = text_or(batch, "status") == "failed";
  const bool has_no_files = failed || (batch.contains("errors") && batch["errors"].is_object());  // which say why
  const auto fetch = [&](const char* file, const std::string& target) -> Status {
    const std::string id = text_or(batch, file);
    const char* const no_line = file[0] == 'o' ? "no line succeeded" : "no line failed";
    if (target.empty()) return Status::ok();
    if (!id.empty()) return client.download(id, target);
    note(target + " is empty: " + (has_no_files ? "the batch has no results" : no_line));
    return write_empty_target(target);
  };
  MOESTRO_RETURN_IF_ERROR(fetch("output_file_id", options.output));
  MOESTRO_RETURN_IF_ERROR(fetch("error_file_id", options.errors));
  if (options.json) print_json(batch);
  else print_batch(batch);
  if (failed) return unavailable("the batch has failed");
  return has_no_files ? unavailable("the batch has no results: they were dropped") : Status::ok();
}

Status list(const ServerCommandOptions& options, BatchClient& client) {
  MOESTRO_ASSIGN_OR_RETURN(const json batches, client.list(options.limit));
  if (options.json) return print_json(batches), Status::ok();
  if (const auto data = batches.find("data"); data != batches.end() && data->is_array())
    for (const json& batch : *data) print_batch(batch);
  return Status::ok();
}

using Action = Status (*)(const ServerCommandOptions&, BatchClient&);
/// What is wrong with the options.
using Check = Status (*)(const ServerCommandOptions&);

void add(command_line::App& batch, CommandResult& result, const char* name, const char* help, Action action,
         const std::function<void(command_line::App*, ServerCommandOptions&)>& more, Check check = nullptr) {
  command_line::App* command = batch.add_subcommand(name, help);
  auto options = std::make_shared<ServerCommandOptions>();
  more(command, *options);
  add_server_options(*command, options->server);
  command->add_flag("--json", options->json, "Print the server's answer as JSON");
  command->callback([options, action, check, &result] {
    if (const Status fine = check ? check(*options) : Status::ok(); !fine.is_ok())
      return fail(result, fine, kExitUsage);
    const Result<Server> server = find_server(options->server);
    if (!server.is_ok()) return fail(result, server.status(), kExitUsage);
    BatchClient client(server->url, server->access);
    if (const Status done = action(*options, client); !done.is_ok()) fail(result, done);
  });
}

}  // namespace

void add_server_commands(command_line::App& batch, CommandResult& result) {
  const auto id = [](command_line::App* c, ServerCommandOptions& o) {
    c->add_option("batch", o.id, "The batch's id")->required()->option_text("BATCH");
  };
  const auto wait = [](command_line::App* c, ServerCommandOptions& o) {
    c->add_flag("--wait", o.wait,
                "Wait until the batch is over, with a progress bar. Exits 1 unless every line succeeded");
  };
  add(batch, result, "submit", "Upload IN.jsonl and let the server run its lines. Prints the batch", submit,
      [&](command_line::App* c, ServerCommandOptions& o) {
        c->add_option("input", o.input, "Requests, one per line: {custom_id, method, url, body}")
            ->required()
            ->option_text("IN.jsonl");
        c->add_option("--endpoint", o.endpoint, "Endpoint of every line. Default: the url of the first line")
            ->check(command_line::IsMember({"/v1/completions", "/v1/chat/completions", "/v1/embeddings"}));
        c->add_option("--window", o.window, "Lines that have not run in this time are not run: 90m, 24h, 7d")
            ->check(not_utf8)
            ->capture_default_str()
            ->type_name("TIME");
        c->add_option("--metadata", o.metadata, "Text to keep with the batch")
            ->check(not_metadata)
            ->type_name("NAME=TEXT");
        wait(c, o);
      });
  add(batch, result, "status", "Show the progress of a batch", status,
      [&](command_line::App* c, ServerCommandOptions& o) { id(c, o), wait(c, o); });
  add(batch, result, "results", "Download the results of a batch that is over", results,
      [&](command_line::App* c, ServerCommandOptions& o) {
        id(c, o);
        c->add_option("-o,--output", o.output, "File for the answers")->required()->type_name("FILE");
        c->add_option("--errors", o.errors, "File for the lines that failed")->type_name("FILE");
        c->add_flag("--wait", o.wait, "Wait until the batch is over, with a progress bar");
      }, check_results);
  add(batch, result, "cancel", "Run no more lines of a batch. Finished lines keep their results", cancel,
      [&](command_line::App* c, ServerCommandOptions& o) {
        id(c, o);
        c->add_flag("--drop-results", o.drop_results,
                    "End it without files: for a batch whose files have no room, cancelled or not");
      });
  add(batch, result, "list", "List batches, newest first", list, [](command_line::App* c, ServerCommandOptions& o) {
    c->add_option("--limit", o.limit, "Batches to list")
        ->check(command_line::Range(int64_t{1}, int64_t{100}))
        ->capture_default_str();
  });
}

}  // namespace moestro::cli
