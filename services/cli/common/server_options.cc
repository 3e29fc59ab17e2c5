#include "services/cli/common/server_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "services/cli/common/output.h"
#include "services/command_line/command_line.h"

namespace moestro::cli {
namespace {

constexpr const char* kKeyVariable = "MOESTRO_API_KEY";

/// What may stand in a header's line.
Status check_key(std::string_view key, const char* where) {
  const bool fine = std::all_of(key.begin(), key.end(), [](char c) { return c > 0x20 && c < 0x7f; });
  return fine ? Status::ok()
              : invalid_argument(std::string(where) +
                                 " is no API key: it contains spaces, line breaks or characters that are not ASCII");
}

bool stays_here(const std::string& host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

}  // namespace

void add_key_option(command_line::App& command, std::string& api_key) {
  command
      .add_option("--api-key", api_key,
                  fmt::format("API key. Better: the environment variable {}, because other users of this machine can "
                              "see a command's arguments",
                              kKeyVariable))
      ->type_name("KEY");
}

void add_access_options(command_line::App& command, ServerOptions& options) {
  add_key_option(command, options.api_key);
  command
      .add_option("--ca-file", options.ca_file,
                  "PEM file of the certificates to trust for https, such as the server's own. Default: the system's")
      ->type_name("FILE");
}

void add_server_options(command_line::App& command, ServerOptions& options) {
  command
      .add_option("--url", options.url,
                  fmt::format("Server, http:// or https://. Default: the one that `moestro up` runs on this machine, "
                              "else {}",
                              kDefaultUrl))
      ->type_name("URL");
  add_access_options(command, options);
}

Result<Server> server_of(const ServerOptions& options) {
  Server server;
  const Result<Url> url = parse_url(options.url);
  if (!url.is_ok()) return url.status().with_context("--url");
  server.url = *url;
  server.access = {options.api_key, options.ca_file};
  MOESTRO_RETURN_IF_ERROR(check_key(options.api_key, "--api-key"));
  if (const char* key = std::getenv(kKeyVariable); key != nullptr && options.api_key.empty()) {
    MOESTRO_RETURN_IF_ERROR(check_key(key, kKeyVariable));
    server.access.api_key = key;
  }
  if (!options.ca_file.empty() && !server.url.secure)
    return invalid_argument("--ca-file is for https, and --url is " + options.url);
  if (!server.access.api_key.empty() && !server.url.secure && !stays_here(server.url.host))
    note("the API key goes to " + server.url.host + " unencrypted: that server's URL is http, not https");
  return server;
}

}  // namespace moestro::cli
