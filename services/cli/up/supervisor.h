#pragma once
// Decides what `moestro up` does with its programs. A state machine: events in, actions out, without clock, processes
// or files.
//
//   start    the store; the workers when the store's socket exists; the orchestrator at once
//   a death  The program starts again after a pause that doubles with each death in a row without service in between.
//            A program that has served (one of several workers: that has stayed meanwhile) is restarted for as long as
//            the run lasts. For others, the fifth death in a row ends the run, and so does an exit which says that
//            another start cannot help (common/exit_code.h). A worker that ends because the store is gone does not
//            count.
//   stop     SIGTERM to the orchestrator (which finishes its requests), then to the workers, then to the store;
//            SIGKILL past the limit, or at a second request to stop

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/clock.h"

namespace moestro::cli {

enum class Role : uint8_t { kStore, kWorker, kOrchestrator };

struct Program {
  std::string name;
  Role role = Role::kWorker;
};

/// How a process ended: an exit code, or the number of the signal that killed it.
struct ProcessEnd {
  bool signalled = false;
  int value = 0;
  std::string words = {};    ///< the reason in the program's own words; empty: none
  std::string text() const;  ///< "exit 1", "signal 9 (Killed)"
};

// Events.
struct TimePassed {};
struct ProgramEnded {
  size_t program = 0;
  ProcessEnd end;
};
struct StoreListens {};
struct HealthSeen {
  bool serves = false;
  std::string reason;  ///< where it does not
};
struct StopAsked {};
using Event = std::variant<TimePassed, ProgramEnded, StoreListens, HealthSeen, StopAsked>;

// Actions.
struct StartProgram {
  size_t program = 0;
};
struct SignalProgram {
  size_t program = 0;
  int signal = 0;
};
struct SayReady {};
struct Say {
  std::string text;
};
/// The run has ended, and so have all programs. With an error: `message`, and the program whose last log lines explain
/// it, if no program's words do.
struct Finish {
  int exit_code = 0;
  std::string message;
  std::optional<size_t> culprit;
};
using Action = std::variant<StartProgram, SignalProgram, SayReady, Say, Finish>;

struct SupervisorLimits {
  Nanos drain = std::chrono::seconds(30);  ///< for the orchestrator to end its requests
  Nanos stop = std::chrono::seconds(10);   ///< for each other program
  Nanos settled =
      std::chrono::seconds(5);  ///< after this long with service, its next death is not "in a row"
  Nanos pause_first = std::chrono::milliseconds(100);
  Nanos pause_max = std::chrono::seconds(5);
  Nanos report = std::chrono::seconds(10);  ///< between progress lines before it serves
  int deaths_in_a_row_max = 5;
};

class Supervisor {
 public:
  Supervisor(std::vector<Program> programs, SupervisorLimits limits);

  std::vector<Action> step(const Event& event, Nanos now);

  /// The latest time for step(TimePassed); nullopt: nothing is pending.
  std::optional<Nanos> wake_at() const;
  bool waits_for_store() const;  ///< the caller should check for the store's socket
  bool waits_for_health() const { return !stopping_ && running(Role::kOrchestrator); }
  bool served() const { return served_; }

 private:
  enum class State : uint8_t { kWaiting, kRunning, kEnded };
  struct Child {
    Program program;
    State state = State::kWaiting;
    Nanos start_at{0};    ///< kWaiting
    Nanos since{0};       ///< kRunning
    bool served = false;  ///< the cluster served while this one ran
    bool proven = false;  ///< it has served in one of its runs
    int deaths = 0;       ///< in a row
    bool signalled = false, killed = false;
    Nanos kill_at{0};  ///< when signalled
  };

  void on(const TimePassed& event, Nanos now);
  void on(const ProgramEnded& event, Nanos now);
  void on(const StoreListens& event, Nanos now);
  void on(const HealthSeen& event, Nanos now);
  void on(const StopAsked& event, Nanos now);

  bool may_start(const Child& child) const;
  bool running(Role role) const;
  bool does_its_part(const Child& child, Nanos now) const;
  void start_what_is_due(Nanos now);
  std::string awaited() const;
  void report_progress(Nanos now);
  void restart_later(size_t index, const ProcessEnd& end, Nanos now);
  Nanos pause_after(const Child& child, const ProcessEnd& end) const;
  void give_up(size_t index, const ProcessEnd& end, Nanos now);
  void begin_stop(Nanos now);
  void advance_stop(Nanos now);
  void signal(size_t index, int number);

  std::vector<Child> children_;
  SupervisorLimits limits_;
  std::vector<Action> actions_;
  bool store_listens_ = false;
  Nanos store_since_{0};  ///< when the current store was started
  bool served_ = false;   ///< ever
  bool serves_ = false;   ///< at the last check
  std::string health_reason_;
  std::optional<Nanos> began_;
  Nanos report_at_{0};
  bool stopping_ = false, finished_ = false;
  Finish finish_;
};

}  // namespace moestro::cli
