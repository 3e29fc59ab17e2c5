#include <liburing.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "common/shm/mapped_file.h"
#include "store/reader/reader.h"

namespace moestro::store {
namespace {

class UringReader final : public Reader {
 public:
  explicit UringReader(uint32_t depth) : depth_(depth) {}

  Status start(const ReaderFiles& files) {
    if (const int error = io_uring_queue_init(depth_, &ring_, IORING_SETUP_CLAMP); error < 0)
      return unsupported("io_uring_setup: " + io_error("", -error).message() +
                         " (a container needs a seccomp profile that allows io_uring; or use --io pread)");
    open_ = true;
    event_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!event_) return io_error("eventfd", errno);
    if (const int error = io_uring_register_eventfd(&ring_, event_.get()); error < 0)
      return unsupported("io_uring: cannot register an eventfd: " + io_error("", -error).message());
    std::vector<int> table = files.fds;
    if (files.lock_fd >= 0) table.push_back(files.lock_fd);
    if (table.empty()) return Status::ok();
    if (const int error = io_uring_register_files(&ring_, table.data(), static_cast<unsigned>(table.size())); error < 0)
      return unsupported("io_uring: cannot register files: " + io_error("", -error).message());
    return Status::ok();
  }

  ~UringReader() override {
    if (!open_) return;
    std::vector<ReadResult> ignored;
    while (in_flight_ > 0) {
      io_uring_cqe* cqe = nullptr;
      if (io_uring_wait_cqe(&ring_, &cqe) == 0) reap(ignored);
    }
    io_uring_queue_exit(&ring_);
  }

  bool submit(const ReadOp& op) override {
    if (in_flight_ >= depth_) return false;
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    if (sqe == nullptr) return false;
    io_uring_prep_read(sqe, static_cast<int>(op.file), op.into, op.length, op.offset);
    sqe->flags |= IOSQE_FIXED_FILE;
    sqe->user_data = op.tag;
    ++in_flight_;
    push();
    return true;
  }

  void reap(std::vector<ReadResult>& results) override {
    uint64_t rung = 0;
    [[maybe_unused]] const ssize_t cleared = ::read(event_.get(), &rung, sizeof rung);
    push();
    io_uring_cqe* cqe = nullptr;
    while (io_uring_peek_cqe(&ring_, &cqe) == 0 && cqe != nullptr) {
      results.push_back({cqe->user_data, cqe->res});
      io_uring_cqe_seen(&ring_, cqe);
      --in_flight_;
    }
  }

  int event_fd() const override { return event_.get(); }
  uint32_t in_flight() const override { return in_flight_; }
  std::string_view name() const override { return "io_uring"; }

 private:
  /// What the kernel does not take now (EAGAIN, EBUSY, EINTR, ENOMEM) stays in the submission queue and goes with the next call.
  void push() {
    if (io_uring_sq_ready(&ring_) > 0) io_uring_submit(&ring_);
  }

  const uint32_t depth_;
  io_uring ring_{};
  bool open_ = false;
  uint32_t in_flight_ = 0;
  shm::UniqueFd event_;
};

}  // namespace

Result<std::unique_ptr<Reader>> make_uring_reader(const ReaderFiles& files, uint32_t depth) {
  auto reader = std::make_unique<UringReader>(depth);
  MOESTRO_RETURN_IF_ERROR(reader->start(files));
  return std::unique_ptr<Reader>(std::move(reader));
}

}  // namespace moestro::store
