#include "store/arena/payload.h"

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <optional>

#include "common/machine/host_memory.h"
#include "common/machine/mounts.h"
#include "common/machine/numa_pages.h"
#include "common/units.h"

namespace moestro::store {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kBackStep = 64ULL << 20;
constexpr const char* kSocketScheme = "memfd:";


Result<struct statfs> file_system_of(const fs::path& dir) {
  struct statfs info {};
  if (::statfs(dir.c_str(), &info) != 0) return io_error("cannot stat the file system of " + dir.string(), errno);
  return info;
}

bool is_hugetlb(const struct statfs& info) { return info.f_type == HUGETLBFS_MAGIC; }
bool is_in_memory(const struct statfs& info) {
  return is_hugetlb(info) || info.f_type == TMPFS_MAGIC || info.f_type == RAMFS_MAGIC;
}

/// FNV-1a: a name that differs from arena directory to arena directory, and is the same however that is written: a
/// successor must find what it is to remove.
std::string name_for(const fs::path& arena_dir) {
  std::error_code error;
  fs::path dir = fs::weakly_canonical(fs::absolute(arena_dir), error);
  if (error) dir = fs::absolute(arena_dir).lexically_normal();
  if (!dir.has_filename()) dir = dir.parent_path();  // a slash at its end
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : dir.string()) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  char name[32];
  std::snprintf(name, sizeof name, "arena-%016llx", static_cast<unsigned long long>(hash));
  return name;
}

/// A mount without a size of its own reports none: then the pool is the limit.
uint64_t hugetlb_room(const struct statfs& info, const machine::HostMemory& memory) {
  const auto page = static_cast<uint64_t>(info.f_bsize);
  const auto pool =
      std::find_if(memory.huge.begin(), memory.huge.end(), [&](const auto& p) { return p.page_bytes == page; });
  const uint64_t free = pool == memory.huge.end() ? 0 : pool->free_pages * page;
  return info.f_blocks > 0 ? std::min(free, static_cast<uint64_t>(info.f_bavail) * page) : free;
}

bool share_a_file_system(const fs::path& a, const fs::path& b) {
  struct stat of_a {
  }, of_b{};
  return ::stat(a.c_str(), &of_a) == 0 && ::stat(b.c_str(), &of_b) == 0 && of_a.st_dev == of_b.st_dev;
}

/// What a file system on a disk may take for itself to say where so many bytes lie.
uint64_t bookkeeping(uint64_t bytes) { return bytes / 256; }

Status ran_full(const PayloadPlace& place, uint64_t at, uint64_t bytes) {
  if (place.nameless())
    return exhausted("memory ran out after " + mib(at) + " of an arena of " + mib(bytes) + ": lower --dram");
  return exhausted("the file system of " + place.file.parent_path().string() + " ran full after " + mib(at) +
                   " of an arena of " + mib(bytes) + ": lower --dram, or give --arena-dir a larger tmpfs");
}

/// Piece after piece, each from its node.
Status back_all(shm::MappedFile& payload, const PayloadPlace& place, uint64_t bytes, PayloadNodes& nodes,
                const std::function<bool(uint64_t)>& progress) {
  const uint64_t piece = std::max<uint64_t>(machine::kNodePieceBytes, payload.page_bytes());
  std::optional<machine::NodePreference> preference;
  if (!nodes.over.empty()) preference.emplace();
  for (uint64_t at = 0; at < payload.size(); at += piece) {
    if (at % kBackStep == 0 && !progress(at)) return cancelled("stopped while backing the arena");
    if (preference) nodes.spread = preference->come_from(nodes.over[at / piece % nodes.over.size()]);
    if (!nodes.spread.is_ok()) preference.reset();
    if (!payload.back(at, std::min(piece, payload.size() - at)).is_ok()) return ran_full(place, at, bytes);
  }
  progress(payload.size());
  return Status::ok();
}

}  // namespace

Result<PayloadPlace> payload_place(const std::string& wanted, const fs::path& arena_dir) {
  if (wanted == kNamelessPayload) return PayloadPlace{{}, arena_dir / "payload.sock"};
  MOESTRO_ASSIGN_OR_RETURN(const auto info, file_system_of(arena_dir));
  if (is_hugetlb(info))
    return invalid_argument("--arena-dir " + arena_dir.string() +
                            " is on hugetlbfs, which cannot hold the arena's small files: give it as "
                            "--payload-dir, and a directory on a tmpfs as --arena-dir");
  if (wanted.empty()) return PayloadPlace{arena_dir / "arena", {}};
  std::error_code error;
  const fs::path dir = fs::absolute(wanted, error).lexically_normal();
  if (!fs::is_directory(dir, error)) return invalid_argument("--payload-dir " + wanted + " is not a directory");
  MOESTRO_RETURN_IF_ERROR(shm::check_private_dir(dir, "--payload-dir", true));
  return PayloadPlace{dir / name_for(arena_dir), {}};
}

