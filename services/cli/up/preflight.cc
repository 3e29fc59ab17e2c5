#include "services/cli/up/preflight.h"

#include <netdb.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>

#include "common/log.h"
#include "common/shm/mapped_file.h"
#include "orchestrator/api/api_keys.h"
#include "orchestrator/http/tls_identity.h"
#include "orchestrator/state/open_state.h"
#include "orchestrator/state/sqlite_store.h"
#include "services/cli/instance/instances.h"

namespace moestro::cli {
namespace {

namespace fs = std::filesystem;

/// 0, or the error number.
int try_to_listen(const addrinfo& at) {
  const shm::UniqueFd fd(::socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;  // as the server: a port whose connections have just ended is free
  if (!fd || ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(fd.get(), at.ai_addr, at.ai_addrlen) != 0 || ::listen(fd.get(), 1) != 0)
    return errno;
  return 0;
}

/// ", by the cluster 'demo' in RUN_DIR", if it is one of this user's.
std::string owner_of(const std::string& port) {
  for (const Instance& instance : find_instances()) {
    std::string taken;
    if (std::ifstream(instance.run_dir / "http.port") >> taken && taken == port)
      return ", by the cluster '" + instance.name + "' in " + instance.run_dir.string();
  }
  return "";
}

}  // namespace

Status check_files(const config::BoxConfig& box) {
  const config::BoxConfig::Orchestrator& o = box.orchestrator;
  if (!o.api_keys.empty())
    MOESTRO_RETURN_IF_ERROR(orchestrator::ApiKeys::load(o.api_keys).status().with_context("--api-keys"));
  if (o.tls_cert.empty()) return Status::ok();
  // What it warns of is in the orchestrator's log; stdout is for `ready`.
  MOESTRO_RETURN_IF_ERROR(log::init("moestro", "error"));
  return orchestrator::TlsIdentity::load({o.tls_cert, o.tls_key}).status();
}

Status check_port(const config::HostPort& http) {
  if (http.port == "0") return Status::ok();
  addrinfo hints{}, *found = nullptr;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  const std::string host = http.host == "localhost" ? "127.0.0.1" : http.host;
  if (::getaddrinfo(host.c_str(), http.port.c_str(), &hints, &found) != 0)
    return invalid_argument("--http " + http.text() + ": '" + http.host + "' is not an IP address");
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> address(found, ::freeaddrinfo);
  const int error = try_to_listen(*address);
  if (error == 0) return Status::ok();
  const std::string where = "--http " + http.text() + ": ";
  if (error == EADDRINUSE)
    return unavailable(where + "the port is in use" + owner_of(http.port) +
                       "; choose another one with --http, or 0 for a free one");
  if (error == EACCES) return unavailable(where + "this user may not listen there; choose a port from 1024 on");
  if (error == EADDRNOTAVAIL) return unavailable(where + "this machine does not have that address");
  return io_error(where + "cannot listen", error);
}

Status check_state(const config::BoxConfig& box, const fs::path& run_dir) {
  MOESTRO_ASSIGN_OR_RETURN(const auto place, orchestrator::state_place(box.orchestrator.state, run_dir));
  if (place.redis) return Status::ok();  // it may come later
  std::error_code error;
  const fs::path from_run_dir = place.database.lexically_relative(fs::absolute(run_dir).lexically_normal());
  const bool inside = !from_run_dir.empty() && *from_run_dir.begin() != "..";
  if (inside && !fs::exists(run_dir, error)) return Status::ok();  // it is made with the directory
  return orchestrator::SqliteStore::look_at(place.database).with_context("--state");
}

}  // namespace moestro::cli
