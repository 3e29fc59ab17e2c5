#pragma once
// Asynchronous reads from a fixed set of files into memory.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace moestro::store {

/// Offset, length and address are multiples of kDiskAlign (O_DIRECT).
struct ReadOp {
  uint32_t file = 0;  ///< index in the reader's list
  uint64_t offset = 0;
  std::byte* into = nullptr;
  uint32_t length = 0;
  uint64_t tag = 0;   ///< returned with the result
};

struct ReadResult {
  uint64_t tag = 0;
  int64_t result = 0;  ///< bytes read, which may be fewer than asked for, or -errno
};

/// One owner thread. The destructor waits for the reads in flight: their memory must live until then.
class Reader {
 public:
  virtual ~Reader() = default;
  /// False if `depth` reads are in flight, or the kernel accepts no more now: try again after a completion.
  virtual bool submit(const ReadOp& op) = 0;
  /// Appends the completed reads. Never waits.
  virtual void reap(std::vector<ReadResult>& results) = 0;
  /// Readable while there may be something to reap; reap() clears it.
  virtual int event_fd() const = 0;
  virtual uint32_t in_flight() const = 0;
  virtual std::string_view name() const = 0;
  /// An error if `memory` was given and could not be registered, with the reason and what to do. Reads work
  /// nevertheless.
  virtual Status registered() const { return Status::ok(); }
  /// True if accepted reads wait for room in the kernel. Only reap() tries again, and nothing signals it.
  virtual bool unsent() const { return false; }
  /// Sets the files from number `first` on; -1 releases a number. No read of these numbers may be in flight. The
  /// descriptors must stay open while they are set.
  virtual Status set_files(uint32_t first, std::span<const int> fds) = 0;
};

/// The kernel refuses a registered buffer above 1 GiB.
inline constexpr uint64_t kRegisteredBytesMax = 1ULL << 30;

struct ReaderFiles {
  std::vector<int> fds;  ///< must stay open while the reader exists
  int lock_fd =
      -1;  ///< registered in addition: the kernel then holds it until the last read of a killed process has completed
  std::span<std::byte> memory =
      {};  ///< the target of most reads; io_uring pins it once instead of at every read. Outlives the reader
  uint64_t piece_bytes = kRegisteredBytesMax;  ///< it is registered in pieces of this size (a multiple of kDiskAlign)
};

/// kUnsupported, with the reason, if the kernel (or a container's profile) refuses io_uring. A read across two pieces
/// of registered memory ends at the border, short.
Result<std::unique_ptr<Reader>> make_uring_reader(const ReaderFiles& files, uint32_t depth);
Result<std::unique_ptr<Reader>> make_pread_reader(const ReaderFiles& files, uint32_t depth);

}  // namespace moestro::store
