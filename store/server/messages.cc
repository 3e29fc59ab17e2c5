#include "store/server/messages.h"

#include "common/wire/store_messages_generated.h"
#include "store/blob_source.h"

namespace moestro::store {
namespace {

std::string text(const flatbuffers::String* s) { return s == nullptr ? std::string() : s->str(); }

template <typename T>
net::Bytes finish(flatbuffers::FlatBufferBuilder& b, wire::StoreBody kind, flatbuffers::Offset<T> body) {
  b.Finish(wire::CreateStoreMessage(b, kind, body.Union()), wire::StoreMessageIdentifier());
  const auto* begin = reinterpret_cast<const std::byte*>(b.GetBufferPointer());
  return net::Bytes(begin, begin + b.GetSize());
}

template <typename To, typename From>
To session_of(const From& body) {
  To request;
  request.slot = body.slot(), request.incarnation = body.incarnation();
  return request;
}

FetchRequest fetch_request(const wire::FetchBlobs& body) {
  auto request = session_of<FetchRequest>(body);
  request.plan = body.plan(), request.moe_layer = body.moe_layer();
  if (body.blobs() != nullptr) request.blobs.assign(body.blobs()->begin(), body.blobs()->end());
  return request;
}

/// Numbers that no client of ours sends are refused whole, so that the machine sees none of them.
Result<Request> foresee_request(const wire::Foresee& body) {
  ForeseeRequest request = session_of<ForeseeRequest>(body);
  request.scan = body.scan(), request.leads = body.leads();
  if (body.blobs() == nullptr) return Request{std::move(request)};
  if (body.blobs()->size() > Outlook::kExpertsMax)
    return exhausted("an outlook of " + std::to_string(body.blobs()->size()) + " blobs; a store looks at " +
                     std::to_string(Outlook::kExpertsMax));
  for (const wire::ForeseenBlob* blob : *body.blobs()) {
    if (!(blob->probability() >= 0 && blob->probability() <= 1))
      return invalid_argument("blob " + std::to_string(blob->blob()) + " is foreseen with a probability of " +
                              std::to_string(blob->probability()));
    request.blobs.push_back({blob->blob(), blob->probability(), std::chrono::microseconds(blob->due_us())});
  }
  return Request{std::move(request)};
}

flatbuffers::Offset<wire::StoreReading> write_reading(flatbuffers::FlatBufferBuilder& b, const ReadingFigures& f) {
  std::vector<flatbuffers::Offset<wire::StoreDriveStatus>> drives;
  for (const DriveFigures& d : f.drives)
    drives.push_back(wire::CreateStoreDriveStatusDirect(b, d.path.c_str(), d.reader.c_str(), d.chunk_bytes, d.depth,
                                                        d.bytes_per_s, d.bytes_read, d.retries, d.registered));
  return wire::CreateStoreReadingDirect(b, &drives, f.prefetches, f.prefetches_used, f.prefetches_late,
                                        f.prefetches_wasted, f.prefetch_wasted_bytes, f.prefetches_dropped,
                                        f.scrubbed_bytes, f.scrub_mismatches, &f.queued, &f.loading, f.hits, f.misses,
                                        f.foreseen_below_floor, f.foreseen_over_budget, f.foreseen_early,
                                        f.foreseen_guarded);
}

}  // namespace

Status check_protocol(const std::string& what, uint32_t spoken) {
  if (spoken == kStoreProtocol) return Status::ok();
  return unsupported(what + " in store protocol " + std::to_string(spoken) + ", this store speaks " +
                     std::to_string(kStoreProtocol) + ": run both from one build");
}

Result<Request> parse_request(std::span<const std::byte> bytes) {
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  flatbuffers::Verifier verifier(data, bytes.size());
  if (bytes.size() < 8 || !wire::VerifyStoreMessageBuffer(verifier))
    return corrupt("not a message of the store's protocol");
  const wire::StoreMessage* message = wire::GetStoreMessage(data);
  // The verifier lets a union pass that names its kind and has no body.
  if (message->body() == nullptr) return corrupt("a message of the store's protocol without a body");
  switch (message->body_type()) {
    case wire::StoreBody::AttachStore: {
      const auto* body = message->body_as_AttachStore();
      return Request{
          AttachRequest{body->protocol(), body->shared_version(), text(body->model()), text(body->client())}};
    }
    case wire::StoreBody::ConfirmAttach: return Request{session_of<ConfirmRequest>(*message->body_as_ConfirmAttach())};
    case wire::StoreBody::DetachStore: return Request{session_of<DetachRequest>(*message->body_as_DetachStore())};
    case wire::StoreBody::CancelFetches: return Request{session_of<CancelRequest>(*message->body_as_CancelFetches())};
    case wire::StoreBody::FetchBlobs: return Request{fetch_request(*message->body_as_FetchBlobs())};
    case wire::StoreBody::Foresee: return foresee_request(*message->body_as_Foresee());
    case wire::StoreBody::StoreStatusRequest:
      return Request{StatusRequest{message->body_as_StoreStatusRequest()->protocol()}};
    case wire::StoreBody::ChangePacks: {
      const auto* body = message->body_as_ChangePacks();
      if (body->change() > wire::PackChange::MAX)
        return invalid_argument("a change of packs that this store does not know");
      return Request{ChangePacksRequest{body->protocol(), static_cast<ChangePacksRequest::Kind>(body->change()),
                                        text(body->name()), text(body->pack()), text(body->key())}};
    }
    default: return invalid_argument("a message that a store does not answer");
  }
}

net::Bytes build_attached(const AttachReply& reply) {
  flatbuffers::FlatBufferBuilder b(reply.manifest.size() + 4 * reply.entries.size() + 1024);
  const auto dir = b.CreateString(reply.arena_dir);
  const auto manifest = b.CreateVector(reinterpret_cast<const uint8_t*>(reply.manifest.data()), reply.manifest.size());
  const auto entries = b.CreateVector(reply.entries);
  const auto payload = b.CreateString(reply.payload);
  const auto streamed = b.CreateVector(reply.streamed);
  return finish(b, wire::StoreBody::AttachedStore,
                wire::CreateAttachedStore(b, reply.slot, reply.incarnation, reply.epoch, dir, reply.arena_bytes,
                                          reply.table_entries, manifest, entries, payload, streamed));
}

net::Bytes build_confirmed(const Session& session) {
  flatbuffers::FlatBufferBuilder b;
  return finish(b, wire::StoreBody::AttachConfirmed, wire::CreateAttachConfirmed(b, session.slot, session.incarnation));
}

net::Bytes build_refused(const Status& why) {
  flatbuffers::FlatBufferBuilder b;
  return finish(b, wire::StoreBody::StoreRefused,
                wire::CreateStoreRefusedDirect(b, static_cast<uint32_t>(why.code()), why.message().c_str()));
}

net::Bytes build_blob_failed(uint32_t blob, const Status& why) {
  flatbuffers::FlatBufferBuilder b;
  return finish(b, wire::StoreBody::BlobFailed,
                wire::CreateBlobFailedDirect(b, blob, static_cast<uint32_t>(why.code()), why.message().c_str()));
}

net::Bytes build_packs_changed(const std::string& message) {
  flatbuffers::FlatBufferBuilder b;
  return finish(b, wire::StoreBody::PacksChanged, wire::CreatePacksChangedDirect(b, message.c_str()));
}

net::Bytes build_status(const StoreFigures& f) {
  flatbuffers::FlatBufferBuilder b;
  std::vector<flatbuffers::Offset<wire::StoreModelStatus>> models;
  for (const ModelFigures& m : f.models)
    models.push_back(wire::CreateStoreModelStatusDirect(
        b, m.name.c_str(), m.pack.c_str(), m.dense_bytes, m.expert_bytes, m.blobs, m.resident_experts, m.experts,
        m.workers, m.retired, m.used_bytes, m.guaranteed_bytes, m.maximal_bytes, m.version, m.layers,
        m.streamed_layers, m.streamed_bytes));
  std::vector<flatbuffers::Offset<wire::StoreWorkerStatus>> workers;
  for (const WorkerFigures& w : f.workers)
    workers.push_back(wire::CreateStoreWorkerStatusDirect(b, w.slot, w.client.c_str(), w.model.c_str(), w.fetches,
                                                          w.share_bytes, w.pinned, w.hits, w.misses));
  const auto reading = write_reading(b, f.reading);
  const WarmLoad::Progress& w = f.warm_start;
  const auto warm =
      wire::CreateStoreWarmStart(b, w.blobs, w.bytes, w.blobs_there, w.bytes_there, w.left_out, w.seconds, w.running);
  return finish(
      b, wire::StoreBody::StoreStatus,
      wire::CreateStoreStatusDirect(
          b, f.epoch, f.arena_bytes, f.used_bytes, f.huge_bytes, f.reader.c_str(), &models, &workers, f.fetches,
          f.joined, f.loads, f.evictions, f.bytes_read, f.retries, f.bad_blobs, f.queued, f.loading, f.resident_bytes,
          f.aliases, f.reads_elsewhere, reading, f.adopted, f.adopted_bytes, f.adopted_seconds, f.unchecked, f.damaged,
          f.refused, f.policy.c_str(), f.pages.c_str(), f.pages_mend.c_str(), warm, f.segments_emptied,
          f.window_places, f.streamed_loads, f.streamed_loaded_bytes, f.unreadable,
          f.memory_changed_s, f.refused_s));
}

}  // namespace moestro::store
