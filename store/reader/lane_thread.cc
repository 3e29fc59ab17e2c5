#include "store/reader/lane_thread.h"

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

Result<std::unique_ptr<LaneThread>> LaneThread::start(ReadLane lane, int done_fd) {
  std::unique_ptr<LaneThread> made(new LaneThread(std::move(lane), done_fd));
  made->wake_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!made->wake_) return io_error("eventfd", errno);
  try {
    made->thread_ = std::thread([self = made.get()] { self->serve(); });
  } catch (const std::system_error& error) {
    return exhausted(std::string("no thread for a drive's reads: ") + error.what());
  }
  return made;
}

LaneThread::LaneThread(ReadLane lane, int done_fd)
    : lane_(std::move(lane)),
      done_fd_(done_fd),
      reader_name_(lane_.reader().name()),
      registered_(lane_.reader().registered()),
      options_(lane_.options()) {}

LaneThread::~LaneThread() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  ring(wake_.get());
  thread_.join();
}

void LaneThread::post(Command command) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    first = commands_.empty();
    commands_.push_back(std::move(command));
  }
  if (first) ring(wake_.get());
}

void LaneThread::add(uint64_t load, ReadClass read_class, std::vector<LaneSlice> slices) {
  ++loads_;
  post(Add{load, read_class, std::move(slices)});
}
void LaneThread::promote(uint64_t load) { post(Promote{load}); }
void LaneThread::cancel(uint64_t load) { post(Cancel{load}); }
void LaneThread::set_files(uint32_t first, std::vector<int> fds, std::vector<std::string> names) {
  post(SetFiles{first, std::move(fds), std::move(names)});
}

void LaneThread::take(std::vector<LaneOutcome>& ended) {
  const std::lock_guard lock(mutex_);
  loads_ -= outcomes_.size();
  ended.insert(ended.end(), std::make_move_iterator(outcomes_.begin()), std::make_move_iterator(outcomes_.end()));
  outcomes_.clear();
}

LaneCounters LaneThread::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

/// False when it is time to stop.
bool LaneThread::obey() {
  std::vector<Command> commands;
  bool stopping = false;
  {
    const std::lock_guard lock(mutex_);
    commands.swap(commands_);
    stopping = stopping_;
  }
  if (stopping) return false;
  for (Command& command : commands)
    std::visit(Overloaded{[&](Add& add) { lane_.add(add.load, add.read_class, std::move(add.slices)); },
                          [&](const Promote& promote) { lane_.promote(promote.load); },
                          [&](const Cancel& cancel) { lane_.cancel(cancel.load); },
                          [&](const SetFiles& more) {
                            if (const Status added = lane_.set_files(more.first, more.fds, more.names); !added)
                              log::error("{}; what lies in them cannot be read", added.message());
                          }},
               command);
  return true;
}

void LaneThread::serve() {
  std::vector<LaneOutcome> ended;
  while (obey()) {
    lane_.step(std::chrono::steady_clock::now(), ended);
    {
      const std::lock_guard lock(mutex_);
      counters_ = lane_.counters();
      outcomes_.insert(outcomes_.end(), std::make_move_iterator(ended.begin()), std::make_move_iterator(ended.end()));
    }
    if (!ended.empty()) ring(done_fd_);
    ended.clear();
    name_retries();
    if (!lane_.busy()) wait();
  }
}  // the reader's destructor waits for what is under way

/// At most a line a second: a drive that is going bad has the same to say of every read.
void LaneThread::name_retries() {
  const uint64_t retries = lane_.counters().retries;
  const auto now = std::chrono::steady_clock::now();
  if (retries == retries_named_ || now - retries_named_at_ < std::chrono::seconds(1)) return;
  log::warn("{} of {} reads went wrong and were tried again: {}", retries - retries_named_, lane_.counters().reads,
            lane_.retried_for());
  retries_named_ = retries, retries_named_at_ = now;
}

void LaneThread::wait() const {
  pollfd fds[] = {{wake_.get(), POLLIN, 0}, {lane_.reader().event_fd(), POLLIN, 0}};
  int timeout_ms = -1;
  if (const auto at = lane_.step_at()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*at - std::chrono::steady_clock::now());
    timeout_ms = static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1000));
  }
  if (::poll(fds, 2, timeout_ms) <= 0 || (fds[0].revents & POLLIN) == 0) return;
  uint64_t rung = 0;
  [[maybe_unused]] const ssize_t cleared = ::read(wake_.get(), &rung, sizeof rung);
}

}  // namespace moestro::store
