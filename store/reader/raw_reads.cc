#include "store/reader/raw_reads.h"

#include <liburing.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "store/reader/reader.h"

namespace moestro::store {
namespace {

class Ring final : public RawReads {
 public:
  Ring(std::span<std::byte> memory, uint32_t depth) : memory_(memory), depth_(depth) {}
  ~Ring() override {
    if (open_) io_uring_queue_exit(&ring_);
  }

  Status start(std::span<const int> fds) {
    if (const int error = io_uring_queue_init(depth_, &ring_, IORING_SETUP_CLAMP); error < 0)
      return unsupported(io_error("io_uring_setup", -error).message());
    open_ = true;
    if (const int error = io_uring_register_files(&ring_, fds.data(), static_cast<unsigned>(fds.size())); error < 0)
      return unsupported(io_error("io_uring cannot register files", -error).message());
    std::vector<iovec> pieces;
    for (uint64_t at = 0; at < memory_.size(); at += kRegisteredBytesMax)
      pieces.push_back({memory_.data() + at, std::min<uint64_t>(kRegisteredBytesMax, memory_.size() - at)});
    registered_ = io_uring_register_buffers(&ring_, pieces.data(), static_cast<unsigned>(pieces.size())) == 0;
    return Status::ok();
  }

  Status run(std::span<const RawRead> reads) override {
    Status status;
    size_t begun = 0;
    for (size_t ended = 0; ended < reads.size() && (status.is_ok() || ended < begun);) {
      while (status.is_ok() && begun < reads.size() && begun - ended < depth_) submit(reads[begun], begun), ++begun;
      if (const int error = io_uring_submit_and_wait(&ring_, 1); error < 0 && error != -EINTR)
        return io_error("io_uring_submit_and_wait", -error);
      io_uring_cqe* cqe = nullptr;
      while (io_uring_peek_cqe(&ring_, &cqe) == 0 && cqe != nullptr) {
        const RawRead& read = reads[cqe->user_data];
        if (cqe->res != static_cast<int>(read.length))
          status = cqe->res < 0 ? io_error("a read of " + std::to_string(read.length) + " bytes", -cqe->res)
                                : io_error("a read gave " + std::to_string(cqe->res) + " of " +
                                           std::to_string(read.length) + " bytes");
        io_uring_cqe_seen(&ring_, cqe);
        ++ended;
      }
    }
    return status;
  }
  bool registered() const override { return registered_; }

 private:
  void submit(const RawRead& read, size_t number) {
    io_uring_sqe* sqe =
        io_uring_get_sqe(&ring_);  // there is one: the ring has `depth_` entries, and no more are in flight
    const auto at = static_cast<uint64_t>(read.into - memory_.data());
    const bool one_piece = at / kRegisteredBytesMax == (at + read.length - 1) / kRegisteredBytesMax;
    if (registered_ && one_piece)
      io_uring_prep_read_fixed(sqe, static_cast<int>(read.file), read.into, read.length, read.offset,
                               static_cast<int>(at / kRegisteredBytesMax));
    else
      io_uring_prep_read(sqe, static_cast<int>(read.file), read.into, read.length, read.offset);
    sqe->flags |= IOSQE_FIXED_FILE;
    sqe->user_data = number;
  }

  std::span<std::byte> memory_;
  const uint32_t depth_;
  io_uring ring_{};
  bool open_ = false, registered_ = false;
};

}  // namespace

Result<std::unique_ptr<RawReads>> RawReads::create(std::span<const int> fds, std::span<std::byte> memory,
                                                   uint32_t depth) {
  auto ring = std::make_unique<Ring>(memory, depth);
  MOESTRO_RETURN_IF_ERROR(ring->start(fds));
  return std::unique_ptr<RawReads>(std::move(ring));
}

}  // namespace moestro::store
