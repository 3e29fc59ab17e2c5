#include "services/cli/up/worker_places.h"

#include <algorithm>
#include <map>

#include "common/config/units.h"
#include "common/machine/numa_pages.h"
#include "kernels/cpu/topology.h"

namespace moestro::cli {
namespace {

using config::CudaDeviceSpec;
using kernels::CudaDevice;

/// What CUDA takes for each further process on a device, at most: its context, and what kernels need once they run. One
/// context is in what is free already.
uint64_t context_bytes(const CudaDevice& device) { return (512ull << 20) + device.total_bytes / 100; }

std::string note_of(const CudaDeviceSpec& spec, const CudaDevice& device, std::optional<int> node) {
  return "on cuda:" + std::to_string(spec.index) + ", " + device.name +
         (device.pci.empty() ? "" : " (" + device.pci + ")") + (node ? ", NUMA node " + std::to_string(*node) : "") +
         (spec.vram_bytes > 0 ? ", at most " + config::readable_size(spec.vram_bytes) + " of its memory" : "");
}

/// `workers` of them on one device without a limit: what each may take, a multiple of 1 MiB.
Result<uint64_t> even_share(const CudaDevice& device, uint64_t workers) {
  constexpr uint64_t kMiB = 1 << 20;
  const uint64_t contexts = (workers - 1) * context_bytes(device);
  const uint64_t each = device.free_bytes > contexts ? (device.free_bytes - contexts) / workers / kMiB * kMiB : 0;
  if (each > 0) return each;
  return exhausted(config::readable_size(device.free_bytes) + " of the " + device.name +
                   "'s memory are free, too little for " + std::to_string(workers) + " workers; lower --workers");
}

Result<std::vector<WorkerPlace>> place_on_cuda(const config::BoxConfig& box, const CudaDeviceSpec& asked,
                                               const MachineDevices& machine) {
  MOESTRO_ASSIGN_OR_RETURN(const std::vector<CudaDevice> devices, kernels::look_at_cuda(machine.plugin));
  const auto count = static_cast<size_t>(box.workers.count);
  MOESTRO_ASSIGN_OR_RETURN(const std::vector<uint32_t> targets, kernels::usable_cuda(asked, devices));
  std::vector<WorkerPlace> places(count);
  std::map<int64_t, int> on_node;
  for (size_t i = 0; i < count; ++i) {
    CudaDeviceSpec spec = asked;
    spec.index = targets[i % targets.size()], spec.any = false;
    const CudaDevice& device = devices[spec.index];
    const uint64_t here = count / targets.size() + (i % targets.size() < count % targets.size() ? 1 : 0);
    if (spec.vram_bytes > device.free_bytes / here)
      return invalid_argument(std::to_string(here) + " workers are on cuda:" + std::to_string(spec.index) +
                              ", which has " + config::readable_size(device.free_bytes) + " free, and vram=" +
                              config::format_size(spec.vram_bytes) + " is for each of them: lower it, or --workers");
    if (here > 1 && spec.vram_bytes == 0) {
      MOESTRO_ASSIGN_OR_RETURN(spec.vram_bytes, even_share(device, here));
    }
    const std::optional<int> node = kernels::numa_node_of(device.pci, machine.pci_devices);
    places[i] = {
        .device = config::device_text(spec), .numa_node = {}, .share = {}, .note = note_of(spec, device, node)};
    if (!node || box.workers.numa_node || std::ranges::find(machine.nodes, *node) == machine.nodes.end()) continue;
    places[i].numa_node = *node;
    places[i].share.k = on_node[*node]++;
  }
  for (uint32_t i = 0; asked.any && i < devices.size(); ++i)
    if (!devices[i].failed.empty())
      places[0].note += "; cuda:" + std::to_string(i) + " is left alone: " + kernels::check_card(devices[i]).message();
  for (WorkerPlace& place : places)
    if (place.numa_node) place.share.of = on_node[*place.numa_node];
  return places;
}

}  // namespace

MachineDevices this_machine() {
  MachineDevices machine;
  machine.nodes = kernels::cpu::Topology::of_process().nodes();
  return machine;
}

std::vector<int> memory_nodes_to_choose() {
  return machine::has_memory_policy() ? std::vector<int>{} : machine::memory_nodes();
}

Result<std::vector<WorkerPlace>> place_workers(const config::BoxConfig& box, const MachineDevices& machine) {
  const std::string& device = box.workers.device;
  const auto spec = config::parse_device(device);
  if (!spec.is_ok()) return spec.status().with_context("--device (workers.device)");
  if (spec->kind != config::DeviceSpec::Kind::kCuda)
    return std::vector<WorkerPlace>(static_cast<size_t>(box.workers.count),
                                    {.device = device, .numa_node = {}, .share = {}, .note = ""});
  auto places = place_on_cuda(box, spec->cuda, machine);
  if (!places.is_ok()) return places.status().with_context("--device " + device);
  return places;
}

}  // namespace moestro::cli
