// What a worker foresees, told to the store. Nothing comes back for it.

#include <algorithm>
#include <cmath>

#include "store/client/store_client.h"
#include "store/client/wire.h"

namespace moestro::store {

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

}  // namespace moestro::store
