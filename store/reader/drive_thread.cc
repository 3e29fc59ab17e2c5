#include "store/reader/drive_thread.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "common/log.h"

namespace moestro::store {
namespace {

template <typename... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <typename... F>
Overloaded(F...) -> Overloaded<F...>;

void ring(int fd) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t rung = ::write(fd, &one, sizeof one);
}

}  // namespace

Result<std::unique_ptr<DriveThread>> DriveThread::start(DriveReader drive, int done_fd) {
  std::unique_ptr<DriveThread> made(new DriveThread(std::move(drive), done_fd));
  made->wake_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!made->wake_) return io_error("eventfd", errno);
  try {
    made->thread_ = std::thread([self = made.get()] { self->serve(); });
  } catch (const std::system_error& error) {
    return exhausted(std::string("no thread for a drive's reads: ") + error.what());
  }
  return made;
}

DriveThread::DriveThread(DriveReader drive, int done_fd)
    : drive_(std::move(drive)),
      done_fd_(done_fd),
      reader_name_(drive_.reader().name()),
      registered_(drive_.reader().registered()),
      options_(drive_.options()) {}

DriveThread::~DriveThread() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  ring(wake_.get());
  thread_.join();
}

void DriveThread::post(Command command) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    first = commands_.empty();
    commands_.push_back(std::move(command));
  }
  if (first) ring(wake_.get());
}

void DriveThread::add(uint64_t load, ReadClass read_class, std::vector<DriveSlice> slices) {
  ++loads_;
  post(Add{load, read_class, std::move(slices)});
}
void DriveThread::promote(uint64_t load) { post(Promote{load}); }
void DriveThread::cancel(uint64_t load) { post(Cancel{load}); }
void DriveThread::set_files(uint32_t first, std::vector<int> fds, std::vector<std::string> names) {
  post(SetFiles{first, std::move(fds), std::move(names)});
}

void DriveThread::take(std::vector<DriveOutcome>& ended) {
  const std::lock_guard lock(mutex_);
  loads_ -= outcomes_.size();
  ended.insert(ended.end(), std::make_move_iterator(outcomes_.begin()), std::make_move_iterator(outcomes_.end()));
  outcomes_.clear();
}

DriveCounters DriveThread::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

/// False when it is time to stop.
bool DriveThread::obey() {
  std::vector<Command> commands;
  bool stopping = false;
  {
    const std::lock_guard lock(mutex_);
    commands.swap(commands_);
    stopping = stopping_;
  }
  if (stopping) return false;
  for (Command& command : commands)
    std::visit(Overloaded{[&](Add& add) { drive_.add(add.load, add.read_class, std::move(add.slices)); },
                          [&](const Promote& promote) { drive_.promote(promote.load); },
                          [&](const Cancel& cancel) { drive_.cancel(cancel.load); },
                          [&](const SetFiles& more) {
                            if (const Status added = drive_.set_files(more.first, more.fds, more.names); !added)
                              log::error("{}; what lies in them cannot be read", added.message());
                          }},
               command);
  return true;
}

void DriveThread::serve() {
  std::vector<DriveOutcome> ended;
  while (obey()) {
    drive_.step(std::chrono::steady_clock::now(), ended);
    {
      const std::lock_guard lock(mutex_);
      counters_ = drive_.counters();
      outcomes_.insert(outcomes_.end(), std::make_move_iterator(ended.begin()), std::make_move_iterator(ended.end()));
    }
    if (!ended.empty()) ring(done_fd_);
    ended.clear();
    name_retries();
    if (!drive_.busy()) wait();
  }
}  // the reader's destructor waits for what is under way

/// At most a line a second: a drive that is going bad has the same to say of every read.
void DriveThread::name_retries() {
  const uint64_t retries = drive_.counters().retries;
  const auto now = std::chrono::steady_clock::now();
  if (retries == retries_named_ || now - retries_named_at_ < std::chrono::seconds(1)) return;
  log::warn("{} of {} reads went wrong and were tried again: {}", retries - retries_named_, drive_.counters().reads,
            drive_.retried_for());
  retries_named_ = retries, retries_named_at_ = now;
}

void DriveThread::wait() const {
  pollfd fds[] = {{wake_.get(), POLLIN, 0}, {drive_.reader().event_fd(), POLLIN, 0}};
  int timeout_ms = -1;
  if (const auto at = drive_.step_at()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*at - std::chrono::steady_clock::now());
    timeout_ms = static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1000));
  }
  if (::poll(fds, 2, timeout_ms) <= 0 || (fds[0].revents & POLLIN) == 0) return;
  uint64_t rung = 0;
  [[maybe_unused]] const ssize_t cleared = ::read(wake_.get(), &rung, sizeof rung);
}

}  // namespace moestro::store
