#pragma once
// --url, --api-key and --ca-file: the same for every command that speaks HTTP to a server.

#include <string>

#include "common/status.h"
#include "services/cli/common/http_client.h"
#include "services/command_line/command_line.h"

namespace moestro::cli {

struct ServerOptions {
  std::string url, api_key, ca_file;  ///< url: empty if it is not given
};

/// Adds all three to a command.
void add_server_options(command_line::App& command, ServerOptions& options);
/// Adds them without --url, for commands that have their own.
void add_access_options(command_line::App& command, ServerOptions& options);
/// Adds only --api-key.
void add_key_option(command_line::App& command, std::string& api_key);

struct Server {
  Url url;
  HttpAccess access;
};
/// Checks them. If no key is given, it is MOESTRO_API_KEY. Errors name the option and never the key.
Result<Server> server_of(const ServerOptions& options);

}  // namespace moestro::cli
