#pragma once
// Groups the tokens of a layer by expert, and holds the leases of the current layer's experts.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/lanes/schedule.h"
#include "kernels/ops.h"
#include "store/blob_source.h"

namespace moestro::engine {

class ExpertDispatch {
 public:
  /// The rows that an expert takes in a step with this many tokens: ceil(factor * tokens * top_k / experts), as in
  /// Switch Transformer.
  static int64_t capacity(double factor, int64_t tokens, int64_t top_k, int64_t experts);

  static Result<ExpertDispatch> create(store::BlobSource& source, int64_t moe_layers, int64_t experts, DType precision);

  /// Sorts the choices of a layer, ids [tokens, top_k], by expert. The result holds every expert that has rows, by id.
  /// Tokens whose `left_out` is not 0 (empty: none) have no rows. No expert gets more rows than the capacity.
  std::span<const lanes::RoutedExpert> route(MoeLayerId layer, std::span<const int32_t> ids, int64_t top_k,
                                             std::span<const uint8_t> left_out = {});
  /// The choices that no expert got, by token. Their rows count as zero in the sum.
  std::span<const kernels::RoutedRow> dropped() const { return dropped_; }
  /// By expert of the layer: the sum of its rows' shares, which is the weight of its use (store::UseWeight).
  std::span<const float> uses() const { return use_; }
  /// (token, rank) of an expert, by token.
  std::span<const kernels::RoutedRow> rows(int32_t expert) const;

  /// From now on an expert takes at most capacity() rows of a layer: the first ones, in the order of the step's rows.
  void set_capacity_factor(double factor) { capacity_factor_ = factor; }
  /// `row_share`: 1 / (rows of its sequence in this step), by row; must live until the step has ended. Empty: each row
  /// counts as 1.
  void begin_step(PlanId plan, std::span<const float> row_share = {}) {
    plan_ = plan;
    row_share_ = row_share;
    over_capacity_ = 0;
  }
  /// Choices of this step that were dropped because their expert was full.
  uint64_t over_capacity() const { return over_capacity_; }
  /// True: the expert is resident and leased now. False: the read is recorded, and request_missing() requests it.
  bool acquire(lanes::TaskId read, int32_t expert);
  /// Cancels an expert that acquire() recorded, before it is requested.
  void withdraw(int32_t expert);
  /// Its blob at the layer that was routed last.
  uint32_t blob(int32_t expert) const { return blob_of(expert); }
  Status request_missing();

  struct Arrival {
    lanes::TaskId read = -1;
    Status status;  ///< an error: this expert cannot be loaded; the message names it
  };
  /// Waits for the next requested expert.
  Result<Arrival> wait();

  /// Null if the expert could not be loaded.
  const std::byte* data(int32_t expert) const;
  /// kCorrupt, naming it, if its bytes were found wrong in memory since it was acquired; results computed with it are
  /// invalid.
  Status release(int32_t expert);
  /// The same for another lease of this expert.
  Status check(int32_t expert, const store::Lease& lease) const;
  /// After an error: releases everything and drops outstanding requests.
  void abandon();

 private:
  ExpertDispatch(store::BlobSource& source, int64_t experts) : source_(&source), experts_(experts) {}
  uint32_t blob_of(int32_t expert) const {
    return blob_of_[static_cast<size_t>(static_cast<int64_t>(layer_.value) * experts_ + expert)];
  }

  store::BlobSource* source_;
  int64_t experts_;
  std::vector<uint32_t> blob_of_;    ///< [moe_layer, expert] -> blob
  std::vector<int32_t> expert_of_;   ///< blob -> expert; -1: not an expert
  std::optional<double> capacity_factor_;
  uint64_t over_capacity_ = 0;
  PlanId plan_;
  std::span<const float> row_share_;
  std::vector<float> use_;
  MoeLayerId layer_;
  std::vector<int32_t> first_row_;   ///< [experts + 1] into rows_
  std::vector<int32_t> cursor_;
  std::vector<kernels::RoutedRow> rows_, dropped_;
  std::vector<lanes::RoutedExpert> routed_;
  std::vector<store::Lease> leases_;           ///< by expert
  std::vector<lanes::TaskId> read_of_;         ///< by expert, -1: not requested
  std::vector<uint32_t> missing_;
};

}  // namespace moestro::engine
