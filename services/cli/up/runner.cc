#include "services/cli/up/runner.h"

#include <csignal>
#include <cstdio>
#include <fstream>

#include "common/clock.h"
#include "common/shm/whole_file.h"
#include "services/cli/common/http_client.h"
#include "services/cli/common/json_text.h"
#include "services/cli/common/output.h"

namespace moestro::cli {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr Nanos kLookStarting = milliseconds(25);  // for the store's socket and for /health, until it serves
constexpr Nanos kLookServing = std::chrono::seconds(2);
constexpr int kTailLines = 12;

class Runner {
 public:
  Runner(RunnerConfig config, Signals signals)
      : config_(std::move(config)),
        signals_(std::move(signals)),
        machine_(programs_of(config_.launches), config_.limits) {
    children_.resize(config_.launches.size());
  }

  Status run() {
    MOESTRO_RETURN_IF_ERROR(find_binaries());
    rotate_logs();
    // What the orchestrator writes at each start has its room, however full the file system becomes.
    MOESTRO_RETURN_IF_ERROR(
        shm::reserve_whole_file(config_.places.run_dir / "http.port", sizeof "65535").with_context("run directory"));
    feed(TimePassed{});
    while (!finished_) {
      const Signals::Seen seen = signals_.wait(wait_ms());
      for (int i = 0; i < seen.stops; ++i) feed(StopAsked{});
      for (size_t i = 0; i < children_.size(); ++i)
        if (const auto end = children_[i].pid > 0 ? reap(children_[i].pid) : std::nullopt) {
          children_[i].pid = 0;
          feed(ProgramEnded{i, in_its_words(i, *end)});
        }
      look();
      feed(TimePassed{});
    }
    return outcome_;
  }

 private:
  struct Child {
    fs::path binary, log;
    pid_t pid = 0;
  };

  static std::vector<Program> programs_of(const std::vector<Launch>& launches) {
    std::vector<Program> programs;
    for (const Launch& launch : launches) programs.push_back(launch.program);
    return programs;
  }

  Status find_binaries() {
    for (size_t i = 0; i < children_.size(); ++i) {
      MOESTRO_ASSIGN_OR_RETURN(children_[i].binary, find_binary(config_.launches[i].binary));
      children_[i].log = config_.places.run_dir / "logs" / (config_.launches[i].program.name + ".log");
    }
    return Status::ok();
  }

  /// A program that was killed, or has ended in order, has not said why.
  ProcessEnd in_its_words(size_t program, ProcessEnd end) const {
    if (end.signalled || end.value == 0) return end;
    const Launch& launch_plan = config_.launches[program];
    end.words = last_words(children_[program].log, launch_plan.binary);
    if (const std::string own = launch_plan.program.name + ": "; end.words.starts_with(own))
      end.words.erase(0, own.size());
    return end;
  }

  void rotate_logs() {
    std::error_code ignored;
    for (const Child& child : children_) fs::rename(child.log, child.log.string() + ".1", ignored);
  }

  int wait_ms() const {
    const Nanos now = clock_.now();
    Nanos until = now + std::chrono::seconds(1);
    if (machine_.waits_for_store() || machine_.waits_for_health()) until = std::min(until, look_at_);
    if (const auto at = machine_.wake_at()) until = std::min(until, *at);
    return static_cast<int>(std::max<int64_t>(0, (until - now).count() + 999'999) / 1'000'000);
  }

  void look() {
    if (clock_.now() < look_at_) return;
    std::error_code ignored;
    if (machine_.waits_for_store() && fs::exists(config_.places.run_dir / "store.sock", ignored))
      feed(StoreListens{});
    if (machine_.waits_for_health()) feed(probe_health());
    look_at_ =
        clock_.now() + (machine_.served() && !machine_.waits_for_store() ? kLookServing : kLookStarting);
  }

  /// The port is in a file, for it may have been 0.
  bool read_port() {
    std::ifstream in(config_.places.run_dir / "http.port");
    int port = 0;
    if (!(in >> port) || port < 1 || port > 65535) return false;
    config_.http.port = std::to_string(port);
    return true;
  }

  HealthSeen probe_health() {
    if (!client_) {
      if (!read_port()) return {false, "the orchestrator does not listen yet"};
      Url url;
      url.host = config_.http.host_for_local_clients();
      url.port = config_.http.port;
      url.secure = config_.https;
      // It is our own program: whether its certificate names this address is the clients' question.
      client_ = std::make_unique<HttpClient>(url, HttpLimits{milliseconds(500), milliseconds(1000), 1 << 20},
                                             HttpAccess{.verify = false});
    }
    const Result<HttpReply> reply = client_->get("/health");
    if (!reply.is_ok()) return {false, reply.status().message()};
    if (reply->status == 200) return {true, ""};
    return {false, one_line(error_message(reply->body))};
  }

  void feed(const Event& event) {
    for (const Action& action : machine_.step(event, clock_.now()))
      std::visit([this](const auto& a) { act(a); }, action);
  }

  void act(const StartProgram& action) {
    Child& child = children_[action.program];
    const Launch& launch_plan = config_.launches[action.program];
    std::error_code ignored;
    if (launch_plan.program.role == Role::kStore) fs::remove(config_.places.run_dir / "store.sock", ignored);
    std::vector<std::string> arguments = launch_plan.arguments;
    if (launch_plan.program.role == Role::kOrchestrator) {
      shm::put_aside(config_.places.run_dir / "http.port");
      client_.reset();
      // Back on the port that clients know, also where it was a free one at first.
      arguments.insert(arguments.end(), {"--http", config_.http.text()});
    }
    const Result<pid_t> pid = launch(child.binary, arguments, child.log);
    if (pid.is_ok()) {
      child.pid = *pid;
      if (machine_.served()) note(launch_plan.program.name + " started again");
    } else {
      note(pid.status().message());
      feed(ProgramEnded{action.program, ProcessEnd{false, 127, {}}});
    }
    look_at_ = clock_.now();
  }

  void act(const SignalProgram& action) {
    const pid_t pid = children_[action.program].pid;
    if (pid > 0) ::kill(pid, action.signal);
  }
  void act(const SayReady&) {
    std::printf("ready %s://%s\n", config_.https ? "https" : "http", config_.http.text().c_str());
    std::fflush(stdout);
  }
  void act(const Say& action) { note(action.text); }

  /// The last line says why: in the program's own words, else with the end of its log before it.
  void act(const Finish& action) {
    finished_ = true;
    if (action.exit_code == 0) return;
    outcome_ = unavailable(action.message);
    if (!action.culprit) return;
    const fs::path log = children_[*action.culprit].log;
    const std::string tail = log_tail(log, kTailLines);
    std::fprintf(stderr, "--- the end of %s\n%s---\n", log.c_str(),
                 tail.empty() ? "(nothing was logged)\n" : tail.c_str());
  }

  RunnerConfig config_;
  Signals signals_;
  SteadyClock clock_;
  Supervisor machine_;
  std::vector<Child> children_;
  std::unique_ptr<HttpClient> client_;
  Nanos look_at_{0};
  bool finished_ = false;
  Status outcome_;
};

}  // namespace

Status run_programs(RunnerConfig config) {
  MOESTRO_ASSIGN_OR_RETURN(Signals signals, Signals::take());
  return Runner(std::move(config), std::move(signals)).run();
}

}  // namespace moestro::cli
