#pragma once
// --url, --api-key and --ca-file: the same for every command that speaks HTTP to a server.

#include <string>

#include "common/status.h"
#include "services/cli/http_client.h"
#include "services/command_line/command_line.h"

namespace moestro::cli {

struct ServerOptions {
  std::string url, api_key, ca_file;  ///< url: empty if it is not given
};

/// Adds the three to a command.
void add_server_options(command_line::App& command, ServerOptions& options);
/// Without --url, for commands that have one of their own.
void add_access_options(command_line::App& command, ServerOptions& options);
/// --api-key alone.
void add_key_option(command_line::App& command, std::string& api_key);

struct Server {
  Url url;
  HttpAccess access;
};
/// Checks them; the key is MOESTRO_API_KEY where none is given. Errors name the option and never the key.
Result<Server> server_of(const ServerOptions& options);

}  // namespace moestro::cli
