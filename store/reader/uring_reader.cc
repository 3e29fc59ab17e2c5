#include <liburing.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <vector>

#include "common/shm/mapped_file.h"
#include "store/reader/reader.h"

namespace moestro::store {
namespace {

Status not_registered(int error) {
  const std::string why = io_error("io_uring cannot register the arena as read buffers", error).message();
  if (error == EFAULT || error == EOPNOTSUPP || error == EINVAL)
    return unsupported(why + " (memory of files on a disk is refused: put --arena-dir on a tmpfs or hugetlbfs)");
  return unsupported(
      why +
      " (allow locked memory: setcap cap_ipc_lock+p on moestro-store, --cap-add IPC_LOCK for a container's root, "
      "or ulimit -l unlimited)");
}

class UringReader final : public Reader {
 public:
  explicit UringReader(uint32_t depth) : depth_(depth) {}

  Status start(const ReaderFiles& files) {
    if (const int error = io_uring_queue_init(depth_, &ring_, IORING_SETUP_CLAMP); error < 0)
      return unsupported(io_error("io_uring_setup", -error).message() +
                         (error == -ENOMEM ? " (too little memory may be locked: ulimit -l unlimited"
                                           : " (a container needs a seccomp profile that allows io_uring") +
                         "; or use --io pread)");
    open_ = true;
    MOESTRO_RETURN_IF_ERROR(try_out());
    event_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!event_) return io_error("eventfd", errno);
    if (const int error = io_uring_register_eventfd(&ring_, event_.get()); error < 0)
      return unsupported(io_error("io_uring cannot register an eventfd", -error).message());
    MOESTRO_RETURN_IF_ERROR(register_files(files));
    register_memory(files);
    return Status::ok();
  }

  ~UringReader() override {
    if (!open_) return;
    std::vector<ReadResult> ignored;
    while (in_flight_ > io_uring_sq_ready(&ring_)) {  // what the kernel has not taken ends with the ring
      io_uring_cqe* cqe = nullptr;
      if (io_uring_wait_cqe(&ring_, &cqe) == 0) reap(ignored);
    }
    io_uring_queue_exit(&ring_);
  }

  bool submit(const ReadOp& op) override {
    if (in_flight_ >= depth_) return false;
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    if (sqe == nullptr) return false;
    const auto file = static_cast<int>(kFirstFile + op.file);
    if (const auto at = registered_offset(op)) {
      const uint64_t left_in_piece = piece_bytes_ - *at % piece_bytes_;
      const auto length = static_cast<uint32_t>(std::min<uint64_t>(op.length, left_in_piece));
      io_uring_prep_read_fixed(sqe, file, op.into, length, op.offset, static_cast<int>(*at / piece_bytes_));
    } else {
      io_uring_prep_read(sqe, file, op.into, op.length, op.offset);
    }
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

  bool unsent() const override { return io_uring_sq_ready(&ring_) > 0; }
  Status set_files(uint32_t first, std::span<const int> fds) override {
    if (first + fds.size() > table_)
      return exhausted("io_uring has room for " + std::to_string(table_) +
                       " files: raise ulimit -n, or start the store again");
    const int error = io_uring_register_files_update(&ring_, static_cast<unsigned>(kFirstFile + first), fds.data(),
                                                     static_cast<unsigned>(fds.size()));
    if (error < static_cast<int>(fds.size()))
      return io_error("io_uring cannot register more files", error < 0 ? -error : EIO);
    return Status::ok();
  }
  int event_fd() const override { return event_.get(); }
  uint32_t in_flight() const override { return in_flight_; }
  std::string_view name() const override { return "io_uring"; }
  Status registered() const override { return registered_; }

 private:
  /// Some profiles allow a ring to be made and refuse what it is made for: then reads would wait for ever.
  Status try_out() {
    io_uring_prep_nop(io_uring_get_sqe(&ring_));
    int error = io_uring_submit_and_wait(&ring_, 1);
    for (int i = 0; i < kTries && (error == -EINTR || error == -EAGAIN || error == -EBUSY); ++i)
      error = io_uring_submit_and_wait(&ring_, 1);
    io_uring_cqe* cqe = nullptr;
    if (error >= 0) error = io_uring_peek_cqe(&ring_, &cqe);
    if (error < 0)
      return unsupported(io_error("io_uring_enter", -error).message() +
                         " (a container needs a seccomp profile that allows all of io_uring; or use --io pread)");
    io_uring_cqe_seen(&ring_, cqe);
    return Status::ok();
  }
  /// The lock comes first; behind the files stays room for more, as far as the limit on open files allows.
  Status register_files(const ReaderFiles& files) {
    std::vector<int> table(kFirstFile + files.fds.size() + kMoreFiles, -1);
    table[0] = files.lock_fd;
    std::copy(files.fds.begin(), files.fds.end(), table.begin() + kFirstFile);
    int error = io_uring_register_files(&ring_, table.data(), static_cast<unsigned>(table.size()));
    if (error == -EMFILE) {
      table.resize(kFirstFile + files.fds.size());
      error = io_uring_register_files(&ring_, table.data(), static_cast<unsigned>(table.size()));
    }
    if (error < 0) return unsupported(io_error("io_uring cannot register files", -error).message());
    table_ = table.size() - kFirstFile;
    return Status::ok();
  }
  void register_memory(const ReaderFiles& files) {
    if (files.memory.empty()) return;
    piece_bytes_ = files.piece_bytes;
    std::vector<iovec> pieces;
    for (uint64_t at = 0; at < files.memory.size(); at += piece_bytes_)
      pieces.push_back({files.memory.data() + at, std::min(piece_bytes_, files.memory.size() - at)});
    const int error = io_uring_register_buffers(&ring_, pieces.data(), static_cast<unsigned>(pieces.size()));
    if (error < 0) registered_ = not_registered(-error);
    else memory_ = files.memory;
  }
  /// Where in the registered memory a read goes; nothing if it does not lie in it whole.
  std::optional<uint64_t> registered_offset(const ReadOp& op) const {
    const auto begin = reinterpret_cast<uintptr_t>(memory_.data()), at = reinterpret_cast<uintptr_t>(op.into);
    if (at < begin || at - begin >= memory_.size() || op.length > memory_.size() - (at - begin)) return std::nullopt;
    return at - begin;
  }
  /// What the kernel does not take now (EAGAIN, EBUSY, EINTR, ENOMEM) stays in the submission queue and goes with the
  /// next call.
  void push() {
    if (io_uring_sq_ready(&ring_) > 0) io_uring_submit(&ring_);
  }

  static constexpr int kTries = 100;
  static constexpr size_t kFirstFile = 1;   ///< in the ring's table
  static constexpr size_t kMoreFiles = 256;
  const uint32_t depth_;
  size_t table_ = 0;
  io_uring ring_{};
  bool open_ = false;
  uint32_t in_flight_ = 0;
  std::span<std::byte> memory_;  ///< registered; empty if it was refused
  uint64_t piece_bytes_ = kRegisteredBytesMax;
  Status registered_;
  shm::UniqueFd event_;
};

}  // namespace

Result<std::unique_ptr<Reader>> make_uring_reader(const ReaderFiles& files, uint32_t depth) {
  auto reader = std::make_unique<UringReader>(depth);
  MOESTRO_RETURN_IF_ERROR(reader->start(files));
  return std::unique_ptr<Reader>(std::move(reader));
}

}  // namespace moestro::store
