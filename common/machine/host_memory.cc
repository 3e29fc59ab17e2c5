#include "common/machine/host_memory.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>

#include "common/machine/mounts.h"

namespace moestro::machine {
namespace {

namespace fs = std::filesystem;

std::string read_text(const fs::path& file) {
  std::ifstream in(file);
  std::ostringstream text;
  text << in.rdbuf();
  return in ? text.str() : std::string();
}

/// "max", nothing and rubbish are no number.
std::optional<uint64_t> number(const std::string& text) {
  if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
  errno = 0;
  const uint64_t value = std::strtoull(text.c_str(), nullptr, 10);
  return errno == 0 ? std::optional(value) : std::nullopt;
}

/// The number after the word `name` at the start of a line, as in meminfo ("MemTotal:") and memory.stat
/// ("inactive_file").
std::optional<uint64_t> field(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word, value;
    if (words >> word >> value && word == name) return number(value);
  }
  return std::nullopt;
}

/// Where v1's and v2's files differ.
struct Dialect {
  const char* limit;
  const char* soft;  ///< beyond it the kernel throttles: for a store that is as good as a limit
  const char* used;
  const char* cache[2];
};
constexpr Dialect kV1{
    "memory.limit_in_bytes", nullptr, "memory.usage_in_bytes", {"total_inactive_file", "total_active_file"}};
constexpr Dialect kV2{"memory.max", "memory.high", "memory.current", {"inactive_file", "active_file"}};

std::optional<MemoryGroup> read_group(const fs::path& dir, const Dialect& dialect) {
  std::optional<uint64_t> limit = number(read_text(dir / dialect.limit));
  if (dialect.soft != nullptr)
    if (const auto soft = number(read_text(dir / dialect.soft))) limit = std::min(limit.value_or(*soft), *soft);
  if (!limit) return std::nullopt;
  MemoryGroup group;
  group.limit_bytes = *limit;
  group.used_bytes = number(read_text(dir / dialect.used)).value_or(0);
  const std::string stat = read_text(dir / "memory.stat");
  for (const char* name : dialect.cache) group.used_bytes -= std::min(group.used_bytes, field(stat, name).value_or(0));
  return group;
}

/// `path` of /proc/self/cgroup below the mount. A container without a cgroup namespace is told the host's path but sees
/// its own group at the mount's root; then, and where the path leads out of the namespace ("/../.."), the mount itself
/// is all there is to see.
std::string below_mount(const std::string& path, const Mount& mount) {
  if (path.find("/..") != std::string::npos) return "";
  if (mount.root == "/") return path;
  if (path == mount.root) return "";
  if (path.starts_with(mount.root + "/")) return path.substr(mount.root.size());
  return "";
}

/// Whether one process, the reader, is all that is in the group of this folder and in those below. Processes that it
/// cannot see are 0.
bool has_one_process(const fs::path& dir) {
  std::istringstream processes(read_text(dir / "cgroup.procs"));
  uint64_t first = 0, more = 0;
  if (!(processes >> first) || first == 0 || processes >> more) return false;
  std::error_code error;
  for (const auto& below : fs::directory_iterator(dir, error))
    if (below.is_directory(error)) return false;
  return !error;
}

void walk(const fs::path& root, const Mount& mount, const std::string& path, const Dialect& dialect,
          std::vector<MemoryGroup>& groups) {
  const std::string point = mount.point == "/" ? "" : mount.point.substr(1);
  std::string below = below_mount(path, mount);
  while (below.ends_with('/')) below.pop_back();
  const size_t first = groups.size();
  while (true) {
    if (auto group = read_group(root / (point + below), dialect)) {
      group->name = below.empty() ? "/" : below;
      group->alone = has_one_process(root / (point + below));
      groups.push_back(std::move(*group));
    }
    if (below.empty()) break;
    below.resize(below.rfind('/'));
  }
  // v1 tells the limit of ancestors that cannot be seen from in here; how much of it others use it does not tell.
  if (dialect.soft != nullptr || groups.size() == first) return;
  const fs::path own = root / (point + below_mount(path, mount));
  const auto above = field(read_text(own / "memory.stat"), "hierarchical_memory_limit");
  const bool seen = above && std::any_of(groups.begin() + static_cast<std::ptrdiff_t>(first), groups.end(),
                                         [&](const MemoryGroup& g) { return g.limit_bytes <= *above; });
  if (above && !seen) groups.push_back({"above " + groups[first].name, *above, groups[first].used_bytes});
}

std::vector<MemoryGroup> read_groups(const fs::path& root) {
  std::vector<MemoryGroup> groups;
  const std::vector<Mount> mounts = read_mounts(root);
  std::istringstream lines(read_text(root / "proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {  // 4:memory:/path, or 0::/path of v2
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    const bool v2 = controllers.empty();
    if (!v2 && !has_option(controllers, "memory")) continue;
    for (const Mount& mount : mounts) {
      if (v2 ? mount.type != "cgroup2" : mount.type != "cgroup" || !has_option(mount.options, "memory")) continue;
      walk(root, mount, path, v2 ? kV2 : kV1, groups);
      break;
    }
  }
  return groups;
}

std::vector<HugePool> read_pools(const fs::path& root) {
  std::vector<HugePool> pools;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root / "sys/kernel/mm/hugepages", error)) {
    const std::string name = entry.path().filename().string();  // hugepages-2048kB
    const auto kib = name.starts_with("hugepages-") ? number(name.substr(10)) : std::nullopt;
    if (!kib) continue;
    const uint64_t free = number(read_text(entry.path() / "free_hugepages")).value_or(0);
    const uint64_t promised = number(read_text(entry.path() / "resv_hugepages")).value_or(0);
    pools.push_back(
        {*kib * 1024, number(read_text(entry.path() / "nr_hugepages")).value_or(0), free - std::min(free, promised)});
  }
  std::sort(pools.begin(), pools.end(),
            [](const HugePool& a, const HugePool& b) { return a.page_bytes < b.page_bytes; });
  return pools;
}

