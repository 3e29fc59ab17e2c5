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
  uint64_t tag = 0;   ///< comes back with the result
};

struct ReadResult {
  uint64_t tag = 0;
  int64_t result = 0;  ///< bytes read, which may be fewer than asked for, or -errno
};

/// One owner thread. The destructor waits for the reads under way: their memory may go only after it.
class Reader {
 public:
  virtual ~Reader() = default;
  /// False if `depth` reads are under way, or the kernel takes no more now: try again after a completion.
  virtual bool submit(const ReadOp& op) = 0;
  /// Appends the reads that are done. Never waits.
  virtual void reap(std::vector<ReadResult>& results) = 0;
  /// Readable while there may be something to reap; reap() clears it.
  virtual int event_fd() const = 0;
  virtual uint32_t in_flight() const = 0;
  virtual std::string_view name() const = 0;
  /// An error if `memory` was given and could not be registered: why, and what mends it. Reads work all the same.
  virtual Status registered() const { return Status::ok(); }
  /// Accepted reads wait for room in the kernel: reap() tries again, and nothing else will wake anyone.
  virtual bool unsent() const { return false; }
  /// Files number `first` and on are these from now on; -1: none, and the one before is let go of. No read of them is
  /// under way. They stay open for as long as they are set.
  virtual Status set_files(uint32_t first, std::span<const int> fds) = 0;
};

/// The kernel refuses a registered buffer above 1 GiB.
inline constexpr uint64_t kRegisteredBytesMax = 1ULL << 30;

struct ReaderFiles {
  std::vector<int> fds;  ///< open for as long as the reader lives
  int lock_fd =
      -1;  ///< registered beside them: the kernel then holds it until the last read of a killed process has landed
  std::span<std::byte> memory =
      {};  ///< where most reads go; io_uring pins it once instead of at every read. Outlives the reader
  uint64_t piece_bytes = kRegisteredBytesMax;  ///< it is registered in pieces of this size (a multiple of kDiskAlign)
};

/// kUnsupported, naming why, where the kernel (or a container's profile) refuses io_uring. A read that would straddle
/// two pieces of registered memory ends at the border, short.
Result<std::unique_ptr<Reader>> make_uring_reader(const ReaderFiles& files, uint32_t depth);
Result<std::unique_ptr<Reader>> make_pread_reader(const ReaderFiles& files, uint32_t depth);

}  // namespace moestro::store
