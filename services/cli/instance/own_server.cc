#include "services/cli/instance/own_server.h"

#include <fstream>

#include "common/config/host_port.h"
#include "common/config/yaml_file.h"
#include "services/box/https.h"

namespace moestro::cli {

namespace fs = std::filesystem;

Status read_box_in_effect(const fs::path& run_dir, config::BoxConfig& box) {
  const fs::path file = run_dir / "box.yaml";
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return Status::ok();
  config::Schema schema = config::box_schema(box);
  return config::load_yaml_file(file, schema);
}

Result<Server> own_server(const config::BoxConfig& box, const fs::path& run_dir, ServerOptions options) {
  MOESTRO_ASSIGN_OR_RETURN(config::HostPort at, config::parse_listen_address(box.orchestrator.http));
  MOESTRO_ASSIGN_OR_RETURN(const bool secure, box::serves_https(box));
  std::string port;
  if (std::ifstream(run_dir / "http.port") >> port) at.port = port;
  options.url = Url{.host = at.host_for_local_clients(), .port = at.port, .base = "", .secure = secure}.origin();
  MOESTRO_ASSIGN_OR_RETURN(Server server, server_of(options));
  if (secure && options.ca_file.empty()) server.access.certificate = box.orchestrator.tls_cert;
  return server;
}

}  // namespace moestro::cli
