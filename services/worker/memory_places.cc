#include "services/worker/memory_places.h"

#include <algorithm>
#include <set>

#include "kernels/cpu/topology.h"
#include "kernels/devices/device_registry.h"

namespace moestro::worker {
namespace {

/// Where the weights are wanted; none: it does not matter, or nobody knows.
std::optional<int> wanted_node(const MemoryPlaces& p) {
  if (!p.device.empty()) return p.gpu;
  return p.threads.size() == 1 ? std::optional(p.threads.front()) : std::nullopt;
}

/// Less than half of what lies there when weights are spread over all nodes.
bool little_of(const std::map<int, size_t>& arena, int node, size_t nodes) {
  size_t all = 0;
  for (const auto& [where, pages] : arena) all += pages;
  const auto here = arena.find(node);
  return all > 0 && (here == arena.end() ? 0 : here->second) * nodes * 2 < all;
}

/// Of a CPU's worker on several nodes.
std::string who_computes(const MemoryPlaces& p) {
  if (p.arena.empty()) return "; the kernel does not tell where weights lie (move_pages), so any thread computes any";
  if (!p.threads_stay) return "; no thread keeps to a node, so any computes any: see --pin-threads";
  const bool all_have_threads = std::ranges::all_of(
      p.arena, [&](const auto& on) { return std::ranges::find(p.threads, on.first) != p.threads.end(); });
  return all_have_threads && p.arena.size() == p.threads.size()
             ? "; what lies on a node is computed there"
             : "; each thread computes what lies on its node first, then what is left";
}

}  // namespace

PlacesReport report_places(const MemoryPlaces& p) {
  PlacesReport report;
  if (p.nodes.size() < 2) return report;
  if (!p.device.empty())
    report.line = p.device + (p.gpu ? " is at NUMA node " + std::to_string(*p.gpu) + ", "
                                    : " is at a NUMA node that the machine does not name, ");
  report.line +=
      "threads on NUMA " + std::string(p.threads.size() == 1 ? "node " : "nodes ") + machine::id_list(p.threads);
  if (!p.arena.empty()) report.line += ", weights on " + machine::node_shares(p.arena);
  if (p.device.empty() && p.threads.size() > 1) report.line += who_computes(p);
  const auto node = wanted_node(p);
  if (!node) return report;
  const bool threads_away = std::ranges::find(p.threads, *node) == p.threads.end(),
             weights_away = little_of(p.arena, *node, p.nodes.size());
  report.remote = threads_away || weights_away;
  if (threads_away) report.line += "; threads far from their GPU: --numa-node " + std::to_string(*node);
  if (weights_away)
    report.line += "; weights come from another node: --numa " + std::to_string(*node) + " of the store, or --numa " +
                   machine::id_list(p.nodes) + " where workers are on all";
  return report;
}

MemoryPlaces look_at_places(const ThreadPlaces& threads, const cuda::CudaDevice* device,
                            const machine::NodeMap& weights) {
  MemoryPlaces p;
  p.nodes = machine::memory_nodes();
  if (p.nodes.size() < 2) return p;
  if (device != nullptr)
    p.device = "cuda:" + std::to_string(device->index()), p.gpu = kernels::numa_node_of(device->pci());
  p.threads_stay = !threads.nodes.empty();
  const std::set<int> pinned(threads.nodes.begin(), threads.nodes.end());
  p.threads =
      p.threads_stay ? std::vector<int>(pinned.begin(), pinned.end()) : kernels::cpu::Topology::of_process().nodes();
  p.arena = weights.pieces();
  return p;
}

}  // namespace moestro::worker
