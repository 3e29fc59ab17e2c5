#pragma once
// The facts about this machine that `doctor` reads. Plain data, which tests write by hand.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "kernels/devices/device_registry.h"
#include "kernels/ops.h"

namespace moestro::cli {

struct MachineFacts {
  std::string kernel;  ///< "6.1.0-18-amd64"
  uint64_t cores = 1;
  kernels::Isa isa = kernels::Isa::kScalar;  ///< the best that it has, and this program has kernels for
  kernels::Isa fastest_isa = kernels::Isa::kScalar;  ///< the best that it has

  uint64_t memory_bytes = 0, memory_available_bytes = 0;
  std::optional<uint64_t> cgroup_limit_bytes;  ///< the lowest, if it is below the machine's memory
  std::string cgroup;                          ///< the cgroup with that limit
  uint64_t cgroup_left_bytes = 0;              ///< what all groups leave

  int io_uring_error = 0;      ///< errno of io_uring_setup, 0: works
  int register_error = 0;      ///< errno of registering a read buffer of 16 MiB with it, 0: works, or not tried
  int io_uring_disabled = -1;  ///< /proc/sys/kernel/io_uring_disabled, -1: not there
  int seccomp_mode = 0;        ///< of this process: 0 none, 1 strict, 2 filter

  std::string pack_dir;  ///< the folder of packs that was given
  bool pack_dir_exists = false;
  std::string pack_dir_closed;  ///< why this user may not read it; empty: it may, or nothing is there
  int direct_io_error = 0;  ///< errno of an O_DIRECT open there; 0: works

  std::string shmem_huge;  ///< the chosen word of shmem_enabled: "never"; empty: no transparent huge pages
  std::string shm_huge;        ///< word of the option `huge=` of /dev/shm's mount; empty: none, as `never`
  uint64_t hugetlb_bytes = 0, hugetlb_free_bytes = 0;  ///< reserved pages of all sizes
  bool may_mount = false;      ///< CAP_SYS_ADMIN
  bool is_root = false;

  uint64_t memlock_bytes = 0;  ///< soft limit; UINT64_MAX: none
  bool may_lock = false;       ///< CAP_IPC_LOCK
  uint64_t open_files = 0;     ///< soft limit

  bool shm_is_tmpfs = false;
  uint64_t shm_bytes = 0, shm_free_bytes = 0;

  std::vector<std::string> gpus;  ///< device nodes
  struct Gpu {
    kernels::CudaDevice device;
    std::optional<int> numa_node;
  };
  std::vector<Gpu> cuda;     ///< as reported by CUDA
  Status cuda_refusal;       ///< why it sees none
  std::string cuda_driver;   ///< version of NVIDIA's; empty: none is loaded
  std::string cuda_plugin;   ///< where it is looked for
  uint64_t numa_nodes = 1;
};

/// `pack_dir`: the folder of packs, for O_DIRECT. Never fails: what cannot be read keeps its default.
MachineFacts look_at_machine(const std::filesystem::path& pack_dir);

}  // namespace moestro::cli
