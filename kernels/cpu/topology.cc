#include "kernels/cpu/topology.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <map>
#include <set>

#include "common/machine/numa.h"

namespace moestro::kernels::cpu {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

std::vector<int> parse_cpu_list(const std::string& text) { return machine::parse_id_list(text, CPU_SETSIZE); }

/// CPU -> node, of all that the tree names.
std::map<int, int> nodes_of_cpus(const fs::path& system) {
  std::map<int, int> node_of;
  for (const int node : parse_cpu_list(first_line(system / "node/online")))
    for (const int cpu : parse_cpu_list(first_line(system / ("node/node" + std::to_string(node)) / "cpulist")))
      node_of[cpu] = node;
  return node_of;
}

}  // namespace

Topology Topology::read(const fs::path& system, std::span<const int> allowed) {
  const std::map<int, int> node_of = nodes_of_cpus(system);
  const std::set<int> usable(allowed.begin(), allowed.end());
  Topology t;
  for (const int cpu : usable) {
    const auto node = node_of.find(cpu);
    Cpu c{cpu, node == node_of.end() ? 0 : node->second, true};
    for (const int sibling :
         parse_cpu_list(first_line(system / ("cpu/cpu" + std::to_string(cpu)) / "topology/thread_siblings_list")))
      if (sibling < cpu && usable.contains(sibling)) c.first_of_core = false;
    t.cpus_.push_back(c);
  }
  t.count();
  return t;
}

void Topology::count() {
  std::stable_sort(cpus_.begin(), cpus_.end(), [](const Cpu& a, const Cpu& b) { return a.node < b.node; });
  for (const Cpu& c : cpus_) {
    if (nodes_.empty() || nodes_.back() != c.node) nodes_.push_back(c.node);
    cores_ += c.first_of_core;
  }
}

Topology Topology::of_process() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  std::vector<int> allowed;
  if (sched_getaffinity(0, sizeof mask, &mask) == 0)
    for (int i = 0; i < CPU_SETSIZE; ++i)
      if (CPU_ISSET(i, &mask)) allowed.push_back(i);
  return read("/sys/devices/system", allowed);
}

std::vector<int> Topology::cpus_of(int node) const {
  std::vector<int> ids;
  for (const Cpu& c : cpus_)
    if (c.node == node) ids.push_back(c.id);
  return ids;
}

int Topology::node_of(int cpu) const {
  const auto found = std::ranges::find(cpus_, cpu, &Cpu::id);
  return found == cpus_.end() ? 0 : found->node;
}

Result<Topology> Topology::only(int node) const {
  Topology t;
  for (const Cpu& c : cpus_)
    if (c.node == node) t.cpus_.push_back(c);
  t.count();
  if (t.cpus() > 0) return t;
  std::string there;
  for (const int n : nodes_) there += (there.empty() ? "" : ", ") + std::to_string(n);
  return invalid_argument("NUMA node " + std::to_string(node) +
                          " has no CPU that this process may use; nodes that have: " + there);
}

std::vector<int> Topology::cores_for(int threads, int skip) const {
  std::vector<int> ids;
  for (const Cpu& c : cpus_)
    if (c.first_of_core && skip-- <= 0 && static_cast<int>(ids.size()) < threads) ids.push_back(c.id);
  return static_cast<int>(ids.size()) == threads ? ids : std::vector<int>{};
}

Status run_on(std::span<const int> cpus) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  for (const int cpu : cpus)
    if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(cpu, &mask);
  return sched_setaffinity(0, sizeof mask, &mask) == 0 ? Status::ok() : io_error("sched_setaffinity", errno);
}

}  // namespace moestro::kernels::cpu
