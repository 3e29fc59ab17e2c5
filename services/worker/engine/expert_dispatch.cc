#include "services/worker/engine/expert_dispatch.h"

#include <algorithm>
#include <cmath>

namespace moestro::engine {
namespace {

constexpr std::chrono::milliseconds kArrivalWait{1000};
// Five minutes without a single arrival: the store lives but cannot deliver (a full arena that nobody frees, a hung
// drive).
constexpr int kArrivalWaitsMax = 300;

}  // namespace

Result<ExpertDispatch> ExpertDispatch::create(store::BlobSource& source, int64_t moe_layers, int64_t experts,
                                              DType precision) {
  ExpertDispatch d(source, experts);
  const store::Manifest& manifest = source.manifest();
  d.expert_of_.assign(manifest.blobs.size(), -1);
  for (uint32_t l = 0; l < moe_layers; ++l)
    for (uint32_t e = 0; e < experts; ++e) {
      MOESTRO_ASSIGN_OR_RETURN(const uint32_t blob, manifest.expert_blob(MoeLayerId(l), ExpertId(e), precision));
      d.blob_of_.push_back(blob);
      d.expert_of_[blob] = static_cast<int32_t>(e);
    }
  const auto n = static_cast<size_t>(experts);
  d.first_row_.resize(n + 1);
  d.cursor_.resize(n);
  d.use_.resize(n);
  d.leases_.resize(n);
  d.read_of_.assign(n, -1);
  d.routed_.reserve(n);
  d.missing_.reserve(n);
  return d;
}

int64_t ExpertDispatch::capacity(double factor, int64_t tokens, int64_t top_k, int64_t experts) {
  return static_cast<int64_t>(std::ceil(factor * static_cast<double>(tokens * top_k) / static_cast<double>(experts)));
}

std::span<const lanes::RoutedExpert> ExpertDispatch::route(MoeLayerId layer, std::span<const int32_t> ids,
                                                           int64_t top_k, std::span<const uint8_t> left_out) {
  layer_ = layer;
  const auto is_left_out = [&](size_t choice) {
    return !left_out.empty() && left_out[choice / static_cast<size_t>(top_k)] != 0;
  };
  const int64_t tokens = static_cast<int64_t>(ids.size()) / top_k;
  const int64_t most =
      capacity_factor_ ? std::min(tokens, capacity(*capacity_factor_, tokens, top_k, experts_)) : tokens;
  std::fill(first_row_.begin(), first_row_.end(), 0);
  std::fill(use_.begin(), use_.end(), 0.0F);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (is_left_out(i)) continue;
    ++first_row_[static_cast<size_t>(ids[i]) + 1];
    use_[static_cast<size_t>(ids[i])] += row_share_.empty() ? 1.0F : row_share_[i / static_cast<size_t>(top_k)];
  }
  routed_.clear();
  for (size_t e = 0; e < static_cast<size_t>(experts_); ++e) {
    const int32_t n = std::min(first_row_[e + 1], static_cast<int32_t>(most));
    over_capacity_ += static_cast<uint64_t>(first_row_[e + 1] - n);
    if (n > 0) routed_.push_back({static_cast<int32_t>(e), n});
    first_row_[e + 1] = first_row_[e] + n;
    cursor_[e] = first_row_[e];
  }
  rows_.resize(ids.size());
  dropped_.clear();
  dropped_.reserve(rows_.capacity());
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto choice = static_cast<int64_t>(i);
    const kernels::RoutedRow row{static_cast<int32_t>(choice / top_k), static_cast<int32_t>(choice % top_k)};
    const auto e = static_cast<size_t>(ids[i]);
    if (is_left_out(i) || cursor_[e] == first_row_[e + 1]) dropped_.push_back(row);
    else rows_[static_cast<size_t>(cursor_[e]++)] = row;
  }
  return routed_;
}

std::span<const kernels::RoutedRow> ExpertDispatch::rows(int32_t expert) const {
  const auto e = static_cast<size_t>(expert);
  return std::span(rows_).subspan(static_cast<size_t>(first_row_[e]),
                                  static_cast<size_t>(first_row_[e + 1] - first_row_[e]));
}

bool ExpertDispatch::acquire(lanes::TaskId read, int32_t expert) {
  const uint32_t blob = blob_of(expert);
  if (auto lease = source_->try_pin(blob, store::UseWeight::of(use_[static_cast<size_t>(expert)]))) {
    leases_[static_cast<size_t>(expert)] = std::move(*lease);
    return true;
  }
  read_of_[static_cast<size_t>(expert)] = read;
  missing_.push_back(blob);
  return false;
}

void ExpertDispatch::withdraw(int32_t expert) {
  std::erase(missing_, blob_of(expert));
  read_of_[static_cast<size_t>(expert)] = -1;
}

Status ExpertDispatch::request_missing() {
  const Status status = source_->fetch(missing_, {plan_, layer_});
  missing_.clear();
  return status;
}

Result<ExpertDispatch::Arrival> ExpertDispatch::wait() {
  for (int waits = 0;;) {
    Result<store::Lease> arrival = source_->next_arrival(kArrivalWait);
    uint32_t blob = 0;
    Status status;
    if (arrival.is_ok()) {
      blob = arrival->blob();
    } else {
      status = arrival.status();
      if (status.code() == Code::kUnavailable) {
        if (++waits < kArrivalWaitsMax) continue;
        status = unavailable("no expert has arrived for five minutes (" + status.message() +
                             "): look at the store's log and its drive");
      }
      const std::optional<uint32_t> failed = source_->failed_blob();
      if (!failed) return status;
      blob = *failed;
    }
    const int32_t expert = blob < expert_of_.size() ? expert_of_[blob] : -1;
    // A read that was withdrawn may still arrive; its lease ends here.
    if (expert < 0 || read_of_[static_cast<size_t>(expert)] < 0 || blob != blob_of(expert)) continue;
    if (arrival.is_ok()) leases_[static_cast<size_t>(expert)] = std::move(*arrival);
    return Arrival{std::exchange(read_of_[static_cast<size_t>(expert)], -1), std::move(status)};
  }
}

const std::byte* ExpertDispatch::data(int32_t expert) const {
  const store::Lease& lease = leases_[static_cast<size_t>(expert)];
  return lease ? lease.data() : nullptr;
}

Status ExpertDispatch::release(int32_t expert) {
  store::Lease lease = std::move(leases_[static_cast<size_t>(expert)]);
  return lease ? check(expert, lease) : Status::ok();
}

Status ExpertDispatch::check(int32_t expert, const store::Lease& lease) const {
  if (lease.is_right()) return Status::ok();
  return corrupt("expert " + std::to_string(expert) + " of MoE layer " + std::to_string(layer_.value) +
                 " was found wrong in memory while it was in use, and what was computed with it is dropped: ask again");
}

void ExpertDispatch::abandon() {
  source_->cancel_fetches();
  missing_.clear();
  for (store::Lease& lease : leases_) lease.release();
  std::fill(read_of_.begin(), read_of_.end(), -1);
}

}  // namespace moestro::engine
