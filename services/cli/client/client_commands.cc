#include "services/cli/client/client_commands.h"

#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "services/cli/client/stream_events.h"
#include "services/cli/common/http_client.h"
#include "services/cli/common/json_text.h"
#include "services/cli/common/output.h"
#include "services/cli/common/server_options.h"
#include "services/cli/common/sse.h"
#include "services/cli/instance/instances.h"
#include "services/command_line/command_line.h"

namespace moestro::cli {
namespace {

using nlohmann::json;

struct Options {
  ServerOptions server;
  std::string prompt, system, model;
  int64_t max_tokens = 128;
  double temperature = 0;
  std::optional<int64_t> seed;
  bool json = false;
};

/// The first model that the server names.
Result<std::string> served_model(HttpClient& client) {
  MOESTRO_ASSIGN_OR_RETURN(const HttpReply reply, client.get("/v1/models"));
  if (reply.status != 200)
    return answered_with(reply.status, reply.body).with_context("/v1/models");
  const Result<json> body = parse_json(reply.body);
  if (body.is_ok() && body->is_object() && body->contains("data") && (*body)["data"].is_array() &&
      !(*body)["data"].empty()) {
    const std::string id = text_or((*body)["data"].front(), "id");
    if (!id.empty()) return id;
  }
  return unavailable("the server names no model");
}

json request_of(const Options& options, const std::string& model) {
  json request{{"model", model}, {"max_tokens", options.max_tokens}, {"temperature", options.temperature}};
  if (options.seed) request["seed"] = *options.seed;
  return request;
}

Status refusal(const HttpReply& reply) { return answered_with(reply.status, reply.body); }

void print_text(std::string_view text, std::FILE* to) {
  const std::string shown = printable(text);
  std::fwrite(shown.data(), 1, shown.size(), to);
}

/// Prints the answer as it comes, reasoning to stderr, and returns it whole.
Result<std::string> stream_answer(HttpClient& client, const std::string& path, json request) {
  request["stream"] = true;
  std::string answer;
  bool done = false, reasoned = false;
  SseParser parser([&](std::string_view data) -> Status {
    MOESTRO_ASSIGN_OR_RETURN(const StreamEvent event, parse_stream_event(data));
    done = done || event.done;
    answer += event.text;
    print_text(event.reasoning, stderr);
    reasoned = reasoned || !event.reasoning.empty();
    if (!event.text.empty() && std::exchange(reasoned, false)) print_text("\n\n", stderr);
    print_text(event.text, stdout);
    if (std::fflush(stdout) != 0) return io_error("cannot write to stdout", errno);
    return Status::ok();
  });
  MOESTRO_ASSIGN_OR_RETURN(
      const HttpReply reply,
      client.post_stream(path, json_text(request), [&](std::string_view piece) { return parser.feed(piece); }));
  if (reply.status != 200) return refusal(reply);
  if (!answer.ends_with('\n')) std::putchar('\n');
  if (!done) return unavailable("the answer broke off before its end");
  return answer;
}

Status complete(const Options& options, HttpClient& client) {
  const std::string prompt =
      options.prompt == "-" ? std::string(std::istreambuf_iterator<char>(std::cin), {}) : options.prompt;
  MOESTRO_RETURN_IF_ERROR(check_utf8("the prompt", prompt));
  std::string model = options.model;
  if (model.empty()) {
    MOESTRO_ASSIGN_OR_RETURN(model, served_model(client));
  }
  json request = request_of(options, model);
  request["prompt"] = prompt;
  if (!options.json) return stream_answer(client, "/v1/completions", std::move(request)).status();
  MOESTRO_ASSIGN_OR_RETURN(const HttpReply reply, client.post("/v1/completions", json_text(request)));
  if (reply.status != 200) return refusal(reply);
  std::printf("%s\n", reply.body.c_str());
  return Status::ok();
}

/// Reads a line; false at the end of the input.
bool read_line(bool terminal, std::string& line) {
  if (terminal) std::fputs("> ", stdout), std::fflush(stdout);
  return static_cast<bool>(std::getline(std::cin, line));
}

Status chat(const Options& options, HttpClient& client) {
  std::string model = options.model;
  if (model.empty()) {
    MOESTRO_ASSIGN_OR_RETURN(model, served_model(client));
  }
  const bool terminal = ::isatty(STDIN_FILENO) == 1;
  if (terminal) note("chatting with " + model + "; /reset forgets, /exit or Ctrl-D leaves");
  json start = json::array();
  if (!options.system.empty()) start.push_back({{"role", "system"}, {"content", options.system}});
  json messages = start;
  for (std::string line; read_line(terminal, line);) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    if (line == "/exit") break;
    if (line == "/reset") {
      messages = start;
      continue;
    }
    if (const Status status = check_utf8("the line", line); !status.is_ok()) {
      if (!terminal) return status;
      note(status.message());
      continue;
    }
    messages.push_back({{"role", "user"}, {"content", line}});
    json request = request_of(options, model);
    request["messages"] = messages;
    const Result<std::string> answer = stream_answer(client, "/v1/chat/completions", std::move(request));
    if (answer.is_ok()) {
      messages.push_back({{"role", "assistant"}, {"content", *answer}});
      continue;
    }
    if (!terminal) return answer.status();
    note(answer.status().message());
    messages.erase(messages.size() - 1);  // asked again, it is not there twice
  }
  return Status::ok();
}

void add_common(command_line::App* command, Options& options) {
  add_server_options(*command, options.server);
  command->add_option("--model", options.model, "Model to ask. Default: the first that the server names")
      ->check(not_utf8)
      ->type_name("NAME");
  command->add_option("--max-tokens", options.max_tokens, "Longest answer, in tokens")
      ->check(command_line::Range(int64_t{1}, int64_t{1} << 24))
      ->capture_default_str();
  command
      ->add_option("--temperature", options.temperature,
                   "Randomness of the answer, 0 to 2. 0: always the likeliest token")
      ->check(command_line::Range(0.0, 2.0))
      ->capture_default_str();
  command->add_option("--seed", options.seed, "The same seed samples the same text")->type_name("N");
}

void run(const Options& options, CommandResult& result, Status (*action)(const Options&, HttpClient&)) {
  const Result<Server> server = find_server(options.server);
  if (!server.is_ok()) return fail(result, server.status(), kExitUsage);
  HttpClient client(server->url, {}, server->access);
  if (const Status status = action(options, client); !status.is_ok()) fail(result, status);
}

}  // namespace

void add_complete_command(command_line::App& app, CommandResult& result) {
  command_line::App* command = app.add_subcommand("complete", "Continue a text, streamed");
  auto options = std::make_shared<Options>();
  command->add_option("prompt", options->prompt, "Text to continue; `-` reads it from stdin")
      ->required()
      ->check(not_utf8)
      ->option_text("PROMPT");
  add_common(command, *options);
  command->add_flag("--json", options->json, "Print the server's whole answer as JSON, not streamed");
  command->callback([options, &result] { run(*options, result, complete); });
}

void add_chat_command(command_line::App& app, CommandResult& result) {
  command_line::App* command = app.add_subcommand("chat", "Chat with the model, line by line");
  auto options = std::make_shared<Options>();
  options->max_tokens = 512;
  add_common(command, *options);
  command->add_option("--system", options->system, "System message")->check(not_utf8)->type_name("TEXT");
  command->callback([options, &result] { run(*options, result, chat); });
}

}  // namespace moestro::cli
