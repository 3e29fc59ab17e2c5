#pragma once
// Groups the tokens of layers by expert, and holds the leases of the experts.
//
// State is by layer and micro-batch (routed_layer.h). Several layers may be open at once: a layer opens when the first
// of its routers has chosen. Micro-batches that share an expert of a layer share its lease, which ends with the last of
// their rows; one that is routed after that gets a lease of its own.
//
// Where experts have two copies (common/expert_copy.h), a layer's rows decide which copy of each expert they are
// computed with, once per layer, or that they go without.

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/expert_layout.h"
#include "common/lanes/schedule.h"
#include "kernels/ops.h"
#include "services/worker/engine/low_shares.h"
#include "services/worker/engine/routed_layer.h"
#include "services/worker/engine/step_batch.h"
#include "store/blob_source.h"

namespace moestro::engine {

/// By MoE layer.
struct ExpertLayouts {
  std::vector<ExpertLayout> full, low;  ///< low: empty if there are no low copies
  const ExpertLayout& of(Copy copy, MoeLayerId layer) const {
    return (copy == Copy::kFull ? full : low)[layer.value];
  }
};

class ExpertDispatch {
 public:
  /// A schedule works on a layer, and may begin the next one.
  static constexpr size_t kLayersOpenMax = 2;

  /// The rows that an expert takes in a step with this many tokens: ceil(factor * tokens * top_k / experts), as in
  /// Switch Transformer.
  static int64_t capacity(double factor, int64_t tokens, int64_t top_k, int64_t experts);

  static Result<ExpertDispatch> create(store::BlobSource& source, int64_t moe_layers, int64_t experts, DType precision);
  /// From now on experts have low copies too. Steps then have one micro-batch. kInvalidArgument: the pack has none.
  Status set_mixed(const MixedOptions& options);

  /// From now on an expert takes at most capacity() rows of a layer: those of the micro-batches that are routed first,
  /// and of those the first ones.
  void set_capacity_factor(double factor) { capacity_factor_ = factor; }

  /// Closes all layers. `micro_batches`: of the step; empty: there is one. `row_share`: 1 / (rows of its sequence in
  /// this step), by row; empty: each row counts as 1. Both must live until the step has ended.
  void begin_step(PlanId plan, std::span<const MicroBatch> micro_batches = {}, std::span<const float> row_share = {});
  /// Of the next step, with mixed copies: to be filled before it begins, with all its rows.
  LowShares& low_shares() { return low_shares_; }
  /// Choices of this step that were dropped because their expert was full.
  uint64_t over_capacity() const { return over_capacity_; }

  /// Sorts the choices of a router, ids [rows of the micro-batch, top_k], by expert, and tells the source what is
  /// needed that no other micro-batch needs already. The result holds every expert that has rows, by id. Tokens whose
  /// `left_out` (one per row of the step; empty: none) is not 0 have no rows. Each micro-batch is routed once per
  /// layer. No expert gets more rows than the capacity. `weights`: as `ids`, for mixed copies.
  /// `beyond_room`: as `ids`, not 0 where a choice gets no row; empty: all get one.
  std::span<const lanes::RoutedExpert> route(LayerPart part, std::span<const int32_t> ids, int64_t top_k,
                                             std::span<const uint8_t> left_out = {},
                                             std::span<const float> weights = {},
                                             std::span<const uint8_t> beyond_room = {});

  // Of an open layer. Its part is one micro-batch, or all of them once all have been routed.

  /// Whether all micro-batches have been routed.
  bool is_routed(MoeLayerId layer) const { return find(layer).is_routed(); }
  std::span<const lanes::RoutedExpert> routed(LayerPart part) const { return rows_of(part).experts; }
  /// (token, rank) of an expert, by token.
  std::span<const kernels::RoutedRow> rows(LayerPart part, int32_t expert) const { return rows_of(part).of(expert); }
  /// The choices of a micro-batch that no expert got, by token. Their rows count as zero in the sum.
  std::span<const kernels::RoutedRow> dropped(LayerPart part) const { return rows_of(part).dropped; }
  /// By expert: the sum of its rows' shares so far, which is the weight of its use (store::UseWeight).
  std::span<const float> uses(MoeLayerId layer) const { return find(layer).uses(); }