constexpr const char* kMachine = "this machine";

uint64_t minus(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

void tighten(MemoryBound& bound, uint64_t bytes, const MemoryGroup& group) {
  if (bytes < bound.bytes) bound = {bytes, group.limit_bytes, "cgroup " + group.name};
}

/// The word in brackets: "always within_size advise [never]".
std::string chosen_word(const std::string& text) {
  const size_t open = text.find('['), close = text.find(']');
  return open == std::string::npos || close == std::string::npos || close < open
             ? ""
             : text.substr(open + 1, close - open - 1);
}

}  // namespace

MemoryBound HostMemory::left(uint64_t others) const {
  MemoryBound bound{minus(available_bytes, others), total_bytes, kMachine};
  for (const MemoryGroup& group : groups) tighten(bound, minus(group.left_bytes(), group.alone ? 0 : others), group);
  return bound;
}

MemoryBound HostMemory::limit(uint64_t others) const {
  MemoryBound bound{minus(total_bytes, others), total_bytes, kMachine};
  for (const MemoryGroup& group : groups) tighten(bound, minus(group.limit_bytes, group.alone ? 0 : others), group);
  return bound;
}

HostMemory read_host_memory(const fs::path& root) {
  HostMemory memory;
  const std::string info = read_text(root / "proc/meminfo");
  memory.total_bytes = field(info, "MemTotal:").value_or(0) * 1024;
  memory.available_bytes = field(info, "MemAvailable:").value_or(0) * 1024;
  if (memory.total_bytes == 0)
    memory.total_bytes = memory.available_bytes = UINT64_MAX;  // no /proc: nothing to hold against
  memory.groups = read_groups(root);
  std::erase_if(memory.groups, [&](const MemoryGroup& group) { return group.limit_bytes >= memory.total_bytes; });
  memory.huge = read_pools(root);
  memory.shmem_huge = chosen_word(read_text(root / "sys/kernel/mm/transparent_hugepage/shmem_enabled"));
  return memory;
}

}  // namespace moestro::machine
