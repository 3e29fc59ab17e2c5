#include "store/reader/lane_thread.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "common/log.h"

namespace moestro::store {
namespace {

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
    : done_fd_(done_fd), reader_name_(lane.reader().name()), registered_(lane.reader().registered()), options_(lane.options()), lane_(std::move(lane)) {}

LaneThread::~LaneThread() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  ring(wake_.get());
  thread_.join();
}  // the reader's destructor waits for what is under way

void LaneThread::add(uint64_t load, ReadClass read_class, std::vector<LaneSlice> slices) {
  const std::lock_guard lock(mutex_);
  ++loads_;
  lane_.add(load, read_class, std::move(slices));
  changed();
}

void LaneThread::promote(uint64_t load) {
  const std::lock_guard lock(mutex_);
  lane_.promote(load);
  changed();
}

void LaneThread::cancel(uint64_t load) {
  const std::lock_guard lock(mutex_);
  lane_.cancel(load);
  changed();
}

void LaneThread::set_files(uint32_t first, std::span<const int> fds, std::span<const std::string> names) {
  const std::lock_guard lock(mutex_);
  if (const Status added = lane_.set_files(first, fds, names); !added) log::error("{}; what lies in them cannot be read", added.message());
}

/// Under the lock. What is under way wakes the thread when it is there; whatever else there is to do needs a bell.
void LaneThread::changed() {
  lane_.submit(std::chrono::steady_clock::now());
  tell_owner();
  if (lane_.step_at()) ring(wake_.get());
}

/// Under the lock.
void LaneThread::tell_owner() {
  if (lane_.has_ended() && !std::exchange(told_, true)) ring(done_fd_);
}

void LaneThread::take(std::vector<LaneOutcome>& ended) {
  const std::lock_guard lock(mutex_);
  const size_t before = ended.size();
  told_ = false;
  lane_.take(ended);
  loads_ -= ended.size() - before;
}

LaneCounters LaneThread::counters() const {
  const std::lock_guard lock(mutex_);
  return lane_.counters();
}

void LaneThread::serve() {
  while (true) {
    std::unique_lock lock(mutex_);
    if (stopping_) return;
    lane_.turn(std::chrono::steady_clock::now());
    auto check = lane_.next_check();
    tell_owner();
    name_retries();
    if (!check) {
      lock.unlock();
      wait();
      continue;
    }
    lock.unlock();
    check->hash();
    lock.lock();
    lane_.checked(*check);
    tell_owner();
  }
}

/// At most a line a second: a drive that is going bad has the same to say of every read.
void LaneThread::name_retries() {
  const uint64_t retries = lane_.counters().retries;
  const auto now = std::chrono::steady_clock::now();
  if (retries == retries_named_ || now - retries_named_at_ < std::chrono::seconds(1)) return;
  log::warn("{} of {} reads went wrong and were tried again: {}", retries - retries_named_, lane_.counters().reads, lane_.retried_for());
  retries_named_ = retries, retries_named_at_ = now;
}

void LaneThread::wait() const {
  pollfd fds[] = {{wake_.get(), POLLIN, 0}, {lane_.reader().event_fd(), POLLIN, 0}};
  int timeout_ms = -1;
  {
    const std::lock_guard lock(mutex_);
    if (const auto at = lane_.step_at()) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*at - std::chrono::steady_clock::now());
      timeout_ms = static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1000));
    }
  }
  if (::poll(fds, 2, timeout_ms) <= 0 || (fds[0].revents & POLLIN) == 0) return;
  uint64_t rung = 0;
  [[maybe_unused]] const ssize_t cleared = ::read(wake_.get(), &rung, sizeof rung);
}

}  // namespace moestro::store
