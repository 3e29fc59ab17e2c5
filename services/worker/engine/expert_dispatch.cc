#include "services/worker/engine/expert_dispatch.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/check.h"

namespace moestro::engine {
namespace {

constexpr std::chrono::milliseconds kArrivalWait{1000};
// Five minutes without a single arrival: the store lives but cannot deliver (a full arena that nobody frees, a hung
// drive).
constexpr int kArrivalWaitsMax = 300;
/// Of a step that says nothing of its micro-batches: all rows.
constexpr MicroBatch kWholeStep[1] = {};

}  // namespace

Result<ExpertDispatch> ExpertDispatch::create(store::BlobSource& source, int64_t moe_layers, int64_t experts,
                                              DType precision) {
  ExpertDispatch d(source, experts);
  const store::Manifest& manifest = source.manifest();
  d.key_of_.assign(manifest.blobs.size(), -1);
  for (uint32_t l = 0; l < moe_layers; ++l)
    for (uint32_t e = 0; e < experts; ++e) {
      MOESTRO_ASSIGN_OR_RETURN(const uint32_t blob, manifest.expert_blob(MoeLayerId(l), ExpertId(e), precision));
      d.key_of_[blob] = static_cast<int64_t>(d.blob_of_.size());
      d.blob_of_.push_back(blob);
    }
  for (RoutedLayer& layer : d.layers_) layer = RoutedLayer(experts);
  d.needs_.reserve(static_cast<size_t>(experts));
  d.missing_.reserve(kLayersOpenMax * static_cast<size_t>(experts));
  return d;
}

Status ExpertDispatch::set_mixed(const MixedOptions& options) {
  const auto layers = static_cast<uint32_t>(blob_of_.size()) / static_cast<uint32_t>(experts_);
  for (uint32_t l = 0; l < layers; ++l)
    for (uint32_t e = 0; e < static_cast<uint32_t>(experts_); ++e) {
      MOESTRO_ASSIGN_OR_RETURN(const uint32_t blob,
                               source_->manifest().expert_blob(MoeLayerId(l), ExpertId(e), options.low));
      key_of_[blob] = static_cast<int64_t>(low_of_.size());
      low_of_.push_back(blob);
    }
  layer_copies_.resize(layers);
  mixed_ = options;
  return Status::ok();
}

int64_t ExpertDispatch::capacity(double factor, int64_t tokens, int64_t top_k, int64_t experts) {
  return static_cast<int64_t>(std::ceil(factor * static_cast<double>(tokens * top_k) / static_cast<double>(experts)));
}

void ExpertDispatch::begin_step(PlanId plan, std::span<const MicroBatch> micro_batches,
                                std::span<const float> row_share) {
  plan_ = plan;
  micro_batches_ = micro_batches.empty() ? std::span<const MicroBatch>(kWholeStep) : micro_batches;
  row_share_ = row_share;
  over_capacity_ = 0;
  if (mixed_) {
    MOESTRO_CHECK(micro_batches_.size() == 1, "with mixed copies a step is one micro-batch");
    low_rows_.assign(row_share.size(), 0), skipped_rows_.assign(row_share.size(), 0);
    std::ranges::fill(layer_copies_, CopyCounts());
  }
  for (RoutedLayer& layer : layers_) layer.close();
}

// --- open layers ---

std::optional<size_t> ExpertDispatch::index_of(MoeLayerId layer) const {
  for (size_t i = 0; i < layers_.size(); ++i)
    if (layers_[i].is_open() && layers_[i].layer() == layer) return i;
  return std::nullopt;
}

size_t ExpertDispatch::open(MoeLayerId layer) const {
  const std::optional<size_t> index = index_of(layer);
  MOESTRO_CHECK(index.has_value(), "a layer is asked about after one of its routers has run");
  return *index;
}

/// The earliest layer gives way: its rows have been summed.
RoutedLayer& ExpertDispatch::obtain(MoeLayerId layer) {
  if (const auto index = index_of(layer)) return layers_[*index];
  RoutedLayer& earliest = *std::ranges::min_element(
      layers_, {}, [](const RoutedLayer& l) { return l.is_open() ? int64_t{l.layer().value} : -1; });
  earliest.begin(layer, micro_batches_.size());
  return earliest;
}

std::span<const lanes::RoutedExpert> ExpertDispatch::route(LayerPart part, std::span<const int32_t> ids, int64_t top_k,
                                                           std::span<const uint8_t> left_out,
                                                           std::span<const float> weights,
                                                           std::span<const uint8_t> beyond_room) {
  const MicroBatch& first = micro_batches_[static_cast<size_t>(part.micro_batch)];
  const MicroBatch& last = micro_batches_.back();
  const int64_t rows = last.rows.count == 0 ? static_cast<int64_t>(ids.size()) / top_k
                                            : static_cast<int64_t>(last.rows.first) + last.rows.count;
  RoutedLayer& layer = obtain(part.layer);
  if (mixed_) {
    for (std::vector<uint32_t>* counts : {&low_rows_, &skipped_rows_})  // begin_step need not know
      if (std::ssize(*counts) < rows) counts->resize(static_cast<size_t>(rows));
    low_shares_.add_choices(top_k);
    layer_copies_[part.layer.value].choices += ids.size();
    find_wants(part, weights, top_k);
  }
  over_capacity_ += layer.route(
      part.micro_batch,
      {.ids = ids,
       .top_k = top_k,
       .first_row = first.rows.first,
       .left_out = left_out,
       .row_share = row_share_,
       .most = capacity_factor_ ? std::min(rows, capacity(*capacity_factor_, rows, top_k, experts_)) : rows,
       .wants = wants_,
       .beyond_room = beyond_room});
  tell_needs(layer, part.micro_batch);
  return layer.rows(part.micro_batch).experts;
}

void ExpertDispatch::find_wants(LayerPart part, std::span<const float> weights, int64_t top_k) {
  wants_.resize(weights.size());
  const auto k = static_cast<size_t>(top_k);
  size_t row = micro_batches_[static_cast<size_t>(part.micro_batch)].rows.first;
  for (size_t first = 0; first < weights.size(); first += k, ++row) {
    const std::span<Want> wants = std::span(wants_).subspan(first, k);
    if (low_shares_.is_full_only(static_cast<int64_t>(row))) std::ranges::fill(wants, Want::kFull);
    else wants_of_token(weights.subspan(first, k), *mixed_, wants);
  }
}

/// `needs_` has the blobs of the full copies. Where one of the rows has had its share of low copies, the full one is
/// waited for.
void ExpertDispatch::choose_copies(const RoutedLayer& layer, int32_t micro_batch) {
  servings_.clear();
  for (const store::Need& need : needs_)
    servings_.push_back({need.blob, low_of_[static_cast<size_t>(key_of_[need.blob])], need.want});
  source_->serve(servings_);
  for (size_t i = 0; i < needs_.size(); ++i) {
    store::Need& need = needs_[i];
    const auto blob = servings_[i].blob;
    if (blob == need.blob) continue;
    const auto expert = static_cast<int32_t>(key_of_[need.blob] % experts_);
    if (!low_shares_.take(layer.rows(micro_batch).of(expert))) {
      need.want = Want::kFull;
      continue;
    }
    need.skipped = !blob, need.blob = blob.value_or(need.blob);
    if (need.skipped) skipped_.push_back(expert);
  }
}

/// What no copy serves is left out before its layer's tasks are made.
void ExpertDispatch::tell_needs(RoutedLayer& layer, int32_t micro_batch) {
  needs_.clear();
  skipped_.clear();
  for (const lanes::RoutedExpert& r : layer.rows(micro_batch).experts) {
    if (layer.held(r.expert).users != 1) continue;  // another micro-batch needs it now
    layer.try_again(r.expert);
    needs_.push_back({blob_of_[key_of(layer.layer(), r.expert)],
                      std::min(1.0F, layer.uses()[static_cast<size_t>(r.expert)]), layer.want(r.expert)});
  }
  if (mixed_) choose_copies(layer, micro_batch);
  for (const store::Need& need : needs_) layer.serve(static_cast<int32_t>(key_of_[need.blob] % experts_), need.blob);
  for (const int32_t expert : skipped_)
    for (const kernels::RoutedRow& row : layer.rows(micro_batch).of(expert)) {
      ++skipped_rows_[static_cast<size_t>(row.token)];
      ++layer_copies_[layer.layer().value].skipped;
    }
  if (!skipped_.empty()) layer.leave_out(micro_batch, skipped_);
  source_->need({layer.layer(), needs_, layer.is_routed()});
}

CopyCounts ExpertDispatch::copies(TokenRange rows) const {
  CopyCounts counts;
  for (uint32_t row = rows.first; mixed_ && row < rows.first + rows.count; ++row)
    counts.low += low_rows_[row], counts.skipped += skipped_rows_[row];
  return counts;
}

// --- leases ---

bool ExpertDispatch::acquire(lanes::TaskId read, MoeLayerId at, int32_t expert) {
  RoutedLayer& layer = find(at);
  if (layer.held(expert).lease || !layer.held(expert).failure.is_ok()) return true;
  const uint32_t blob = layer.held(expert).blob;
  if (auto lease = source_->try_pin(blob, store::UseWeight::of(layer.uses()[static_cast<size_t>(expert)]))) {
    layer.hold(expert, std::move(*lease));
    return true;
  }
  layer.read(expert, read);
  missing_.push_back(blob);
  return false;
}

void ExpertDispatch::withdraw(MoeLayerId at, int32_t expert) {
  std::erase(missing_, find(at).held(expert).blob);
  find(at).end_read(expert);
}

/// One request per layer: a source orders reads by layer.
Status ExpertDispatch::request_missing() {
  const auto layer_of = [this](uint32_t blob) { return key_of_[blob] / experts_; };
  Status status;
  for (auto first = missing_.begin(); first != missing_.end() && status.is_ok();) {
    const int64_t layer = layer_of(*first);
    const auto last = std::find_if(first, missing_.end(), [&](uint32_t blob) { return layer_of(blob) != layer; });
    status = source_->fetch({first, last}, {plan_, MoeLayerId(static_cast<uint32_t>(layer))});
    first = last;
  }
  missing_.clear();
  return status;
}

Result<lanes::TaskId> ExpertDispatch::wait(const std::function<bool()>& interrupted) {
  return wait(kArrivalWait, interrupted);
}

Result<lanes::TaskId> ExpertDispatch::poll() {
  return wait(std::chrono::milliseconds(0), [] { return true; });
}

Result<lanes::TaskId> ExpertDispatch::wait(std::chrono::milliseconds at_a_time,
                                           const std::function<bool()>& interrupted) {
  for (int waits = 0;;) {
    Result<store::Lease> arrival = source_->next_arrival(at_a_time);
    uint32_t blob = 0;
    Status status;
    if (arrival.is_ok()) {
      blob = arrival->blob();
    } else {
      status = arrival.status();
      if (status.code() == Code::kUnavailable) {
        if (interrupted && interrupted()) return lanes::TaskId{-1};
        if (++waits < kArrivalWaitsMax) continue;
        status = unavailable("no expert has arrived for five minutes (" + status.message() +
                             "): look at the store's log and its drive");
      }
      const std::optional<uint32_t> failed = source_->failed_blob();
      if (!failed) return status;
      blob = *failed;
    }
    const int64_t key = blob < key_of_.size() ? key_of_[blob] : -1;
    if (key < 0) continue;
    // A read that was withdrawn may still arrive; its lease ends here.
    const auto index = index_of(MoeLayerId(static_cast<uint32_t>(key / experts_)));
    if (!index) continue;
    RoutedLayer& layer = layers_[*index];
    const auto expert = static_cast<int32_t>(key % experts_);
    const bool is_awaited = layer.held(expert).read >= 0;
    const bool low_failed = !arrival.is_ok() && is_awaited && copy(layer.layer(), expert) == Copy::kLow;
    if (low_failed && !take_full_instead(layer, expert)) {
      MOESTRO_RETURN_IF_ERROR(request_missing());
      continue;
    }
    const lanes::TaskId read = layer.end_read(expert);
    if (read < 0) continue;
    if (arrival.is_ok()) layer.hold(expert, std::move(*arrival));
    else if (!low_failed) layer.fail(expert, status);
    return read;
  }
}

/// A low copy that cannot be read. True: the full one is leased now. False: it is to be requested.
bool ExpertDispatch::take_full_instead(RoutedLayer& layer, int32_t expert) {
  const uint32_t full = blob(layer.layer(), expert);
  const store::Need need{full, std::min(1.0F, layer.uses()[static_cast<size_t>(expert)])};
  source_->need({layer.layer(), {&need, 1}, false});
  layer.serve(expert, full);
  if (auto lease = source_->try_pin(full, store::UseWeight::of(need.weight))) {
    layer.hold(expert, std::move(*lease));
    return true;
  }
  missing_.push_back(full);
  return false;
}

const std::byte* ExpertDispatch::data(MoeLayerId layer, int32_t expert) const {
  const store::Lease& lease = find(layer).held(expert).lease;
  return lease ? lease.data() : nullptr;
}

Status ExpertDispatch::release(LayerPart part, int32_t expert) {
  RoutedLayer& layer = find(part.layer);
  const store::Lease& held = layer.held(expert).lease;
  const Status used = held ? check(part.layer, expert, held) : Status::ok();
  if (held && copy(part.layer, expert) == Copy::kLow)
    for (const kernels::RoutedRow& row : layer.rows(part.micro_batch).of(expert)) {
      ++low_rows_[static_cast<size_t>(row.token)];
      ++layer_copies_[part.layer.value].low;
    }
  layer.release(part.micro_batch, expert).release();
  return used;
}

Status ExpertDispatch::check(MoeLayerId layer, int32_t expert, const store::Lease& lease) const {
  if (lease.is_right()) return Status::ok();
  return corrupt("expert " + std::to_string(expert) + " of MoE layer " + std::to_string(layer.value) +
                 " was found wrong in memory while it was in use, and what was computed with it is dropped: ask again");
}

void ExpertDispatch::abandon() {
  source_->cancel_fetches();
  missing_.clear();
  for (RoutedLayer& layer : layers_) layer.abandon();
}

}  // namespace moestro::engine
