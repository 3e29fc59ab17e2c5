#pragma once
// The memory that holds the weights themselves. By default the file `arena` of the arena directory. Huge pages that the
// operator set aside (hugetlbfs hold no small files), or a volume that workers mount read-only, are a directory of
// their own; and where no file system in memory may be written, it is memory without a name, handed to workers through
// a socket. That goes with the store: it is never re-adopted.

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
  std::filesystem::path socket;  ///< of a nameless one: ARENA_DIR/payload.sock
  bool nameless() const { return file.empty(); }
};

/// Several stores may share a payload directory: the file's name then tells whose it is. kInvalidArgument for a
/// directory that cannot serve.
Result<PayloadPlace> payload_place(const std::string& wanted, const std::filesystem::path& arena_dir);

/// The small files that a store makes beside its weights: table, pins, bells.
struct SmallFiles {
  std::filesystem::path dir;
  uint64_t bytes = 0;
};

/// Room for an arena at `place` (its directory is there), by file system, machine and cgroups, beside what the workers
/// will take, and beside the store's small files where they lie in the same file system.
Result<ArenaRoom> look_at_room(const PayloadPlace& place, uint64_t others, const SmallFiles& small = {});

/// On which NUMA nodes its pages are to lie, and what became of it.
struct PayloadNodes {
  std::vector<int> there;  ///< that have memory
  std::vector<int>
      over;  ///< it is spread over these; empty: they come from where the store runs, or as its policy (numactl) says
  Status spread;           ///< why the kernel did not take `over`
};

/// Makes it and backs all of it, asking for huge pages. `progress` is told the bytes backed so far; false stops with
/// kCancelled.
Result<shm::MappedFile> make_payload(const PayloadPlace& place, uint64_t bytes, const shm::FileAccess& access,
                                     PayloadNodes& nodes, const std::function<bool(uint64_t)>& progress);

/// Looks at the pages it lies on; it is backed.
PageReport report_pages(const PayloadPlace& place, const PayloadNodes& nodes, const shm::MappedFile& payload);

/// What workers are told, and what they make of it: a path, or "memfd:SOCKET".
std::string payload_address(const PayloadPlace& place);
Result<shm::MappedFile> open_payload(const std::string& address, uint64_t bytes, std::chrono::milliseconds timeout);

}  // namespace moestro::store