Result<ArenaRoom> look_at_room(const PayloadPlace& place, uint64_t others, const SmallFiles& small) {
  const machine::HostMemory memory = machine::read_host_memory();
  ArenaRoom room;
  room.left = memory.left(), room.left_beside = memory.left(others);
  room.limit = memory.limit(), room.limit_beside = memory.limit(others);
  room.place = place.nameless() ? "memory" : place.file.parent_path().string();
  room.place_bytes = room.left.bytes;
  if (place.nameless()) return room;
  MOESTRO_ASSIGN_OR_RETURN(const auto info, file_system_of(place.file.parent_path()));
  room.in_memory = is_in_memory(info), room.set_aside = is_hugetlb(info);
  if (room.set_aside) room.page_bytes = static_cast<uint64_t>(info.f_bsize);
  room.place_bytes = room.set_aside ? hugetlb_room(info, memory)
                                    : static_cast<uint64_t>(info.f_bavail) * static_cast<uint64_t>(info.f_bsize);
  if (const auto mount = machine::mount_of(place.file.parent_path(), machine::read_mounts());
      mount && info.f_type == TMPFS_MAGIC)
    room.mount = mount->point, room.mount_bytes = info.f_blocks * static_cast<uint64_t>(info.f_bsize);
  if (!room.set_aside && share_a_file_system(place.file.parent_path(), small.dir))
    room.place_bytes -= std::min(room.place_bytes, small.bytes + (room.in_memory ? 0 : bookkeeping(room.place_bytes)));
  return room;
}

Result<shm::MappedFile> make_payload(const PayloadPlace& place, uint64_t bytes, const shm::FileAccess& access,
                                     PayloadNodes& nodes, const std::function<bool(uint64_t)>& progress) {
  auto made = place.nameless() ? shm::MappedFile::anonymous("moestro-arena", bytes, access.arena())
                               : shm::MappedFile::create(place.file, bytes, access.arena());
  if (!made) return made.status();
  MOESTRO_RETURN_IF_ERROR(
      access.apply(made->fd(), access.arena(), place.nameless() ? fs::path("memfd") : place.file));
  made->prefer_huge_pages();
  MOESTRO_RETURN_IF_ERROR(back_all(*made, place, bytes, nodes, progress));
  if (place.nameless()) MOESTRO_RETURN_IF_ERROR(made->seal());
  return made;
}

PageReport report_pages(const PayloadPlace& place, const PayloadNodes& nodes, const shm::MappedFile& payload) {
  PageFacts facts;
  facts.bytes = payload.size(), facts.huge_bytes = payload.huge_bytes();
  facts.shmem_huge = machine::read_host_memory().shmem_huge;
  if (nodes.there.size() > 1 || !nodes.over.empty())
    facts.nodes = machine::node_shares(machine::NodeMap::of({payload.data(), payload.size()}).pieces());
  facts.spread = nodes.spread;
  facts.kind = PageFacts::Kind::kNameless;
  if (place.nameless()) return judge_pages(facts);
  const fs::path dir = place.file.parent_path();
  facts.dir = dir.string();
  facts.kind = PageFacts::Kind::kDisk;
  if (const auto info = file_system_of(dir); info && is_in_memory(*info))
    facts.kind = is_hugetlb(*info) ? PageFacts::Kind::kHugetlbfs : PageFacts::Kind::kTmpfs;
  if (const auto mount = machine::mount_of(dir, machine::read_mounts())) {
    facts.mount = mount->point;
    facts.mount_huge = machine::option_value(mount->options, "huge");
  }
  return judge_pages(facts);
}

std::string payload_address(const PayloadPlace& place) {
  return place.nameless() ? kSocketScheme + place.socket.string() : place.file.string();
}

Result<shm::MappedFile> open_payload(const std::string& address, uint64_t bytes, std::chrono::milliseconds timeout,
                                     bool to_register) {
  using Access = shm::MappedFile::Access;
  if (!address.starts_with(kSocketScheme)) {
    if (to_register && ::access(address.c_str(), R_OK | W_OK) == 0)
      return shm::MappedFile::open(address, Access::kReadWrite, bytes);
    return shm::MappedFile::open(address, Access::kReadOnly, bytes);
  }
  MOESTRO_ASSIGN_OR_RETURN(auto fd,
                           shm::receive_descriptor(address.substr(std::string(kSocketScheme).size()), timeout));
  return shm::MappedFile::of_descriptor(std::move(fd), Access::kReadOnly, bytes, "the store's memory without a name");
}

}  // namespace moestro::store
