#include "services/cli/up/supervisor.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <utility>

#include "common/exit_code.h"

namespace moestro::cli {
namespace {

std::string seconds_text(Nanos duration) {
  const double s = std::chrono::duration<double>(duration).count();
  char text[32];
  std::snprintf(text, sizeof text, s < 10 ? "%.1f s" : "%.0f s", s);
  return text;
}

bool cannot_be_mended(const ProcessEnd& end) {
  return !end.signalled && end.value == kExitCannotMend;
}

std::string with_words(const ProcessEnd& end) { return end.words.empty() ? "" : ": " + end.words; }

constexpr Role kStopOrder[] = {Role::kOrchestrator, Role::kWorker, Role::kStore};

}  // namespace

std::string ProcessEnd::text() const {
  if (!signalled) return std::string("exit ") + std::to_string(value);
  const char* name = ::strsignal(value);
  return std::string("signal ")
      .append(std::to_string(value))
      .append(" (")
      .append(name != nullptr ? name : "?")
      .append(")");
}

Supervisor::Supervisor(std::vector<Program> programs, SupervisorLimits limits) : limits_(limits) {
  for (Program& program : programs) {
    Child child;
    child.program = std::move(program);
    children_.push_back(std::move(child));
  }
}

std::vector<Action> Supervisor::step(const Event& event, Nanos now) {
  if (!began_) began_ = now, report_at_ = now + limits_.report;
  if (!finished_) {
    std::visit([&](const auto& e) { on(e, now); }, event);
    stopping_ ? advance_stop(now) : start_what_is_due(now);
  }
  return std::exchange(actions_, {});
}

bool Supervisor::running(Role role) const {
  return std::any_of(children_.begin(), children_.end(),
                     [&](const Child& c) { return c.program.role == role && c.state == State::kRunning; });
}

bool Supervisor::waits_for_store() const {
  return !stopping_ && !store_listens_ && running(Role::kStore);
}

bool Supervisor::may_start(const Child& child) const {
  return child.state == State::kWaiting && (child.program.role != Role::kWorker || store_listens_);
}

std::optional<Nanos> Supervisor::wake_at() const {
  std::optional<Nanos> at;
  const auto earlier = [&](Nanos t) { at = at ? std::min(*at, t) : t; };
  for (const Child& child : children_) {
    if (!stopping_ && may_start(child)) earlier(child.start_at);
    if (child.state == State::kRunning && child.signalled && !child.killed) earlier(child.kill_at);
  }
  if (!stopping_ && !served_ && began_) earlier(report_at_);
  return at;
}

void Supervisor::on(const TimePassed&, Nanos now) {
  if (!stopping_ && !served_ && now >= report_at_) report_progress(now);
}

std::string Supervisor::awaited() const {
  if (!store_listens_) return "for the store to open its socket";
  if (health_reason_.empty()) return "for the orchestrator to answer";
  return std::string("for /health, which says: ").append(health_reason_);
}

void Supervisor::report_progress(Nanos now) {
  report_at_ = now + limits_.report;
  actions_.emplace_back(Say{"starting for " + seconds_text(now - *began_) + ", waiting " + awaited()});
}

void Supervisor::start_what_is_due(Nanos now) {
  for (size_t i = 0; i < children_.size(); ++i) {
    Child& child = children_[i];
    if (!may_start(child) || now < child.start_at) continue;
    child.state = State::kRunning;
    child.since = now;
    if (child.program.role == Role::kStore) store_since_ = now;
    child.served = false;
    actions_.emplace_back(StartProgram{i});
  }
}

void Supervisor::on(const StoreListens&, Nanos) {
  if (running(Role::kStore)) store_listens_ = true;
}

/// While the cluster serves. One worker of several may be broken from the start while the others serve: that it
/// stays is what shows that it is not.
bool Supervisor::does_its_part(const Child& child, Nanos now) const {
  if (child.state != State::kRunning) return false;
  const auto workers = std::ranges::count_if(children_, [](const Child& c) { return c.program.role == Role::kWorker; });
  return child.program.role != Role::kWorker || workers == 1 || now - child.since >= limits_.settled;
}

void Supervisor::on(const HealthSeen& event, Nanos now) {
  if (stopping_) return;
  health_reason_ = event.reason;
  if (event.serves) {
    for (Child& child : children_) {
      child.served = child.served || child.state == State::kRunning;
      child.proven = child.proven || does_its_part(child, now);
    }
    if (!served_)
      actions_.emplace_back(SayReady{});
    else if (!serves_)
      actions_.emplace_back(Say{"serves again"});
    served_ = true;
  } else if (serves_) {
    actions_.emplace_back(Say{"does not serve at present: " + event.reason});
  }
  serves_ = event.serves;
}

void Supervisor::on(const ProgramEnded& event, Nanos now) {
  if (event.program >= children_.size() || children_[event.program].state != State::kRunning) return;
  Child& child = children_[event.program];
  child.state = State::kEnded;
  if (stopping_) {
    // One that was still starting may not catch the signal that ends it yet.
    const bool clean = event.end.signalled ? child.signalled && event.end.value == SIGTERM : event.end.value == 0;
    if (!clean && !child.killed)
      actions_.emplace_back(Say{child.program.name + " ended with " + event.end.text()});
    return;
  }
  if (child.program.role == Role::kStore) store_listens_ = false;
  const bool settled = child.served && now - child.since >= limits_.settled;
  // It may notice the loss of its store only when the next one listens already.
  const bool excused = child.program.role == Role::kWorker && (!store_listens_ || child.since < store_since_);
  if (settled) child.deaths = 0;
  if (!excused) ++child.deaths;
  const bool hopeless = cannot_be_mended(event.end) || child.deaths >= limits_.deaths_in_a_row_max;
  if (hopeless && !child.proven) return give_up(event.program, event.end, now);
  restart_later(event.program, event.end, now);
}

Nanos Supervisor::pause_after(const Child& child, const ProcessEnd& end) const {
  if (cannot_be_mended(end)) return limits_.pause_max;  // not by another start: somebody has to do something
  Nanos pause = limits_.pause_first;
  for (int i = 1; i < child.deaths && pause < limits_.pause_max; ++i) pause *= 2;
  return std::min(pause, limits_.pause_max);
}

void Supervisor::restart_later(size_t index, const ProcessEnd& end, Nanos now) {
  Child& child = children_[index];
  const Nanos pause = pause_after(child, end);
  child.state = State::kWaiting;
  child.start_at = now + pause;
  const std::string when = may_start(child) ? std::string("in ").append(seconds_text(pause))
                                            : std::string("when the store is back");
  actions_.emplace_back(
      Say{child.program.name + " ended with " + end.text() + with_words(end) + "; starting it again " + when});
}

void Supervisor::give_up(size_t index, const ProcessEnd& end, Nanos now) {
  const Child& child = children_[index];
  finish_.exit_code = 1;
  if (end.words.empty()) finish_.culprit = index;
  finish_.message = child.program.name + " ended with " + end.text();
  if (cannot_be_mended(end))
    finish_.message += ", which another start cannot mend";
  else if (child.deaths > 1)
    finish_.message += ", " + std::to_string(child.deaths) + " times in a row";
  finish_.message += with_words(end);
  begin_stop(now);
}

void Supervisor::on(const StopAsked&, Nanos now) {
  if (!stopping_) {
    actions_.emplace_back(Say{"draining; once more to stop at once"});
    return begin_stop(now);
  }
  for (size_t i = 0; i < children_.size(); ++i)
    if (children_[i].state == State::kRunning && !children_[i].killed) signal(i, SIGKILL);
}

void Supervisor::begin_stop(Nanos now) {
  stopping_ = true;
  for (Child& child : children_)
    if (child.state == State::kWaiting) child.state = State::kEnded;
  advance_stop(now);
}

void Supervisor::signal(size_t index, int number) {
  children_[index].signalled = true;
  children_[index].killed = number == SIGKILL;
  actions_.emplace_back(SignalProgram{index, number});
}

void Supervisor::advance_stop(Nanos now) {
  for (const Role role : kStopOrder) {
    for (size_t i = 0; i < children_.size(); ++i) {
      Child& child = children_[i];
      if (child.program.role != role || child.state != State::kRunning) continue;
      if (!child.signalled) {
        child.kill_at = now + (role == Role::kOrchestrator ? limits_.drain : limits_.stop);
        signal(i, SIGTERM);
      } else if (!child.killed && now >= child.kill_at) {
        actions_.emplace_back(Say{child.program.name + " did not end in time and is killed"});
        signal(i, SIGKILL);
      }
    }
    if (running(role)) return;  // the next in order waits for these
  }
  finished_ = true;
  actions_.emplace_back(finish_);
}

}  // namespace moestro::cli
