#include "services/cli/doctor/gpu_findings.h"

#include <algorithm>

#include "common/config/units.h"

namespace moestro::cli {
namespace {

using config::readable_size;

/// As on every machine that was not made for it, and on those whose card is not NVIDIA's.
bool has_nvidia(const MachineFacts& facts) {
  return std::ranges::any_of(facts.gpus, [](const std::string& node) { return node.starts_with("/dev/nvidia"); });
}

std::string nodes_of(const MachineFacts& facts) {
  return facts.gpus.empty() ? "none" : std::to_string(facts.gpus.size()) + " (" + facts.gpus.front() + ")";
}

/// Why CUDA sees none.
Finding none_seen(const MachineFacts& facts) {
  Finding finding{
      "GPU", has_nvidia(facts) ? Verdict::kSlower : Verdict::kInfo,
      nodes_of(facts) + (facts.cuda_refusal.is_ok() ? "" : ", " + facts.cuda_refusal.message()) + "; the CPU computes",
      ""};
  if (facts.cuda_refusal.code() == Code::kUnsupported && has_nvidia(facts))
    finding.mend =
        "cmake --preset cuda && cmake --build build/cuda --target moestro_cuda, next to the programs of the same "
        "build; or MOESTRO_CUDA_PLUGIN=FILE";
  else if (facts.cuda_refusal.code() == Code::kUnavailable && facts.cuda_driver.empty())
    finding.mend = "install NVIDIA's driver (nvidia-smi then names the cards); in a container: docker run --gpus all";
  else if (facts.cuda_refusal.code() == Code::kUnavailable)
    finding.mend =
        "NVIDIA's driver here is " + facts.cuda_driver +
        ": where that is too old for the CUDA that the plugin was built with, take a newer one, or build the plugin "
        "with CUDA 12, which needs driver 525; see nvidia-smi";
  return finding;
}

Finding one_gpu(const MachineFacts& facts, size_t index) {
  const MachineFacts::Gpu& gpu = facts.cuda[index];
  const kernels::CudaDevice& device = gpu.device;
  Finding finding{"GPU " + std::to_string(index), Verdict::kGood, "", ""};
  if (!device.failed.empty()) {
    finding.verdict = Verdict::kSlower;
    finding.found = (device.name.empty() ? "a card" : device.name) + (device.pci.empty() ? "" : ", at " + device.pci) +
                    ": faulty: " + device.failed + "; the others go on without it";
    finding.mend = "nvidia-smi -q and dmesg (Xid) say more; nvidia-smi --gpu-reset, or take the card out";
    return finding;
  }
  finding.found = device.name + ", compute capability " + std::to_string(device.major) + "." +
                  std::to_string(device.minor) + ", " + readable_size(device.free_bytes) + " of " +
                  readable_size(device.total_bytes) + " free" + (device.pci.empty() ? "" : ", at " + device.pci) +
                  (gpu.numa_node          ? ", NUMA node " + std::to_string(*gpu.numa_node)
                   : facts.numa_nodes > 1 ? ", NUMA node not known"
                                          : "");
  std::vector<kernels::CudaDevice> devices;
  for (const MachineFacts::Gpu& one : facts.cuda) devices.push_back(one.device);
  const Status status =
      kernels::check_cuda({.index = static_cast<uint32_t>(index), .any = false, .vram_bytes = 0}, devices);
  if (status.is_ok()) return finding;
  if (!kernels::check_card(device).is_ok()) {
    finding.verdict = Verdict::kInfo;
    finding.found += "; too old, the kernels need " + std::to_string(kernels::kCudaMajorMin) + ".0";
    finding.mend = "use a card of compute capability " + std::to_string(kernels::kCudaMajorMin) + ".0 or later";
  } else if (status.code() == Code::kUnavailable) {
    finding.verdict = Verdict::kSlower;
    finding.found += "; other processes have its memory";
    finding.mend = "nvidia-smi names them; end them, or take another device";
  } else {
    finding.verdict = Verdict::kInfo;
    finding.found += "; " + status.message();
  }
  return finding;
}

}  // namespace

std::vector<Finding> judge_gpus(const MachineFacts& facts) {
  if (facts.cuda.empty()) return {none_seen(facts)};
  std::vector<Finding> findings;
  for (size_t i = 0; i < facts.cuda.size(); ++i) findings.push_back(one_gpu(facts, i));
  return findings;
}

}  // namespace moestro::cli
