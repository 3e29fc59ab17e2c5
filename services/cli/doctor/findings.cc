#include "services/cli/doctor/findings.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "common/config/units.h"
#include "services/cli/doctor/gpu_findings.h"

namespace moestro::cli {
namespace {

using config::readable_size;

std::string as_root(const MachineFacts& facts, const std::string& command) {
  return facts.is_root ? command : "sudo sh -c '" + command + "'";
}

Finding processor(const MachineFacts& facts) {
  const std::string cores = std::to_string(facts.cores) + " cores, ";
  const std::string products = cores + "products with " + instructions_by_precision(facts.isa, false);
  if (facts.isa != facts.fastest_isa)
    return {"processor", Verdict::kSlower,
            products + "; it has " + std::string(isa_name(facts.fastest_isa)) +
                ", for which this program was compiled without kernels",
            "compile it here, or with -DMOESTRO_INSTRUCTION_SETS=all"};
  if (facts.isa == kernels::Isa::kScalar)
    return {"processor", Verdict::kSlower, cores + "no AVX2: scalar kernels, many times slower",
            "use an x86-64 processor with AVX2"};
  return {"processor", Verdict::kGood, products, ""};
}

Finding memory(const MachineFacts& facts) {
  Finding finding{
      "memory", Verdict::kGood,
      readable_size(facts.memory_bytes) + ", " + readable_size(facts.memory_available_bytes) + " available",
      ""};
  if (facts.cgroup_limit_bytes) {
    finding.verdict = Verdict::kInfo;
    finding.found += "; " + facts.cgroup + " allows " + readable_size(*facts.cgroup_limit_bytes) + ", of which " +
                     readable_size(facts.cgroup_left_bytes) + " are left; shared memory counts: keep --dram below it";
  }
  return finding;
}

Finding io_uring(const MachineFacts& facts) {
  if (facts.io_uring_error == 0) return {"io_uring", Verdict::kGood, "works", ""};
  Finding finding{"io_uring", Verdict::kSlower, "", ""};
  const std::string cost = "; a pool of pread threads is used instead, which costs more CPU";
  if (facts.io_uring_disabled > 0) {
    finding.found =
        "switched off (kernel.io_uring_disabled=" + std::to_string(facts.io_uring_disabled) + ")" + cost;
    finding.mend = as_root(facts, "sysctl -w kernel.io_uring_disabled=0");
  } else if (facts.io_uring_error == ENOSYS && facts.seccomp_mode == 0) {
    finding.found = "kernel " + facts.kernel + " has none" + cost;
    finding.mend = "use Linux 5.10 or newer";
  } else if (facts.seccomp_mode == 2) {
    finding.found = "refused by a seccomp filter" + cost;
    finding.mend =
        "run the container with a seccomp profile that allows io_uring_setup, io_uring_enter and "
        "io_uring_register";
  } else {
    finding.found = std::string("refused: ") + std::strerror(facts.io_uring_error) + cost;
    finding.mend = facts.io_uring_error == ENOMEM ? "ulimit -l unlimited"
                                                  : as_root(facts, "sysctl -w kernel.io_uring_disabled=0");
  }
  return finding;
}

Finding seccomp(const MachineFacts& facts) {
  if (facts.seccomp_mode == 0) return {"seccomp", Verdict::kGood, "no filter", ""};
  return {"seccomp", Verdict::kInfo,
          facts.io_uring_error == 0 ? "a filter that lets io_uring pass" : "a filter", ""};
}

Finding direct_io(const MachineFacts& facts) {
  const std::string topic = "O_DIRECT";
  if (!facts.pack_dir_closed.empty()) return {topic, Verdict::kInfo, "not tried: " + facts.pack_dir_closed, ""};
  if (!facts.pack_dir_exists)
    return {topic, Verdict::kInfo, facts.pack_dir + " is not a directory: not tried",
            "moestro doctor --pack DIR"};
  if (facts.direct_io_error == EROFS)
    return {topic, Verdict::kInfo, facts.pack_dir + " is read-only and holds no pack: not tried",
            "moestro doctor --pack PACK"};
  if (facts.direct_io_error == 0) return {topic, Verdict::kGood, "works in " + facts.pack_dir, ""};
  return {topic, Verdict::kSlower,
          "refused in " + facts.pack_dir + " (" + std::strerror(facts.direct_io_error) +
              "): a pool of pread threads reads through the page cache, a copy and twice the memory",
          "keep packs on ext4, xfs or btrfs"};
}

Finding huge_pages(const MachineFacts& facts) {
  const std::string topic = "huge pages";
  const bool by_mount = facts.may_mount && !facts.shmem_huge.empty() && facts.shmem_huge != "deny";
  if (by_mount) return {topic, Verdict::kGood, "`up` mounts a tmpfs of its own that has them", ""};
  const bool by_shm = facts.shmem_huge == "force" ||
                      (facts.shmem_huge != "deny" && !facts.shm_huge.empty() && facts.shm_huge != "never");
  if (by_shm && !facts.shmem_huge.empty()) return {topic, Verdict::kGood, "/dev/shm has them", ""};
  if (facts.hugetlb_free_bytes > 0)
    return {topic, Verdict::kInfo,
            readable_size(facts.hugetlb_free_bytes) + " of " + readable_size(facts.hugetlb_bytes) +
                " that are set aside are free",
            "mount a hugetlbfs, and give it to moestro up as --payload-dir"};
  const std::string cost = "; reads from disk reach about half the speed";
  if (facts.shmem_huge.empty())
    return {topic, Verdict::kSlower, "the kernel has no transparent ones for shared memory" + cost,
            as_root(facts, "sysctl vm.nr_hugepages=N") +
                ", N of 2 MiB for the arena; mount a hugetlbfs, and give it to moestro up as --payload-dir"};
  if (facts.shmem_huge == "deny")
    return {topic, Verdict::kSlower, "switched off for all shared memory (shmem_enabled=deny)" + cost,
            as_root(facts, "echo never > /sys/kernel/mm/transparent_hugepage/shmem_enabled") +
                ", which leaves it to each mount"};
  return {topic, Verdict::kSlower, "no right to mount a tmpfs that has them, and /dev/shm has none" + cost,
          "sudo mount -t tmpfs -o huge=within_size,mode=0700,uid=$(id -u),size=SIZE moestro DIR; then "
          "moestro up --arena-dir DIR"};
}

Finding memlock(const MachineFacts& facts) {
  const std::string topic = "locked memory";
  std::string found =
      facts.memlock_bytes == UINT64_MAX ? "no limit" : "limit " + readable_size(facts.memlock_bytes);
  if (facts.may_lock) found = "CAP_IPC_LOCK";
  const bool enough = facts.may_lock || facts.memlock_bytes >= facts.memory_bytes;
  if (enough && facts.register_error == 0) return {topic, Verdict::kGood, found, ""};
  if (facts.register_error != 0)
    found += std::string(": io_uring refuses to register read buffers (") + std::strerror(facts.register_error) + ")";
  else
    found += ": a larger arena is not registered with io_uring as read buffers";
  return {topic, Verdict::kSlower, found + ", which costs some CPU",
          as_root(facts, "setcap cap_ipc_lock+p $(command -v moestro-store)") +
              ", or ulimit -l unlimited (a service: LimitMEMLOCK=infinity; Docker: --cap-add IPC_LOCK, as root)"};
}

Finding shared_memory(const MachineFacts& facts) {
  constexpr uint64_t kSmall = 256 << 20;
  if (facts.shm_bytes == 0)
    return {"/dev/shm", facts.may_mount ? Verdict::kInfo : Verdict::kSlower, "not there",
            "moestro up --arena-dir DIR, on a tmpfs"};
  const std::string size = readable_size(facts.shm_free_bytes) + " free of " + readable_size(facts.shm_bytes);
  if (!facts.shm_is_tmpfs)
    return {"/dev/shm", Verdict::kSlower, "not a tmpfs: the arena would touch a disk",
            "moestro up --arena-dir DIR, on a tmpfs"};
  if (facts.shm_free_bytes < kSmall && !facts.may_mount)
    return {"/dev/shm", Verdict::kSlower, size + ": too small for an arena",
            "docker run --tmpfs /arena:size=SIZE, and moestro up --arena-dir /arena"};
  return {"/dev/shm", Verdict::kGood, size, ""};
}

Finding open_files(const MachineFacts& facts) {
  if (facts.open_files >= 1024)
    return {"open files", Verdict::kGood, "limit " + std::to_string(facts.open_files), ""};
  return {"open files", Verdict::kSlower,
          "limit " + std::to_string(facts.open_files) + ": few clients can be connected at once",
          "ulimit -n 65536"};
}

Finding numa(const MachineFacts& facts) {
  if (facts.numa_nodes <= 1) return {"NUMA", Verdict::kGood, "one node", ""};
  return {"NUMA", Verdict::kInfo,
          std::to_string(facts.numa_nodes) +
              " nodes; weights are spread over those that all workers keep to, else over all (--numa): a store's line "
              "says where they lie, each worker's log how far that is",
          ""};
}

}  // namespace

std::string_view verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kGood:
      return "good";
    case Verdict::kInfo:
      return "info";
    case Verdict::kSlower:
      return "slower";
    case Verdict::kMissing:
      return "missing";
  }
  return "?";
}

std::vector<Finding> judge(const MachineFacts& facts) {
  std::vector<Finding> findings = {processor(facts), memory(facts),        io_uring(facts),
                                   seccomp(facts),   direct_io(facts),     huge_pages(facts),
                                   memlock(facts),   shared_memory(facts), open_files(facts)};
  std::ranges::move(judge_gpus(facts), std::back_inserter(findings));
  findings.push_back(numa(facts));
  return findings;
}

}  // namespace moestro::cli