  /// True: the expert is resident and leased now, or was already, or has failed for another micro-batch that needs it
  /// too. False: the read is recorded, and request_missing() requests it. Once per layer and expert until it has
  /// arrived.
  bool acquire(lanes::TaskId read, MoeLayerId layer, int32_t expert);
  /// Cancels an expert that acquire() recorded, before it is requested.
  void withdraw(MoeLayerId layer, int32_t expert);
  uint32_t blob(MoeLayerId layer, int32_t expert) const { return blob_of_[key_of(layer, expert)]; }
  Status request_missing();
  /// Whether requested experts have not arrived.
  bool waits() const { return std::ranges::any_of(layers_, &RoutedLayer::is_reading); }
  /// Waits for the next requested expert, and returns its read. It may have failed(). -1: `interrupted`, which is asked
  /// where the source has waited in vain, has said true.
  Result<lanes::TaskId> wait(const std::function<bool()>& interrupted = {});
  /// The next one that has arrived by now. -1: none has.
  Result<lanes::TaskId> poll();

  /// Null if the expert could not be loaded.
  const std::byte* data(MoeLayerId layer, int32_t expert) const;
  /// The copy of which that is.
  Copy copy(MoeLayerId layer, int32_t expert) const {
    return mixed_ && find(layer).held(expert).blob == low_of_[key_of(layer, expert)] ? Copy::kLow : Copy::kFull;
  }
  /// Of these rows of the step: what has been computed with low copies, and with none. Choices are not counted.
  CopyCounts copies(TokenRange rows) const;
  /// By layer, all choices of the step that have been computed; empty without mixed copies.
  std::span<const CopyCounts> layer_copies() const { return layer_copies_; }
  /// Why the expert could not be loaded; the message names it.
  const Status& failure(MoeLayerId layer, int32_t expert) const { return find(layer).held(expert).failure; }
  /// The part's rows have been computed, or have failed. When all rows of the expert have been, its lease ends.
  /// kCorrupt, naming it, if its bytes were found wrong in memory since it was acquired; results computed with it are
  /// invalid.
  Status release(LayerPart part, int32_t expert);
  /// The same for another lease of this expert.
  Status check(MoeLayerId layer, int32_t expert, const store::Lease& lease) const;
  /// After an error: releases everything, drops outstanding requests and closes all layers.
  void abandon();

 private:
  ExpertDispatch(store::BlobSource& source, int64_t experts) : source_(&source), experts_(experts) {}
  Result<lanes::TaskId> wait(std::chrono::milliseconds at_a_time, const std::function<bool()>& interrupted);
  size_t key_of(MoeLayerId layer, int32_t expert) const {
    return static_cast<size_t>(layer.value) * static_cast<size_t>(experts_) + static_cast<size_t>(expert);
  }
  std::optional<size_t> index_of(MoeLayerId layer) const;
  /// The layer is open.
  size_t open(MoeLayerId layer) const;
  const RoutedLayer& find(MoeLayerId layer) const { return layers_[open(layer)]; }
  RoutedLayer& find(MoeLayerId layer) { return layers_[open(layer)]; }
  const RoutedRows& rows_of(LayerPart part) const { return find(part.layer).rows(part.micro_batch); }
  RoutedLayer& obtain(MoeLayerId layer);
  void find_wants(LayerPart part, std::span<const float> weights, int64_t top_k);
  void tell_needs(RoutedLayer& layer, int32_t micro_batch);
  void choose_copies(const RoutedLayer& layer, int32_t micro_batch);
  bool take_full_instead(RoutedLayer& layer, int32_t expert);

  store::BlobSource* source_;
  int64_t experts_;
  std::vector<uint32_t> blob_of_;  ///< [moe_layer, expert] -> blob of the full copy
  std::vector<uint32_t> low_of_;   ///< the same of the low copy; empty: there are none
  std::vector<int64_t> key_of_;    ///< blob of either -> moe_layer * experts + expert; -1: not an expert
  std::optional<MixedOptions> mixed_;
  std::optional<double> capacity_factor_;
  uint64_t over_capacity_ = 0;
  PlanId plan_;
  std::span<const MicroBatch> micro_batches_;
  std::span<const float> row_share_;
  LowShares low_shares_;
  std::vector<Want> wants_;                ///< of a router's choices; scratch
  std::vector<int32_t> skipped_;           ///< experts; scratch
  std::vector<uint32_t> low_rows_, skipped_rows_;  ///< by row: choices that low copies served, or none
  std::vector<CopyCounts> layer_copies_;  ///< of the step
  std::array<RoutedLayer, kLayersOpenMax> layers_;
  std::vector<uint32_t> missing_;
  std::vector<store::Need> needs_;  ///< scratch
  std::vector<store::Serving> servings_;  ///< the same
};

}  // namespace moestro::engine
