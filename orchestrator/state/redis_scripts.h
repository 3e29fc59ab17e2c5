#pragma once
// The keys in Redis, and the scripts that change them. Each script is atomic.
//
//   moestro:version                 of these keys (redis_migrations)
//   moestro:next                    the last number given to a file, a batch or a response: lists are in the order of
//                                   numbers
//   moestro:file:ID                 hash: a FileRecord
//   moestro:files[:PURPOSE][:of:OWNER]   sorted sets: ids by number
//   moestro:expiring                sorted set: files by expires_at
//   moestro:removed, moestro:removed:order   hash: id of a removed file -> its number; list: the ids, oldest first
//   moestro:blob:ID                 hash: piece -> bytes of a file
//   moestro:part:ID:HOST            one that is being written; gone by itself
//   moestro:batch:ID                hash: a BatchRecord, `lead`
//   moestro:batches[:of:OWNER], moestro:open   sorted sets: ids by number; open: not over
//   moestro:counts                  hash: status -> batches
//   moestro:queue:ID                stream: LINE-1 -> offset, group `runners`, a consumer for each orchestrator
//   moestro:done:ID                 bitmap: lines that have results
//   moestro:results:ID              hash: line -> result
//   moestro:response:ID             hash: owner, created_at, text of a ResponseRecord
//   moestro:responses               sorted set: ids by number
//   moestro:responses:bytes         of all their texts
//   moestro:kept:NAME               what others keep by name (put_blob)
//   moestro:host:HOST               lines: the version that orchestrator HOST serves, and each of its names; empty: not
//                                   known yet. There as long as it lives; gone a lease after its last word
//   moestro:hosts                   set: orchestrators, until they leave or one that looks finds them dead
//   moestro:holds                   hash: a model's name -> the version whose orchestrators run its lines
//
// The scripts build key names, which Redis Cluster does not allow, so it is refused (redis_safety).

#include <array>
#include <string_view>

namespace moestro::orchestrator::redis {

/// Lua, in parts that are concatenated.
using Script = std::array<std::string_view, 3>;

extern const Script kPutFile;     ///< id purpose bytes expires host n field value ...
extern const Script kExpiredFiles;  ///< now most -> id ...
extern const Script kRemoveFile;  ///< id removed_max
extern const Script kAddBatch;    ///< id n field value ...
extern const Script kChangeBatch; ///< id from to host n field value ...
extern const Script kFinish;      ///< id from to host n field value ... files (each as kPutFile's, without the host)
extern const Script kRoomForFiles;  ///< id
extern const Script kPutResults;  ///< id version (line good prompt cached completion text) ...
extern const Script kBeat;        ///< host may_claim version name ... lease -> (name version n host ...) ...
extern const Script kLeave;       ///< host may_claim version name ...
extern const Script kLead;        ///< id host
extern const Script kOffer;       ///< id host anew (line offset) ...
extern const Script kTake;        ///< id host most may_claim version -> line-id offset ...
extern const Script kGiveBack;    ///< id host line ...
extern const Script kHoldOnly;    ///< id host line ...
extern const Script kPutResponse;    ///< id owner created_at text created_after bytes_max
extern const Script kRemoveResponse; ///< id

}  // namespace moestro::orchestrator::redis
