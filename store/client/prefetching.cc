// Reading ahead: messages that nothing comes back for.

#include <algorithm>
#include <cmath>

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

Status StoreClient::foresee(const Outlook& outlook) {
  const auto experts = outlook.experts.first(std::min(outlook.experts.size(), Outlook::kExpertsMax));
  if (state_ != StoreState::kThere) return outlook_stands_ = false, Status::ok();  // it ended with the store
  if (experts.empty() && !outlook_stands_) return Status::ok();
  std::vector<wire::ForeseenBlob> blobs;
  for (const Foreseen& expert : experts) {
    if (expert.blob >= blobs_.size())
      return invalid_argument("blob " + std::to_string(expert.blob) + " of model " + at_->manifest.model_name +
                              ", which has " + std::to_string(blobs_.size()));
    const auto due = std::chrono::duration_cast<std::chrono::microseconds>(expert.due).count();
    blobs.emplace_back(expert.blob, std::isnan(expert.probability) ? 0 : std::clamp(expert.probability, 0.0F, 1.0F),
                       static_cast<uint32_t>(std::clamp<int64_t>(due, 0, UINT32_MAX)));
  }
  flatbuffers::FlatBufferBuilder b;
  const auto list = b.CreateVectorOfStructs(blobs);
  outlook_stands_ = !blobs.empty();
  return at_->socket.send(
      encode(b, wire::StoreBody::Foresee,
             wire::CreateForesee(b, at_->slot, at_->incarnation, outlook.scan, outlook.leads, list)));
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
