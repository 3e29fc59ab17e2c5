#include "services/cli/bench/store/private_box.h"

#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <utility>
#include <thread>

#include "services/cli/up/process.h"
#include "services/cli/common/run_dir.h"

namespace moestro::cli {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr size_t kStore = 0, kFirstWorker = 1;
constexpr std::chrono::milliseconds kLook{1};
constexpr std::chrono::minutes kPatience{5};  ///< a large arena takes a while to back

bool says(const fs::path& log, const std::string& text) {
  std::ifstream in(log);
  std::stringstream all;
  all << in.rdbuf();
  return all.str().find(text) != std::string::npos;
}

}  // namespace

Result<std::unique_ptr<PrivateBox>> PrivateBox::create(config::BoxConfig config) {
  std::unique_ptr<PrivateBox> box(new PrivateBox(std::move(config)));
  MOESTRO_ASSIGN_OR_RETURN(const auto workers, check_box(box->box_, this_machine()));
  std::string name = (fs::temp_directory_path() / "moestro-bench-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) return io_error("cannot make a directory like " + name, errno);
  box->run_dir_ = name;
  std::error_code error;
  fs::create_directories(box->run_dir_ / "logs", error);
  std::optional<uint64_t> dram;
  if (box->box_.store.dram) dram = box->box_.store.dram->value;
  MOESTRO_ASSIGN_OR_RETURN(auto arena, choose_arena_dir(box->box_.store.arena_dir, box->run_dir_, dram));
  box->arena_.emplace(std::move(arena));
  const Places places{box->run_dir_, box->arena_->path()};
  MOESTRO_RETURN_IF_ERROR(write_box_file(box->box_, places));
  box->launches_ = plan_launches(box->box_, places, workers, memory_nodes_to_choose());
  box->pids_.assign(box->launches_.size(), 0);
  return box;
}

/// The workers and the orchestrator first: they need no drain, and the store is theirs.
PrivateBox::~PrivateBox() {
  for (size_t program = pids_.size(); program-- > 0;) end(program, program == kStore ? SIGTERM : SIGKILL);
  arena_.reset();
  std::error_code ignored;
  if (!run_dir_.empty()) fs::remove_all(run_dir_, ignored);
}

std::string PrivateBox::endpoint() const { return "ipc://" + (run_dir_ / "store.sock").string(); }
fs::path PrivateBox::log(size_t program) const {
  return run_dir_ / "logs" / (launches_[program].program.name + ".log");
}

int PrivateBox::http_port() const {
  std::ifstream in(run_dir_ / "http.port");
  int port = 0;
  return in >> port ? port : 0;
}

std::vector<pid_t> PrivateBox::processes() const {
  std::vector<pid_t> running;
  for (size_t program = kStore; program < orchestrator(); ++program)
    if (pids_[program] > 0) running.push_back(pids_[program]);
  return running;
}

Status PrivateBox::begin(size_t program) {
  MOESTRO_ASSIGN_OR_RETURN(const fs::path binary, find_binary(launches_[program].binary));
  std::error_code ignored;
  fs::remove(log(program), ignored);
  MOESTRO_ASSIGN_OR_RETURN(pids_[program], launch(binary, launches_[program].arguments, log(program)));
  return Status::ok();
}

void PrivateBox::end(size_t program, int signal) {
  const pid_t pid = std::exchange(pids_[program], 0);
  if (pid <= 0) return;
  ::kill(pid, signal);
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

template <typename Reached>
Status PrivateBox::wait(size_t program, const char* what, Reached reached) {
  const std::string& name = launches_[program].program.name;
  for (const auto end = Clock::now() + kPatience; Clock::now() < end; std::this_thread::sleep_for(kLook)) {
    if (reached()) return Status::ok();
    if (!reap(pids_[program])) continue;
    pids_[program] = 0;
    const std::string words = last_words(log(program), launches_[program].binary);
    return unavailable(name + " ended: " + (words.empty() ? log_tail(log(program), 3) : words));
  }
  return unavailable(name + " did not " + what + " within five minutes");
}

Status PrivateBox::start_store() {
  std::error_code ignored;
  fs::remove(run_dir_ / "store.sock", ignored);
  MOESTRO_RETURN_IF_ERROR(begin(kStore));
  return wait(kStore, "listen", [&] { return fs::exists(run_dir_ / "store.sock", ignored); });
}

Status PrivateBox::start_orchestrator() {
  MOESTRO_RETURN_IF_ERROR(begin(orchestrator()));
  return wait(orchestrator(), "listen", [&] { return http_port() != 0; });
}

Result<double> PrivateBox::start_worker(size_t index) {
  const auto begun = Clock::now();
  const size_t program = kFirstWorker + index;
  MOESTRO_RETURN_IF_ERROR(begin(program));
  MOESTRO_RETURN_IF_ERROR(wait(program, "register", [&] { return says(log(program), "registered as worker"); }));
  return std::chrono::duration<double>(Clock::now() - begun).count();
}

void PrivateBox::kill_store() { end(kStore, SIGKILL); }

}  // namespace moestro::cli
