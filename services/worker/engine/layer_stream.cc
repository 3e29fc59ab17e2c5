#include "services/worker/engine/layer_stream.h"

#include <algorithm>
#include <utility>

namespace moestro::engine {

LayerStream::LayerStream(store::BlobSource& source, DenseWeights& weights, const model::ModelSpec& spec,
                         const Clock& clock, bool several)
    : source_(source), weights_(weights), clock_(clock), at_(spec.layers.size(), -1), several_(several) {
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
  if (!held_.empty() || !asked_.empty()) abandon();
  plan_ = plan;
  next_ = 0;
  stalled_ = Nanos(0);
  wrong_.reset();
  used_.clear();
  ask_ahead();
}

void LayerStream::ask_ahead() {
  for (; next_ < order_.size(); ++next_) {
    if (!source_.ask_streamed(order_[next_].blob, {plan_, order_[next_].order})) return;
    asked_.push_back(next_);
  }
}

bool LayerStream::holds(size_t at) const {
  return std::ranges::any_of(held_, [at](const Held& held) { return held.at == at; });
}

void LayerStream::let_go() {
  const store::Lease& lease = held_.front().lease;
  if (!lease.is_right()) wrong_ = lease.blob();
  if (several_) used_.emplace_back(lease.blob(), lease.finds());
  held_.pop_front();
}

bool LayerStream::try_hold(size_t layer) {
  if (!streams(layer)) return true;
  const auto at = static_cast<size_t>(at_[layer]);
  if (holds(at)) return true;
  if (!several_) held_.clear();
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
  if (stopped) return false;  // what came instead is what was waited for
  stalled_ += clock_.now() - begin;
  if (!lease.is_ok())
    return lease.status().with_context("dense weights of layer " + std::to_string(layer));
  hold(at, std::move(*lease));
  return true;
}

void LayerStream::hold(size_t at, store::Lease lease) {
  if (!asked_.empty()) asked_.pop_front();
  next_ = std::max(next_, at + 1);  // it was there, although there was no room to ask for it
  weights_.move_layer(order_[at].layer, lease.data());
  held_.push_back({at, std::move(lease)});
  ask_ahead();
}

void LayerStream::release(size_t layer) {
  if (!streams(layer) || held_.empty() || order_[held_.front().at].layer != layer) return;
  let_go();
  ask_ahead();
}

void LayerStream::abandon() {
  held_.clear();
  asked_.clear();
  source_.cancel_fetches();
}

/// Kernels of layers that were let go of may have read them later.
Status LayerStream::check() const {
  std::optional<uint32_t> wrong = wrong_;
  for (const auto& [blob, finds] : used_)
    if (source_.finds(blob) != finds) wrong = blob;
  if (!wrong) return Status::ok();
  return corrupt("dense weights (" + weights_.name_of(*wrong) +
                 ") were found wrong in memory while a step computed with them, and what it computed is dropped: ask "
                 "again");
}

}  // namespace moestro::engine
