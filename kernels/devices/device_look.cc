// What this machine says of its GPUs: asked of CUDA in a process of its own, and of the files of /proc and /sys.

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <fstream>
#include <sstream>

#include "kernels/devices/device_registry.h"

namespace moestro::kernels {
namespace {

namespace fs = std::filesystem;
using SteadyTime = std::chrono::steady_clock::time_point;

/// Waking eight GPUs whose driver keeps no state takes ten seconds and more.
constexpr std::chrono::seconds kWithin{60};
constexpr char kFailed = '!', kThenFailed = '\t';

/// One line a device; or the mark of an error, its code and its words.
std::string write_answer(const Result<std::vector<CudaDevice>>& seen) {
  std::ostringstream out;
  if (!seen.is_ok()) {
    out << kFailed << static_cast<int>(seen.status().code()) << ' ' << seen.status().message();
    return out.str();
  }
  for (const CudaDevice& d : *seen)
    out << d.major << ' ' << d.minor << ' ' << d.free_bytes << ' ' << d.total_bytes << ' '
        << (d.pci.empty() ? "-" : d.pci) << ' ' << d.name << kThenFailed << d.failed << '\n';
  return out.str();
}

Result<std::vector<CudaDevice>> read_answer(const std::string& answer) {
  std::istringstream in(answer);
  if (answer.starts_with(kFailed)) {
    int code = 0;
    std::string words;
    in.ignore(1);
    in >> code >> std::ws;
    std::getline(in, words, '\0');
    return Status(static_cast<Code>(code), words);
  }
  std::vector<CudaDevice> devices;
  for (CudaDevice d; in >> d.major >> d.minor >> d.free_bytes >> d.total_bytes >> d.pci && in.ignore(1) &&
                     std::getline(in, d.name);) {
    if (d.pci == "-") d.pci.clear();
    if (const size_t at = d.name.find(kThenFailed); at != std::string::npos)
      d.failed = d.name.substr(at + 1), d.name.resize(at);
    devices.push_back(d);
  }
  return devices;
}

[[noreturn]] void answer_and_end(const fs::path& plugin, int output, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // it died before the line above
  const std::string answer = write_answer(probe_cuda(plugin));
  for (size_t done = 0; done < answer.size();) {
    const ssize_t n = ::write(output, answer.data() + done, answer.size() - done);
    if (n < 0 && errno != EINTR) ::_exit(1);
    if (n > 0) done += static_cast<size_t>(n);
  }
  ::_exit(0);
}

/// All that comes until the other end is closed. False: it was not, in time.
bool read_until(int input, SteadyTime end, std::string& text) {
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
    if (left <= 0) return false;
    pollfd waited{input, POLLIN, 0};
    if (::poll(&waited, 1, static_cast<int>(left)) <= 0) continue;
    char buffer[4096];
    const ssize_t n = ::read(input, buffer, sizeof buffer);
    if (n == 0) return true;
    if (n > 0) text.append(buffer, static_cast<size_t>(n));
  }
}

}  // namespace

Result<std::vector<CudaDevice>> look_at_cuda(const fs::path& plugin) {
  if (cuda_in_use()) return probe_cuda(plugin);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return io_error("cannot look for CUDA devices: pipe", errno);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) answer_and_end(plugin, ends[1], parent);
  const int fork_error = errno;
  ::close(ends[1]);
  if (child < 0) {
    ::close(ends[0]);
    return io_error("cannot look for CUDA devices: fork", fork_error);
  }
  std::string answer;
  const bool ended = read_until(ends[0], std::chrono::steady_clock::now() + kWithin, answer);
  ::close(ends[0]);
  if (!ended) {
    ::kill(child, SIGKILL);
    (void)::waitpid(child, nullptr, WNOHANG);  // it may hang in the driver for ever
    return unavailable("no CUDA device: CUDA has not answered for " + std::to_string(kWithin.count()) +
                       " s; see nvidia-smi and dmesg");
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status))
    return unavailable("no CUDA device: the process that looked for one was killed by signal " +
                       std::to_string(WTERMSIG(status)) + ", in CUDA or its driver");
  if (answer.empty()) return unavailable("no CUDA device: the process that looked for one ended without a word");
  return read_answer(answer);
}

std::string nvidia_driver(const fs::path& file) {
  std::ifstream in(file);
  std::string line, word;
  if (!std::getline(in, line)) return {};
  for (std::istringstream words(line); words >> word;)
    if (word.find('.') != std::string::npos && word.find_first_not_of("0123456789.") == std::string::npos) return word;
  return "of an unknown version";
}

std::optional<int> numa_node_of(const std::string& pci, const fs::path& devices) {
  if (pci.empty()) return std::nullopt;
  std::ifstream in(devices / pci / "numa_node");
  int node = -1;
  if (!(in >> node) || node < 0) return std::nullopt;  // -1: the firmware has not told the kernel
  return node;
}

}  // namespace moestro::kernels
