#pragma once
// The memory of the weights. By default it is the file `arena` of the arena directory. It is in another directory if it
// uses huge pages that the operator reserved (a hugetlbfs holds no small files) or a volume that workers mount
// read-only. If no file system in memory may be written, it is memory without a name, which workers get through a
// socket. That memory ends with the store and is never adopted.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "common/shm/descriptor_socket.h"
#include "common/shm/mapped_file.h"
#include "common/status.h"
#include "store/arena/arena_size.h"
#include "store/arena/page_report.h"

namespace moestro::store {

/// --payload-dir: empty, a directory, or this word.
inline constexpr const char* kNamelessPayload = "memfd";

struct PayloadPlace {
  std::filesystem::path file;    ///< empty: nameless
  std::filesystem::path socket;  ///< for nameless memory: ARENA_DIR/payload.sock
  bool nameless() const { return file.empty(); }
};

/// Several stores may share a payload directory; the file's name then identifies the store. kInvalidArgument for a
/// directory that cannot be used.
Result<PayloadPlace> payload_place(const std::string& wanted, const std::filesystem::path& arena_dir);

/// The small files that a store makes in addition to its weights: table, pins, bells.
struct SmallFiles {
  std::filesystem::path dir;
  uint64_t bytes = 0;
};

/// The room for an arena at `place` (its directory exists), by file system, machine and cgroups, after what the workers
/// will take, and after the store's small files if they are in the same file system.
Result<ArenaRoom> look_at_room(const PayloadPlace& place, uint64_t others, const SmallFiles& small = {});

/// The NUMA nodes for its pages, and the result of placing them.
struct PayloadNodes {
  std::vector<int> there;  ///< nodes that have memory
  std::vector<int>
      over;  ///< nodes that it is spread over; empty: pages come from the store's node, or follow its policy (numactl)
  Status spread;           ///< why the kernel refused `over`
};

/// Makes the memory and backs all of it, asking for huge pages. `progress` gets the bytes backed so far; if it returns
/// false, the result is kCancelled.
Result<shm::MappedFile> make_payload(const PayloadPlace& place, uint64_t bytes, const shm::FileAccess& access,
                                     PayloadNodes& nodes, const std::function<bool(uint64_t)>& progress);

/// Reports the pages of a backed payload.
PageReport report_pages(const PayloadPlace& place, const PayloadNodes& nodes, const shm::MappedFile& payload);

/// The address that workers are told: a path, or "memfd:SOCKET".
std::string payload_address(const PayloadPlace& place);
/// `to_register`: mapped for writing where that is allowed, for a driver that registers only such mappings; the caller
/// then calls forbid_writes().
Result<shm::MappedFile> open_payload(const std::string& address, uint64_t bytes, std::chrono::milliseconds timeout,
                                     bool to_register = false);

}  // namespace moestro::store
