#include "services/box/places.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace moestro::box {

namespace fs = std::filesystem;

std::vector<fs::path> run_homes() {
  std::vector<fs::path> homes;
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  std::error_code error;
  if (runtime != nullptr && runtime[0] == '/' && fs::is_directory(runtime, error))
    homes.push_back(fs::path(runtime) / "moestro");
  homes.push_back(fs::path("/tmp") / ("moestro-" + std::to_string(::geteuid())));
  return homes;
}

std::string store_endpoint(const fs::path& run_dir) { return "ipc://" + (run_dir / "store.sock").string(); }
std::string orchestrator_endpoint(const fs::path& run_dir) {
  return "ipc://" + (run_dir / "orchestrator.sock").string();
}

fs::path insert_name(const fs::path& file, const std::string& name) {
  const std::string leaf = file.filename().string();
  const size_t dot = leaf.find('.', 1);
  const std::string stem = leaf.substr(0, dot), rest = dot == std::string::npos ? "" : leaf.substr(dot);
  return file.parent_path() / (stem + "." + name + rest);
}

std::string own_file(const config::BoxConfig& box, const std::string& file, const std::string& worker) {
  return file.empty() || box.workers.count == 1 ? file : insert_name(file, worker).string();
}

std::optional<int64_t> worker_threads(const config::BoxConfig& box, int64_t cores) {
  if (box.workers.threads || box.workers.count == 1) return box.workers.threads;
  return std::max<int64_t>(1, cores / box.workers.count);
}

}  // namespace moestro::box
