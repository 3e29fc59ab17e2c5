#include "services/worker/engine/routed_layer.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace moestro::engine {

RoutedLayer::RoutedLayer(int64_t experts)
    : use_(static_cast<size_t>(experts)),
      taken_(use_.size()),
      want_(use_.size()),
      cursor_(use_.size()),
      held_(use_.size()) {
  all_.first.resize(use_.size() + 1);
  all_.experts.reserve(use_.size());
}

void RoutedLayer::begin(MoeLayerId layer, size_t micro_batches) {
  MOESTRO_CHECK(is_idle(), "a layer begins where nothing of another is needed any more");
  layer_ = layer, open_ = true;
  micro_batches_ = micro_batches, routed_ = 0;
  parts_.resize(std::max(parts_.size(), micro_batches));
  for (RoutedRows& part : parts_) {
    part.routed = false;
    part.first.resize(use_.size() + 1);
    part.experts.reserve(use_.size());
  }
  std::ranges::fill(use_, 0.0F);
  std::ranges::fill(taken_, 0);
  std::ranges::fill(want_, Want::kNone);
  for (Held& held : held_) {
    held.users = 0;
    if (!held.failure.is_ok()) held.failure = Status::ok();
  }
}

uint64_t RoutedLayer::route(int32_t micro_batch, const Choices& choices) {
  MOESTRO_CHECK(static_cast<size_t>(micro_batch) < micro_batches_ && !has_routed(micro_batch),
                "a micro-batch of the step is routed once per layer");
  const auto [ids, top_k, first_row, left_out, row_share, most, wants, beyond_room] = choices;
  const auto row_of = [&](size_t i) { return static_cast<size_t>(first_row + static_cast<int64_t>(i) / top_k); };
  const auto is_left_out = [&](size_t i) {
    return (!left_out.empty() && left_out[row_of(i)] != 0) || (!beyond_room.empty() && beyond_room[i] != 0);
  };
  RoutedRows& part = parts_[static_cast<size_t>(micro_batch)];
  std::vector<int32_t>& first = part.first;
  std::ranges::fill(first, 0);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (is_left_out(i)) continue;
    ++first[static_cast<size_t>(ids[i]) + 1];
    use_[static_cast<size_t>(ids[i])] += row_share.empty() ? 1.0F : row_share[row_of(i)];
  }
  uint64_t over = 0;
  part.experts.clear();
  for (size_t e = 0; e < use_.size(); ++e) {
    const int32_t n = std::min(first[e + 1], static_cast<int32_t>(most) - taken_[e]);
    over += static_cast<uint64_t>(first[e + 1] - n);
    if (n > 0) part.experts.push_back({static_cast<int32_t>(e), n}), taken_[e] += n, ++held_[e].users;
    first[e + 1] = first[e] + n;
    cursor_[e] = first[e];
  }
  part.rows.resize(ids.size());
  part.dropped.clear();
  part.dropped.reserve(part.rows.capacity());
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto rank = static_cast<int32_t>(static_cast<int64_t>(i) % top_k);
    const kernels::RoutedRow row{static_cast<int32_t>(row_of(i)), rank};
    const auto e = static_cast<size_t>(ids[i]);
    if (is_left_out(i) || cursor_[e] == first[e + 1]) {
      part.dropped.push_back(row);
      continue;
    }
    part.rows[static_cast<size_t>(cursor_[e]++)] = row;
    want_[e] = wants.empty() ? Want::kFull : std::max(want_[e], wants[i]);
  }
  part.routed = true;
  if (++routed_ == micro_batches_ && micro_batches_ > 1) join();
  return over;
}

void RoutedLayer::leave_out(int32_t micro_batch, std::span<const int32_t> experts) {
  RoutedRows& part = parts_[static_cast<size_t>(micro_batch)];
  for (const int32_t expert : experts) {
    const auto rows = part.of(expert);
    part.dropped.insert(part.dropped.end(), rows.begin(), rows.end());
    held_[static_cast<size_t>(expert)].users = 0;
  }
  std::erase_if(part.experts, [&](const lanes::RoutedExpert& r) {
    return std::ranges::find(experts, r.expert) != experts.end();
  });
}

void RoutedLayer::join() {
  const std::span parts(parts_.data(), micro_batches_);
  all_.experts.clear();
  all_.rows.clear();
  for (size_t e = 0; e < use_.size(); ++e) {
    all_.first[e] = static_cast<int32_t>(all_.rows.size());
    for (const RoutedRows& part : parts) {
      const auto rows = part.of(static_cast<int32_t>(e));
      all_.rows.insert(all_.rows.end(), rows.begin(), rows.end());
    }
    if (taken_[e] > 0) all_.experts.push_back({static_cast<int32_t>(e), taken_[e]});
  }
  all_.first.back() = static_cast<int32_t>(all_.rows.size());
}

const RoutedRows& RoutedLayer::rows(int32_t micro_batch) const {
  if (micro_batch != lanes::kAllMicroBatches) return parts_[static_cast<size_t>(micro_batch)];
  MOESTRO_CHECK(is_routed(), "all micro-batches are asked about when all have been routed");
  return micro_batches_ == 1 ? parts_.front() : all_;
}

void RoutedLayer::read(int32_t expert, lanes::TaskId task) {
  Held& held = held_[static_cast<size_t>(expert)];
  MOESTRO_CHECK(held.read < 0 && !held.lease, "an expert of a layer is read once");
  held.read = task, held.failure = Status::ok();
  ++reading_;
}

lanes::TaskId RoutedLayer::end_read(int32_t expert) {
  const lanes::TaskId task = std::exchange(held_[static_cast<size_t>(expert)].read, -1);
  if (task >= 0) --reading_;
  return task;
}

void RoutedLayer::hold(int32_t expert, store::Lease lease) {
  held_[static_cast<size_t>(expert)].lease = std::move(lease);
  ++leased_;
}

store::Lease RoutedLayer::release(int32_t micro_batch, int32_t expert) {
  Held& held = held_[static_cast<size_t>(expert)];
  held.users = micro_batch == lanes::kAllMicroBatches ? 0 : std::max(0, held.users - 1);
  if (held.users > 0) return {};
  if (held.lease) --leased_;
  return std::move(held.lease);
}

void RoutedLayer::abandon() {
  for (Held& held : held_) {
    held.lease.release();
    held.read = -1;
  }
  leased_ = reading_ = 0;
  close();
}

}  // namespace moestro::engine
