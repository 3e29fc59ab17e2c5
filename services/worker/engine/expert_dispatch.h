#pragma once
// Which tokens go to which expert, and the leases of the experts of the layer at hand.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/lanes/executor.h"
#include "common/lanes/schedule.h"
#include "kernels/ops.h"
#include "store/blob_source.h"

namespace moestro::engine {

class ExpertDispatch {
 public:
  /// Rows that an expert takes of a step with so many tokens: ceil(factor * tokens * top_k / experts), as Switch
  /// Transformer has it.
  static int64_t capacity(double factor, int64_t tokens, int64_t top_k, int64_t experts);

  static Result<ExpertDispatch> create(store::BlobSource& source, int64_t moe_layers, int64_t experts, DType precision);

  /// Sorts the choices of a layer, ids [tokens, top_k], by expert. The result holds every expert that has rows, by id.
  /// No expert gets rows of the tokens where `left_out` is not 0 (empty: there are none), nor more rows than the
  /// capacity.
  std::span<const lanes::RoutedExpert> route(MoeLayerId layer, std::span<const int32_t> ids, int64_t top_k,
                                             std::span<const uint8_t> left_out = {});
  /// The choices that no expert got, by token: whoever sums the rows takes theirs as zero.
  std::span<const kernels::RoutedRow> dropped() const { return dropped_; }
  /// By expert of the layer: the sum of its rows' shares, what its use counts (store::UseWeight).
  std::span<const float> uses() const { return use_; }
  /// (token, rank) of an expert, by token.
  std::span<const kernels::RoutedRow> rows(int32_t expert) const;

  /// From now on an expert takes no more rows of a layer than capacity(): the first ones, in the order of the step's
  /// rows.
  void set_capacity_factor(double factor) { capacity_factor_ = factor; }
  /// `row_share`: 1 / (rows of its sequence in this step), by row; it lives until the step has ended. Empty: each row
  /// counts whole.
  void begin_step(PlanId plan, std::span<const float> row_share = {}) {
    plan_ = plan;
    row_share_ = row_share;
    over_capacity_ = 0;
  }
  /// Choices of this step that were dropped because their expert was full.
  uint64_t over_capacity() const { return over_capacity_; }
  /// True: the expert is resident and leased now. False: the read is noted; request_missing() asks for it.
  bool acquire(lanes::TaskId read, int32_t expert);
  /// An expert that acquire() noted is not asked for after all.
  void withdraw(int32_t expert);
  /// Its blob at the layer that was routed last.
  uint32_t blob(int32_t expert) const { return blob_of(expert); }
  Status request_missing();

  struct Arrival {
    lanes::TaskId read = -1;
    Status status;  ///< an error: this expert cannot be had, and it says which
  };
  /// Waits for the next expert that was asked for.
  Result<Arrival> wait();

  /// Null if the expert could not be had.
  const std::byte* data(int32_t expert) const;
  /// kCorrupt, naming it, if its bytes were found wrong in memory since it was acquired: what was computed with it is
  /// void.
  Status release(int32_t expert);
  /// The same of a lease that another held of this expert.
  Status check(int32_t expert, const store::Lease& lease) const;
  /// After an error: lets go of everything and forgets what is under way.
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
  std::vector<lanes::TaskId> read_of_;         ///< by expert, -1: not under way
  std::vector<uint32_t> missing_;
};

}  // namespace moestro::engine
