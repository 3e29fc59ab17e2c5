#include "store/client/attach.h"

#include <algorithm>
#include <filesystem>
#include <thread>

#include "common/fault_point.h"
#include "store/arena/payload.h"
#include "store/client/wire.h"

namespace moestro::store {
namespace {

using Clock = std::chrono::steady_clock;

Status lock_slot(Attachment& a, const std::filesystem::path& dir, Clock::time_point deadline) {
  MOESTRO_ASSIGN_OR_RETURN(a.slot_lock, shm::FileLock::open(dir / "workers" / std::to_string(a.slot), false));
  while (true) {  // the store takes it for an instant when it looks whether we are there
    MOESTRO_ASSIGN_OR_RETURN(const bool locked, a.slot_lock.try_lock());
    if (locked) return Status::ok();
    if (Clock::now() >= deadline)
      return unavailable("the lock of worker slot " + std::to_string(a.slot) + " is held by another process");
    std::this_thread::yield();
  }
}

Status check_header(uint64_t magic, uint64_t magic_wanted, uint32_t version, uint64_t epoch, uint64_t epoch_wanted,
                    const char* name) {
  if (magic != magic_wanted)
    return corrupt(std::string("the store's file '") + name + "' is not one of this program's");
  if (version != kSharedVersion)
    return unsupported(std::string("the store's file '") + name + "' has version " + std::to_string(version) +
                       ", this build knows " + std::to_string(kSharedVersion));
  if (epoch != epoch_wanted)
    return unavailable(std::string("the store's file '") + name + "' is of another run of the store: attach again");
  return Status::ok();
}

constexpr std::chrono::milliseconds kAskAgain{500};
constexpr std::chrono::milliseconds kHandOut{5000};  ///< for a store to hand out memory without a name

Status map_files(Attachment& a, const wire::AttachedStore& reply, bool registers_arena) {
  using Access = shm::MappedFile::Access;
  const std::filesystem::path dir = reply.arena_dir() ? reply.arena_dir()->str() : "";
  const std::string slot = std::to_string(a.slot);
  MOESTRO_ASSIGN_OR_RETURN(a.table,
                           shm::MappedFile::open(dir / "table", Access::kReadOnly, table_bytes(reply.table_entries())));
  MOESTRO_ASSIGN_OR_RETURN(a.arena, open_payload(reply.payload() ? reply.payload()->str() : (dir / "arena").string(),
                                                 reply.arena_bytes(), kHandOut, registers_arena));
  MOESTRO_ASSIGN_OR_RETURN(
      a.pins, shm::MappedFile::open(dir / "pins" / slot, Access::kReadWrite, pins_bytes(reply.table_entries())));
  MOESTRO_ASSIGN_OR_RETURN(a.bell, shm::MappedFile::open(dir / "bell" / slot, Access::kReadOnly, bell_bytes()));
  MOESTRO_ASSIGN_OR_RETURN(a.store_alive, shm::FileLock::open(dir / "alive", false));
  const auto& pins = *reinterpret_cast<const PinsHeader*>(a.pins.data());
  MOESTRO_RETURN_IF_ERROR(
      check_header(a.header().magic, kTableMagic, a.header().version, a.header().epoch.load(), reply.epoch(), "table"));
  MOESTRO_RETURN_IF_ERROR(check_header(pins.magic, kPinsMagic, pins.version, pins.epoch, reply.epoch(), "pins"));
  return check_header(a.bell_header().magic, kBellMagic, a.bell_header().version, a.bell_header().epoch, reply.epoch(),
                      "bell");
}

Status read_reply(Attachment& a, const wire::AttachedStore& reply) {
  if (reply.manifest() == nullptr || reply.entries() == nullptr || reply.slot() >= kWorkerSlotsMax)
    return corrupt("the store's answer to an attach is incomplete");
  a.slot = reply.slot(), a.incarnation = reply.incarnation();
  MOESTRO_ASSIGN_OR_RETURN(a.manifest, parse_manifest(reinterpret_cast<const std::byte*>(reply.manifest()->data()),
                                                      reply.manifest()->size()));
  a.entries.assign(reply.entries()->begin(), reply.entries()->end());
  if (a.entries.size() != a.manifest.blobs.size())
    return corrupt("the store's answer to an attach does not match its manifest");
  for (const uint32_t entry : a.entries)
    if (entry >= reply.table_entries())
      return corrupt("the store's answer to an attach names an entry outside its table");
  if (reply.streamed() != nullptr) a.streamed.assign(reply.streamed()->begin(), reply.streamed()->end());
  for (const uint32_t blob : a.streamed)
    if (blob >= a.entries.size() || a.manifest.blobs[blob].kind != BlobKind::kDense)
      return corrupt("the store's answer to an attach streams what is not dense weights");
  if (!std::ranges::is_sorted(a.streamed)) return corrupt("the store's answer to an attach is out of order");
  return Status::ok();
}

/// Whether the store that made this offer has gone: its successor knows nothing of it, and has removed what it names.
bool is_void(const std::filesystem::path& dir, uint64_t epoch) {
  if (std::error_code ignored; !std::filesystem::exists(dir / "store.lock", ignored))
    return false;  // this process does not see that directory
  const auto table = shm::MappedFile::open(dir / "table", shm::MappedFile::Access::kReadOnly, kSharedPage);
  if (!table) return true;
  const auto& header = *reinterpret_cast<const TableHeader*>(table->data());
  if (header.epoch.load() != epoch || header.closed.load() != 0) return true;
  auto alive = shm::FileLock::open(dir / "alive", false);
  if (!alive) return true;
  const auto held = alive->held_elsewhere();
  return !held || !*held;
}

/// Asked again: a store that dies now has a successor that adopts the slot and has not heard the question.
Status confirm(Attachment& a, Clock::time_point deadline) {
  while (true) {
    flatbuffers::FlatBufferBuilder b;
    MOESTRO_RETURN_IF_ERROR(
        a.socket.send(encode(b, wire::StoreBody::ConfirmAttach, wire::CreateConfirmAttach(b, a.slot, a.incarnation))));
    const auto until = std::min(deadline, Clock::now() + kAskAgain);
    const auto answer = receive_reply(a.socket, wire::StoreBody::AttachConfirmed, until, a.endpoint);
    if (answer || Clock::now() < until || until == deadline) return answer.status();
  }
}

Status take_offer(Attachment& a, const wire::AttachedStore& reply, const AttachOptions& options,
                  Clock::time_point deadline) {
  MOESTRO_FAULT_POINT("offered");
  MOESTRO_RETURN_IF_ERROR(map_files(a, reply, options.registers_arena));
  MOESTRO_RETURN_IF_ERROR(lock_slot(a, reply.arena_dir()->str(), deadline));
  MOESTRO_FAULT_POINT("confirming");
  return confirm(a, deadline);
}

/// Nothing: the store went away meanwhile, and the next one is to be asked.
Result<std::unique_ptr<Attachment>> attach_once(const AttachOptions& options, Clock::time_point deadline) {
  MOESTRO_ASSIGN_OR_RETURN(auto socket, net::DealerSocket::connect(options.endpoint));
  auto a = std::unique_ptr<Attachment>(
      new Attachment{options.endpoint, std::move(socket), 0, 0, {}, {}, {}, {}, {}, {}, {}, {}, {}});
  {
    flatbuffers::FlatBufferBuilder b;
    MOESTRO_RETURN_IF_ERROR(
        a->socket.send(encode(b, wire::StoreBody::AttachStore,
                              wire::CreateAttachStoreDirect(b, kClientProtocol, kSharedVersion, options.model.c_str(),
                                                            options.client.c_str()))));
  }
  MOESTRO_ASSIGN_OR_RETURN(const auto bytes,
                           receive_reply(a->socket, wire::StoreBody::AttachedStore, deadline, options.endpoint));
  const wire::AttachedStore& reply = *decode(bytes)->body_as_AttachedStore();
  MOESTRO_RETURN_IF_ERROR(read_reply(*a, reply));
  const Status taken = take_offer(*a, reply, options, deadline);
  if (taken.is_ok()) return a;
  if (reply.arena_dir() != nullptr && is_void(reply.arena_dir()->str(), reply.epoch()))
    return std::unique_ptr<Attachment>();
  return taken;
}

}  // namespace

bool Attachment::store_gone() {
  const auto held = store_alive.held_elsewhere();
  return !held || !*held;
}

Result<std::unique_ptr<Attachment>> attach_to_store(const AttachOptions& options) {
  const auto deadline = Clock::now() + options.timeout;
  while (true) {
    auto attached = attach_once(options, deadline);
    if (!attached || *attached) return attached;
    if (Clock::now() >= deadline)
      return unavailable("the store at " + options.endpoint +
                         " went away while this worker attached to it: attach again");
  }
}

}  // namespace moestro::store
