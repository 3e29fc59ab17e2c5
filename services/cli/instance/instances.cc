#include "services/cli/instance/instances.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>

#include "common/shm/file_access.h"
#include "common/shm/mapped_file.h"
#include "services/box/named_pack.h"
#include "services/cli/instance/own_server.h"

namespace moestro::cli {
namespace {

namespace fs = std::filesystem;

/// Whether a program listens there. It hears no more than a client that hangs up.
bool accepts(const fs::path& socket) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket.string().size() >= sizeof address.sun_path) return false;
  std::strcpy(address.sun_path, socket.c_str());
  const shm::UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return false;
  // EAGAIN: so many wait already that this one could not.
  return ::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 || errno == EAGAIN;
}

/// An error unless `dir` is a directory of this user that nobody else could have put there.
Status check_own(const fs::path& dir) {
  constexpr const char* kWhat = "run directory";
  MOESTRO_RETURN_IF_ERROR(shm::check_way(dir / "http.port", kWhat));
  struct stat info {};
  if (::lstat(dir.c_str(), &info) != 0) return io_error(std::string(kWhat) + " " + dir.string(), errno);
  if (S_ISDIR(info.st_mode) && info.st_uid == ::geteuid()) return Status::ok();
  return invalid_argument(std::string(kWhat) + " " + dir.string() +
                          " is not a directory of this user; name one with --run-dir");
}

std::string list_of(const std::vector<Instance>& instances, const std::function<std::string(const Instance&)>& place) {
  std::string list;
  for (const Instance& instance : instances)
    list += (list.empty() ? "" : ", ") + instance.name + " (" + place(instance) + ")";
  return list;
}

Result<Server> server_of_instance(const Instance& instance, const ServerOptions& options) {
  config::BoxConfig box;
  MOESTRO_RETURN_IF_ERROR(read_box_in_effect(instance.run_dir, box));
  return own_server(box, instance.run_dir, options);
}

}  // namespace

std::vector<Instance> find_instances(const std::vector<fs::path>& homes) {
  std::vector<Instance> found;
  for (const fs::path& home : homes) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(home, error)) {
      const fs::path& dir = entry.path();
      if (!check_own(dir).is_ok()) continue;
      if (accepts(dir / "store.sock") || accepts(dir / "orchestrator.sock"))
        found.push_back({dir.filename().string(), dir});
    }
  }
  std::ranges::sort(found, {}, &Instance::name);
  return found;
}

Result<Instance> only_instance(const std::vector<Instance>& found) {
  if (found.size() == 1) return found.front();
  if (found.empty())
    return unavailable(
        "no cluster of this user runs here: start one with `moestro up --model PACK`, or name the directory of one "
        "with --run-dir");
  return invalid_argument(
      "several clusters run here: " + list_of(found, [](const Instance& i) { return i.run_dir.string(); }) +
      "; choose one with --name or --run-dir");
}

Result<fs::path> run_dir_of(const std::string& name, const std::vector<fs::path>& homes) {
  const std::string directory = box::name_in_path(name);
  for (const Instance& instance : find_instances(homes))
    if (instance.name == directory) return instance.run_dir;
  const fs::path dir = homes.front() / directory;
  std::error_code error;
  // One that is not there yet is not waited for: another user might be the one who makes it.
  if (fs::symlink_status(dir, error).type() == fs::file_type::not_found)
    return unavailable("no cluster '" + name + "' of this user runs here: " + dir.string() +
                       " is not there; name another directory with --run-dir");
  MOESTRO_RETURN_IF_ERROR(check_own(dir));
  return dir;
}

Result<Server> find_server(const ServerOptions& options, const std::vector<fs::path>& homes) {
  if (!options.url.empty()) return server_of(options);
  const std::vector<Instance> found = find_instances(homes);
  if (found.size() == 1) return server_of_instance(found.front(), options);
  if (!found.empty()) {
    const auto place = [&](const Instance& instance) {
      const auto server = server_of_instance(instance, options);
      return server ? server->url.origin() : server.status().message();
    };
    return invalid_argument("several servers run here: " + list_of(found, place) + "; choose one with --url");
  }
  ServerOptions usual = options;
  usual.url = kDefaultUrl;
  MOESTRO_ASSIGN_OR_RETURN(Server server, server_of(usual));
  server.access.not_there = "start a server with `moestro up --model PACK`, or name one with --url";
  return server;
}

}  // namespace moestro::cli
