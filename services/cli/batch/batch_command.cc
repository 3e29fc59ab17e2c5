#include "services/cli/batch/batch_command.h"

#include <csignal>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/config/units.h"
#include "services/cli/batch/batch_runner.h"
#include "services/cli/batch/server_commands.h"
#include "services/cli/common/json_text.h"
#include "services/cli/common/output.h"
#include "services/cli/common/server_options.h"
#include "services/cli/instance/instances.h"
#include "services/command_line/command_line.h"

namespace moestro::cli {
namespace {

std::atomic<bool> stop_asked{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler sets it");

/// The first signal lets the lines in flight finish; the second, its handler gone, ends the program.
void stop_on_signals() {
  struct sigaction action {};
  action.sa_handler = [](int) { stop_asked = true; };
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

double rate(uint64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

std::string progress_text(const BatchReport& report) {
  std::string text = readable_count(rate(report.completion_tokens, report.seconds)) + " tok/s";
  if (report.failed > 0) text += ", " + std::to_string(report.failed) + " failed";
  if (report.retries > 0) text += ", " + std::to_string(report.retries) + " retries";
  return text;
}

void print_summary(const BatchReport& report, bool as_json, const std::string& output) {
  const double tokens_s = rate(report.completion_tokens, report.seconds);
  if (as_json) {
    const nlohmann::json summary{{"lines", report.lines},
                                 {"done_before", report.done_before},
                                 {"done", report.done},
                                 {"failed", report.failed},
                                 {"retries", report.retries},
                                 {"prompt_tokens", report.prompt_tokens},
                                 {"completion_tokens", report.completion_tokens},
                                 {"seconds", report.seconds},
                                 {"completion_tokens_per_s", tokens_s},
                                 {"complete", report.complete()},
                                 {"output", output}};
    std::printf("%s\n", json_text(summary).c_str());
    return;
  }
  const std::string before =
      report.done_before > 0 ? " (" + std::to_string(report.done_before) + " by earlier runs)" : "";
  std::printf(
      "%llu of %llu lines done%s, %llu failed; %llu prompt + %llu completion tokens in %.1f s, %s tok/s; "
      "results in %s\n",
      static_cast<unsigned long long>(report.done_before + report.done),
      static_cast<unsigned long long>(report.lines), before.c_str(),
      static_cast<unsigned long long>(report.failed), static_cast<unsigned long long>(report.prompt_tokens),
      static_cast<unsigned long long>(report.completion_tokens), report.seconds,
      readable_count(tokens_s).c_str(), output.c_str());
}

struct BatchRunOptions {
  ServerOptions server;
  std::string input, output;
  int concurrency = 16;
  bool json = false;
};

void run(const BatchRunOptions& options, CommandResult& result) {
  BatchOptions batch;
  const Result<Server> server = find_server(options.server);
  if (!server.is_ok()) return fail(result, server.status(), kExitUsage);
  batch.url = server->url;
  batch.access = server->access;
  batch.input = options.input;
  batch.output = options.output;
  batch.concurrency = options.concurrency;
  stop_on_signals();
  BatchReport report;
  std::unique_ptr<Progress> bar;
  bool away_said = false;
  const Status status = run_batch(
      batch, stop_asked,
      [&](const BatchReport& now) {
        if (!bar) {
          bar = std::make_unique<Progress>("batch", now.lines);
          if (now.was_torn) note("the last line of " + options.output + " was torn and is run again");
          if (now.done_before > 0)
            note("going on: " + std::to_string(now.done_before) + " of " + std::to_string(now.lines) +
                 " lines have results already");
          if (now.foreign > 0)
            note(options.output + " also holds " + std::to_string(now.foreign) +
                 " results of lines that are not in " + options.input);
        }
        if (now.away.empty()) {
          away_said = false;
        } else if (!std::exchange(away_said, true)) {
          note(now.away + " (trying again for up to " + config::format_duration(batch.patience) + ")");
        }
        bar->update(now.done_before + now.done, progress_text(now), now.seconds);
      },
      report);
  bar.reset();
  if (report.lines > 0) print_summary(report, options.json, options.output);
  if (!status.is_ok()) return fail(result, status);
  if (!report.complete())
    fail(result, cancelled("stopped with " + std::to_string(report.lines - report.done_before - report.done) +
                           " lines to go; the same command goes on"));
}

}  // namespace

void add_batch_command(command_line::App& app, CommandResult& result) {
  command_line::App* batch = app.add_subcommand("batch", "Run files of requests (OpenAI batch lines)");
  batch->require_subcommand(1);
  add_server_commands(*batch, result);
  command_line::App* command = batch->add_subcommand(
      "run",
      "Send every line of IN.jsonl to the server and append each answer to OUT.jsonl. After an interruption, the same "
      "command continues. Exits 0 when every line has a result, even if the result is an error of the server");
  auto options = std::make_shared<BatchRunOptions>();
  command->add_option("input", options->input, "Requests, one per line: {custom_id, method, url, body}")
      ->required()
      ->option_text("IN.jsonl");
  command->add_option("-o,--output", options->output, "Results, one per line, in the order in which they arrive")
      ->required()
      ->option_text("OUT.jsonl");
  add_server_options(*command, options->server);
  command->add_option("--concurrency", options->concurrency, "Requests in flight at once")
      ->check(command_line::Range(1, 1024))
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print the summary as JSON");
  command->callback([options, &result] { run(*options, result); });
}

}  // namespace moestro::cli
