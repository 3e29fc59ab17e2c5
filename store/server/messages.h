#pragma once
// The store's side of common/wire/store_messages.fbs: verifies requests and converts them to plain values, and builds
// replies.

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "common/net/zmq_socket.h"
#include "common/status.h"
#include "store/machine/outlooks.h"
#include "store/server/warm_load.h"

namespace moestro::store {

inline constexpr uint32_t kStoreProtocol = 2;

struct AttachRequest {
  uint32_t protocol = 0, shared_version = 0;
  std::string model, client;
};
/// The session fields of every request after the attach.
struct Session {
  uint32_t slot = 0;
  uint64_t incarnation = 0;
};
struct ConfirmRequest : Session {};
struct DetachRequest : Session {};
struct CancelRequest : Session {};
struct FetchRequest : Session {
  uint64_t plan = 0;
  uint32_t moe_layer = 0;
  std::vector<uint32_t> blobs;
};
struct ForeseeRequest : Session {
  bool scan = false, leads = false;
  std::vector<ForeseenEntry> blobs;  ///< named by their number in the pack; at most Outlook::kExpertsMax
};
struct StatusRequest {
  uint32_t protocol = 0;
};
struct ChangePacksRequest {
  enum class Kind : uint8_t { kAdd = 0, kRemove = 1, kReplace = 2 };
  uint32_t protocol = 0;
  Kind kind = Kind::kAdd;
  std::string name, pack, key;
};
using Request = std::variant<AttachRequest, ConfirmRequest, DetachRequest, FetchRequest, CancelRequest, StatusRequest,
                             ChangePacksRequest, ForeseeRequest>;

/// kUnsupported if the client speaks another protocol. `what`: its request, for the message.
Status check_protocol(const std::string& what, uint32_t spoken);

/// Accepts any bytes. kCorrupt: not a store message; kInvalidArgument: not a message that a store answers.
Result<Request> parse_request(std::span<const std::byte> bytes);

struct AttachReply {
  uint32_t slot = 0;
  uint64_t incarnation = 0, epoch = 0;
  std::string arena_dir;
  uint64_t arena_bytes = 0;
  uint32_t table_entries = 0;
  std::vector<std::byte> manifest;
  std::vector<uint32_t> entries;
  std::string payload;  ///< payload_address()
  std::vector<uint32_t> streamed = {};
};

struct ModelFigures {
  std::string name, pack;
  uint64_t dense_bytes = 0, expert_bytes = 0;
  uint32_t blobs = 0, resident_experts = 0, experts = 0;
  uint32_t workers = 0;
  bool retired = false;
  uint64_t used_bytes = 0, guaranteed_bytes = 0, maximal_bytes = 0;  ///< of its share; maximal 0: none
  uint64_t version = 0;  ///< the pack's identity
  uint32_t layers = 0, streamed_layers = 0;
  uint64_t streamed_bytes = 0;
};
struct WorkerFigures {
  uint32_t slot = 0;
  std::string client, model;
  uint64_t fetches = 0, share_bytes = 0;
  uint32_t pinned = 0;
  uint64_t hits = 0, misses = 0;
};
struct DriveFigures {
  std::string path, reader;
  uint32_t chunk_bytes = 0, depth = 0;
  uint64_t bytes_per_s = 0;  ///< as measured at start; 0: not measured
  uint64_t bytes_read = 0, retries = 0;
  bool registered = false;  ///< the arena, as this reader's buffers
};
struct ReadingFigures {
  std::vector<DriveFigures> drives;
  uint64_t prefetches = 0, prefetches_used = 0, prefetches_late = 0, prefetches_wasted = 0, prefetch_wasted_bytes = 0;
  uint64_t prefetches_dropped = 0, scrubbed_bytes = 0, scrub_mismatches = 0;
  uint64_t foreseen_below_floor = 0, foreseen_over_budget = 0, foreseen_early = 0, foreseen_guarded = 0;
  std::vector<uint32_t> queued, loading;  ///< by class
  uint64_t hits = 0, misses = 0;
};
struct StoreFigures {
  uint64_t epoch = 0, arena_bytes = 0, used_bytes = 0, huge_bytes = 0;
  std::string reader, policy, pages, pages_mend;
  std::vector<ModelFigures> models;
  std::vector<WorkerFigures> workers;
  uint64_t fetches = 0, joined = 0, loads = 0, evictions = 0, bytes_read = 0, retries = 0, bad_blobs = 0,
           segments_emptied = 0;
  uint32_t window_places = 0;
  uint64_t streamed_loads = 0, streamed_loaded_bytes = 0;
  uint32_t queued = 0, loading = 0;
  uint64_t resident_bytes = 0, reads_elsewhere = 0, refused = 0;
  uint64_t adopted = 0, adopted_bytes = 0, unchecked = 0, damaged = 0, unreadable = 0;
  double adopted_seconds = 0;
  double memory_changed_s = -1, refused_s = -1;
  uint32_t aliases = 0;
  ReadingFigures reading;
  WarmLoad::Progress warm_start;
};

net::Bytes build_attached(const AttachReply& reply);
net::Bytes build_confirmed(const Session& session);
net::Bytes build_refused(const Status& why);
net::Bytes build_blob_failed(uint32_t blob, const Status& why);
net::Bytes build_packs_changed(const std::string& message);
net::Bytes build_status(const StoreFigures& figures);

}  // namespace moestro::store
