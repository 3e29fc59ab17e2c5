#include "services/worker/thread_places.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "services/box/places.h"

namespace moestro::worker {
namespace {

/// K of "worker-K", as `up` names them; none for other names.
std::optional<int> ordinal_of(const std::string& name) {
  constexpr std::string_view kPrefix = "worker-";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const char* end = name.data() + name.size();
  int k = 0;
  const auto parsed = std::from_chars(name.data() + kPrefix.size(), end, k);
  if (parsed.ptr != end || parsed.ec != std::errc{} || k < 0 || k > 1024) return std::nullopt;
  return k;
}

}  // namespace

Result<ThreadPlaces> place_threads(const config::BoxConfig& asked, const std::string& name,
                                   kernels::cpu::Topology machine, std::optional<box::CpuShare> share) {
  config::BoxConfig box = asked;
  if (share) box.workers.count = share->of;
  const config::BoxConfig::Workers& w = box.workers;
  ThreadPlaces places;
  if (w.numa_node) {
    const auto node = static_cast<int>(*w.numa_node);
    places.allowed = machine.cpus_of(node);
    auto one = machine.only(node);
    if (!one.is_ok()) return one.status().with_context("--numa-node");
    machine = std::move(*one);
  }
  const int64_t cores = std::max(1, machine.cores());
  places.threads = static_cast<int>(box::worker_threads(box, cores).value_or(cores));
  if (w.pin_threads == "off" || (w.pin_threads == "auto" && machine.nodes().size() < 2)) return places;
  const std::optional<int> k = share ? share->k : w.count == 1 ? 0 : ordinal_of(name);
  if (k) places.cpus = machine.cores_for(places.threads, *k * places.threads);
  for (const int cpu : places.cpus) places.nodes.push_back(machine.node_of(cpu));
  if (!places.nodes.empty()) places.main_cpus = machine.cpus_of(places.nodes.front());
  if (!places.cpus.empty() || w.pin_threads == "auto") return places;
  if (!k)
    return invalid_argument(
        "--pin-threads on: of several workers, those named worker-0, worker-1, ... know which cores are theirs; this "
        "one is '" +
        name + "'");
  return invalid_argument("--pin-threads on: " + std::to_string(places.threads) + " threads of " + name +
                          " would be on cores " + std::to_string(*k * places.threads + 1) + " to " +
                          std::to_string((*k + 1) * places.threads) + " of " + std::to_string(machine.cores()) +
                          "; lower --threads, or take auto");
}

}  // namespace moestro::worker
