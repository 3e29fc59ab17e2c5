#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "common/shm/mapped_file.h"
#include "store/reader/reader.h"

namespace moestro::store {
namespace {

/// `depth` threads, each with one read under way. A killed process's threads end only after their reads, so that its
/// locks outlast them without further care.
class PreadReader final : public Reader {
 public:
  PreadReader(std::vector<int> fds, uint32_t depth) : depth_(depth), fds_(std::move(fds)) {}

  Status start() {
    event_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!event_) return io_error("eventfd", errno);
    for (uint32_t i = 0; i < depth_; ++i) threads_.emplace_back([this] { serve(); });
    return Status::ok();
  }

  ~PreadReader() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  bool submit(const ReadOp& op) override {
    if (in_flight_ >= depth_) return false;
    ++in_flight_;
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(op);
    }
    wake_.notify_one();
    return true;
  }

  void reap(std::vector<ReadResult>& results) override {
    uint64_t rung = 0;
    [[maybe_unused]] const ssize_t cleared = ::read(event_.get(), &rung, sizeof rung);
    const std::lock_guard lock(mutex_);
    in_flight_ -= static_cast<uint32_t>(done_.size());
    results.insert(results.end(), done_.begin(), done_.end());
    done_.clear();
  }

  Status set_files(uint32_t first, std::span<const int> fds) override {
    const std::lock_guard lock(mutex_);
    if (fds_.size() < first + fds.size()) fds_.resize(first + fds.size(), -1);
    std::copy(fds.begin(), fds.end(), fds_.begin() + first);
    return Status::ok();
  }
  int event_fd() const override { return event_.get(); }
  uint32_t in_flight() const override { return in_flight_; }
  std::string_view name() const override { return "pread"; }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;  // stopping, and nothing accepted is left undone
      const ReadOp op = queue_.front();
      queue_.pop_front();
      const int fd = op.file < fds_.size() ? fds_[op.file] : -1;
      lock.unlock();
      const ssize_t n = ::pread(fd, op.into, op.length, static_cast<off_t>(op.offset));
      const int64_t result = n >= 0 ? n : -errno;
      lock.lock();
      done_.push_back({op.tag, result});
      const uint64_t one = 1;
      [[maybe_unused]] const ssize_t rung = ::write(event_.get(), &one, sizeof one);
    }
  }

  const uint32_t depth_;
  uint32_t in_flight_ = 0;  ///< owner thread
  shm::UniqueFd event_;
  std::mutex mutex_;  ///< guards what follows
  std::vector<int> fds_;
  std::condition_variable wake_;
  std::deque<ReadOp> queue_;
  std::vector<ReadResult> done_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

Result<std::unique_ptr<Reader>> make_pread_reader(const ReaderFiles& files, uint32_t depth) {
  auto reader = std::make_unique<PreadReader>(files.fds, depth);
  MOESTRO_RETURN_IF_ERROR(reader->start());
  return std::unique_ptr<Reader>(std::move(reader));
}

}  // namespace moestro::store
