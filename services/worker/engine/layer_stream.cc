#include "services/worker/engine/layer_stream.h"

#include <algorithm>
#include <utility>

namespace moestro::engine {

LayerStream::LayerStream(store::BlobSource& source, DenseWeights& weights, const model::ModelSpec& spec,
                         const Clock& clock)
    : source_(source), weights_(weights), clock_(clock), at_(spec.layers.size(), -1) {
  MoeLayerId next{0};
  for (size_t layer = 0; layer < spec.layers.size(); ++layer) {
    if (const auto blob = weights.streamed_blob(layer)) {
      at_[layer] = static_cast<int32_t>(order_.size());
      order_.push_back({layer, *blob, next});
    }
    if (spec.layers[layer].moe_index) next = MoeLayerId(spec.layers[layer].moe_index->value + 1);
  }
}

void LayerStream::begin(PlanId plan) {
  if (lease_ || !asked_.empty()) abandon();
  plan_ = plan;
  next_ = 0;
  stalled_ = Nanos(0);
  wrong_.reset();
  ask_ahead();
}

void LayerStream::ask_ahead() {
  for (; next_ < order_.size(); ++next_) {
    if (!source_.ask_streamed(order_[next_].blob, {plan_, order_[next_].order})) return;
    asked_.push_back(next_);
  }
}

bool LayerStream::try_hold(size_t layer) {
  if (!streams(layer)) return true;
  const auto at = static_cast<size_t>(at_[layer]);
  if (lease_ && held_ == at) return true;
  lease_.release();
  ask_ahead();
  auto lease = source_.try_pin(order_[at].blob);
  if (!lease) return false;
  hold(at, std::move(*lease));
  return true;
}

Result<bool> LayerStream::wait(size_t layer, const std::function<bool()>& interrupted) {
  const auto at = static_cast<size_t>(at_[layer]);
  const Nanos begin = clock_.now();
  bool stopped = false;
  Result<store::Lease> lease =
      wait_for_streamed(source_, order_[at].blob, [&] { return stopped = interrupted(); });
  stalled_ += clock_.now() - begin;
  if (stopped) return false;
  if (!lease.is_ok())
    return lease.status().with_context("dense weights of layer " + std::to_string(layer));
  hold(at, std::move(*lease));
  return true;
}

void LayerStream::hold(size_t at, store::Lease lease) {
  if (!asked_.empty()) asked_.pop_front();
  next_ = std::max(next_, at + 1);  // it was there, although there was no room to ask for it
  held_ = at;
  lease_ = std::move(lease);
  weights_.move_layer(order_[at].layer, lease_.data());
  ask_ahead();
}

void LayerStream::release(size_t layer) {
  if (!streams(layer) || !lease_) return;
  if (!lease_.is_right()) wrong_ = lease_.blob();
  lease_.release();
  ask_ahead();
}

void LayerStream::abandon() {
  lease_.release();
  asked_.clear();
  source_.cancel_fetches();
}

Status LayerStream::check() const {
  if (!wrong_) return Status::ok();
  return corrupt("dense weights (" + weights_.name_of(*wrong_) +
                 ") were found wrong in memory while a step computed with them, and what it computed is dropped: ask "
                 "again");
}

}  // namespace moestro::engine
