// Reading ahead: messages that nothing comes back for.

#include "store/client/store_client.h"
#include "store/client/wire.h"

namespace moestro::store {

Status StoreClient::prefetch(std::span<const uint32_t> blobs, WantedBy why) {
  std::vector<uint32_t> absent;
  for (const uint32_t blob : blobs) {
    if (blob >= blobs_.size())
      return invalid_argument("blob " + std::to_string(blob) + " of model " + at_->manifest.model_name +
                              ", which has " + std::to_string(blobs_.size()));
    if (blobs_[blob].use != Use::kNone) continue;
    const Residency seen = follow(blobs_[blob]).residency;
    if (seen == Residency::kAbsent || seen == Residency::kLoading)
      absent.push_back(blob);  // who has it read may drop it
  }
  if (absent.empty() || state_ != StoreState::kThere) return Status::ok();
  flatbuffers::FlatBufferBuilder b;
  const auto list = b.CreateVector(absent);
  return at_->socket.send(
      encode(b, wire::StoreBody::PrefetchBlobs,
             wire::CreatePrefetchBlobs(b, at_->slot, at_->incarnation, why.plan.value, why.moe_layer.value, list)));
}

Status StoreClient::steer_prefetches(PlanId plan_max, std::span<const PrefetchRank> layers) {
  if (layers.empty() || state_ != StoreState::kThere) return Status::ok();
  std::vector<wire::PrefetchRank> ranks;
  for (const PrefetchRank& layer : layers) ranks.emplace_back(layer.moe_layer.value, layer.rank);
  flatbuffers::FlatBufferBuilder b;
  const auto list = b.CreateVectorOfStructs(ranks);
  return at_->socket.send(encode(b, wire::StoreBody::SteerPrefetches,
                                 wire::CreateSteerPrefetches(b, at_->slot, at_->incarnation, plan_max.value, list)));
}

}  // namespace moestro::store
