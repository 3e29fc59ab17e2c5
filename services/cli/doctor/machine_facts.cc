#include "services/cli/doctor/machine_facts.h"

#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <thread>

#include "common/machine/host_memory.h"
#include "common/machine/mounts.h"
#include "common/may_read.h"

namespace moestro::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kCapIpcLock = 14, kCapSysAdmin = 21;

std::string read_file(const fs::path& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return in ? text.str() : std::string();
}

/// The first word after "NAME:" at the start of a line.
std::string field(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name + ":")) continue;
    std::istringstream words(line.substr(name.size() + 1));
    std::string word;
    words >> word;
    return word;
  }
  return {};
}

std::optional<uint64_t> number(const std::string& text, int base = 10) {
  char* end = nullptr;
  errno = 0;
  const uint64_t value = std::strtoull(text.c_str(), &end, base);
  if (end == text.c_str() || errno != 0) return std::nullopt;
  return value;
}

constexpr size_t kTriedBuffer = 16 << 20;  // more than what a plain user may lock by default

/// Registers a buffer with a ring, which pins it; it goes with the ring.
int try_registering(int ring) {
  void* memory = ::mmap(nullptr, kTriedBuffer, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return errno;
  const iovec buffer{memory, kTriedBuffer};
  const long done = ::syscall(__NR_io_uring_register, ring, IORING_REGISTER_BUFFERS, &buffer, 1);
  const int error = done < 0 ? errno : 0;
  ::munmap(memory, kTriedBuffer);
  return error;
}

/// A ring is made and closed; liburing is not needed to see whether the kernel allows it.
void try_io_uring(MachineFacts& facts) {
  io_uring_params params{};
  const long fd = ::syscall(__NR_io_uring_setup, 4, &params);
  facts.io_uring_error = fd < 0 ? errno : 0;
  if (fd < 0) return;
  facts.register_error = try_registering(static_cast<int>(fd));
  ::close(static_cast<int>(fd));
}

/// Opens the pack's manifest with O_DIRECT, or a nameless file where there is none.
int try_direct_io(const fs::path& dir) {
  int fd = ::open((dir / "manifest").c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT) fd = ::open(dir.c_str(), O_RDWR | O_TMPFILE | O_DIRECT | O_CLOEXEC, 0600);
  if (fd < 0) return errno;
  ::close(fd);
  return 0;
}

/// The number of the first of `files` that has one.
std::optional<uint64_t> first_number(const std::vector<fs::path>& files) {
  for (const fs::path& file : files)
    if (const auto value = number(read_file(file))) return value;
  return std::nullopt;
}

void look_at_memory(MachineFacts& facts) {
  const machine::HostMemory memory = machine::read_host_memory();
  facts.memory_bytes = memory.total_bytes;
  facts.memory_available_bytes = memory.available_bytes;
  if (const machine::MemoryBound limit = memory.limit(); limit.bytes < facts.memory_bytes)
    facts.cgroup_limit_bytes = limit.bytes, facts.cgroup = limit.whose, facts.cgroup_left_bytes = memory.left().bytes;
  facts.shmem_huge = memory.shmem_huge;
  for (const machine::HugePool& pool : memory.huge) {
    facts.hugetlb_bytes += pool.pages * pool.page_bytes;
    facts.hugetlb_free_bytes += pool.free_pages * pool.page_bytes;
  }
  if (const auto mount = machine::mount_of("/dev/shm", machine::read_mounts()))
    facts.shm_huge = machine::option_value(mount->options, "huge");
  struct statfs shm {};
  if (::statfs("/dev/shm", &shm) == 0) {
    facts.shm_is_tmpfs = shm.f_type == TMPFS_MAGIC;
    facts.shm_bytes = static_cast<uint64_t>(shm.f_blocks) * static_cast<uint64_t>(shm.f_bsize);
    facts.shm_free_bytes = static_cast<uint64_t>(shm.f_bavail) * static_cast<uint64_t>(shm.f_bsize);
  }
}

void look_at_rights(MachineFacts& facts) {
  const std::string status = read_file("/proc/self/status");
  const uint64_t capabilities = number(field(status, "CapEff"), 16).value_or(0);
  facts.may_lock = (capabilities >> kCapIpcLock & 1) != 0;
  facts.may_mount = (capabilities >> kCapSysAdmin & 1) != 0;
  facts.seccomp_mode = static_cast<int>(number(field(status, "Seccomp")).value_or(0));
  facts.is_root = ::geteuid() == 0;
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0)
    facts.memlock_bytes = limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur;
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) facts.open_files = limit.rlim_cur;
}

void look_at_processor(MachineFacts& facts) {
  facts.cores = std::max(1u, std::thread::hardware_concurrency());
  facts.isa = kernels::best_isa();
  facts.fastest_isa = kernels::fastest_isa_of_machine();
  std::error_code error;
  uint64_t nodes = 0;
  for (const auto& entry : fs::directory_iterator("/sys/devices/system/node", error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("node") && name.find_first_not_of("0123456789", 4) == std::string::npos) ++nodes;
  }
  facts.numa_nodes = std::max<uint64_t>(1, nodes);
}

void look_at_gpus(MachineFacts& facts) {
  std::error_code error;
  for (int i = 0; i < 64; ++i)
    if (const std::string node = "/dev/nvidia" + std::to_string(i); fs::exists(node, error))
      facts.gpus.push_back(node);
  if (fs::exists("/dev/kfd", error)) facts.gpus.push_back("/dev/kfd");
  facts.cuda_driver = kernels::nvidia_driver();
  facts.cuda_plugin = kernels::cuda_plugin_path().string();
  const auto cuda = kernels::look_at_cuda(facts.cuda_plugin);
  facts.cuda_refusal = cuda.status();
  if (!cuda.is_ok()) return;
  for (const kernels::CudaDevice& device : *cuda) facts.cuda.push_back({device, kernels::numa_node_of(device.pci)});
}

}  // namespace

MachineFacts look_at_machine(const fs::path& pack_dir) {
  MachineFacts facts;
  utsname name{};
  if (::uname(&name) == 0) facts.kernel = name.release;
  look_at_processor(facts);
  look_at_memory(facts);
  look_at_rights(facts);
  look_at_gpus(facts);
  try_io_uring(facts);
  facts.io_uring_disabled = static_cast<int>(
      first_number({"/proc/sys/kernel/io_uring_disabled"}).value_or(static_cast<uint64_t>(-1)));
  facts.pack_dir = pack_dir.string();
  facts.pack_dir_closed = check_may_read(pack_dir / "manifest", pack_dir).message();
  std::error_code error;
  facts.pack_dir_exists = fs::is_directory(pack_dir, error);
  if (facts.pack_dir_exists) facts.direct_io_error = try_direct_io(pack_dir);
  return facts;
}

}  // namespace moestro::cli
