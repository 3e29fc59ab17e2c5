#include "services/cli/up/launch_plan.h"

#include <algorithm>
#include <set>

#include "common/config/host_port.h"
#include "common/config/yaml_file.h"
#include "common/machine/numa.h"
#include "common/may_read.h"
#include "common/model/served_pack.h"
#include "common/shm/whole_file.h"
#include "orchestrator/state/redis_place.h"
#include "services/box/https.h"
#include "services/box/named_pack.h"
#include "services/cli/common/checkpoint_hint.h"
#include "services/worker/mixed_options.h"
#include "services/worker/worker_device.h"

namespace moestro::cli {

namespace fs = std::filesystem;

namespace {

Status check_without_devices(config::BoxConfig& box) {
  if (box.model.pack.empty())
    return invalid_argument("no model: give --model PACK, or model.pack in a file with -c");
  MOESTRO_RETURN_IF_ERROR(machine::parse_node_choice(box.store.numa).status().with_context("--numa (store.numa)"));
  const auto device = config::parse_device(box.workers.device);
  if (!device.is_ok()) return device.status().with_context("--device (workers.device)");
  MOESTRO_RETURN_IF_ERROR(
      device::check_worker_device({.spec = *device, .cache = box.workers.cache, .predict = box.workers.predict}));
  if (box.workers.deterministic && box.workers.capacity_factor)
    return invalid_argument(
        "--capacity-factor and --deterministic exclude each other: which tokens an expert drops depends on what else "
        "is in the batch");
  MOESTRO_ASSIGN_OR_RETURN(const auto mixed, worker::mixed_options(box, device->kind));
  if (!mixed && box.orchestrator.mixed_warn_share)
    return invalid_argument("--mixed-warn-share (orchestrator.mixed_warn_share) reports low copies, and --mixed is "
                            "off; give --mixed too, or leave it out");
  std::string& state = box.orchestrator.state;
  const bool elsewhere = orchestrator::is_redis_url(state);
  if (!elsewhere && state.find("://") != std::string::npos)
    return unsupported("--state '" + state + "' is neither sqlite:PATH nor redis://HOST:PORT/DB");
  MOESTRO_RETURN_IF_ERROR(box::serves_https(box).status());
  MOESTRO_RETURN_IF_ERROR(check_may_read(fs::path(box.model.pack) / "manifest", box.model.pack));
  std::error_code error;
  const fs::path pack = fs::weakly_canonical(fs::absolute(box.model.pack), error);
  if (error || !fs::is_regular_file(pack / "manifest", error)) return no_pack_at(box.model.pack);
  const bool on_gpu = device->kind == config::DeviceSpec::Kind::kCuda;
  MOESTRO_RETURN_IF_ERROR(model::check_device(pack, box.workers.device, on_gpu));
  box.model.pack = pack.string();
  MOESTRO_ASSIGN_OR_RETURN(const auto model, box::model_of(box));
  box.model.name = model.name;
  MOESTRO_RETURN_IF_ERROR(box::aliases_of(box).status());
  // The programs need not stand where this one was started.
  for (std::string* file : {&box.workers.trace, &box.workers.timeline, &box.orchestrator.api_keys,
                            &box.orchestrator.tls_cert, &box.orchestrator.tls_key})
    if (!file->empty()) *file = fs::absolute(*file).string();
  // Likewise a state's file.
  const std::string scheme = "sqlite:";
  if (state.starts_with(scheme)) state = scheme + fs::absolute(state.substr(scheme.size())).string();
  else if (state != "default" && !elsewhere) state = fs::absolute(state).string();
  // With its address in full, as the programs and `moestro top` read it.
  const auto http = config::parse_listen_address(box.orchestrator.http);
  if (!http) return http.status().with_context("--http (orchestrator.http)");
  box.orchestrator.http = http->text();
  return Status::ok();
}

/// Flags of the worker alone, over the box's file. None where all workers are the same.
std::vector<std::string> place_flags(const config::BoxConfig& box, const WorkerPlace& place) {
  std::vector<std::string> flags;
  if (place.device != box.workers.device) flags.insert(flags.end(), {"--device", place.device});
  if (place.numa_node)
    flags.insert(flags.end(), {"--numa-node", std::to_string(*place.numa_node), "--cpu-share",
                               box::text_of(place.share)});
  return flags;
}

/// Weights lie on the nodes that all workers keep to, where nothing else is said.
std::vector<std::string> store_flags(const config::BoxConfig& box, const std::vector<WorkerPlace>& workers,
                                     std::span<const int> memory_nodes) {
  if (box.store.numa != "auto" || memory_nodes.size() < 2) return {};
  std::set<int> nodes;
  for (const WorkerPlace& worker : workers) {
    const auto node = worker.numa_node ? worker.numa_node : box.workers.numa_node;
    if (!node || std::ranges::find(memory_nodes, *node) == memory_nodes.end()) return {};
    nodes.insert(static_cast<int>(*node));
  }
  return {"--numa", machine::id_list(std::vector<int>(nodes.begin(), nodes.end()))};
}

}  // namespace

Result<std::vector<WorkerPlace>> check_box(config::BoxConfig& box, const MachineDevices& machine) {
  MOESTRO_RETURN_IF_ERROR(check_without_devices(box));
  return place_workers(box, machine);  // last: it may have to wake GPUs
}

Status write_box_file(config::BoxConfig box, const Places& places) {
  box.run.dir = fs::absolute(places.run_dir).string();
  box.store.arena_dir = fs::absolute(places.arena_dir).string();
  // A state's URL may have a password: --group does not open this file.
  return shm::write_whole_file(box_file(places), config::to_yaml(config::box_schema(box)), 0600);
}

fs::path box_file(const Places& places) { return places.run_dir / "box.yaml"; }

std::vector<Launch> plan_launches(const config::BoxConfig& box, const Places& places,
                                  const std::vector<WorkerPlace>& workers, std::span<const int> memory_nodes) {
  const std::vector<std::string> config{"-c", box_file(places).string()};
  std::vector<Launch> launches{{{"store", Role::kStore}, "moestro-store", config}};
  for (std::string& flag : store_flags(box, workers, memory_nodes)) launches[0].arguments.push_back(std::move(flag));
  for (size_t i = 0; i < workers.size(); ++i) {
    const std::string name = "worker-" + std::to_string(i);
    Launch launch{{name, Role::kWorker}, "moestro-worker", {config[0], config[1], "--name", name}};
    for (std::string& flag : place_flags(box, workers[i])) launch.arguments.push_back(std::move(flag));
    launches.push_back(std::move(launch));
  }
  launches.push_back({{"orchestrator", Role::kOrchestrator}, "moestro-orchestrator", config});
  return launches;
}

}  // namespace moestro::cli
