#pragma once
// What the routers of a layer have chosen in a step, by micro-batch and expert, and which of its experts are held.

#include <cstdint>
#include <span>
#include <vector>

#include "common/ids.h"
#include "common/lanes/schedule.h"
#include "kernels/ops.h"
#include "store/blob_source.h"

namespace moestro::engine {

/// A layer, and the micro-batch whose rows are meant.
struct LayerPart {
  MoeLayerId layer;
  int32_t micro_batch = 0;  ///< lanes::kAllMicroBatches: all of them
};

/// Rows of the step, sorted by the expert that computes them.
struct RoutedRows {
  std::vector<lanes::RoutedExpert> experts;  ///< that have rows, by id
  std::vector<int32_t> first;                ///< [experts + 1] into `rows`
  std::vector<kernels::RoutedRow> rows;
  std::vector<kernels::RoutedRow> dropped;   ///< by token: no expert got them
  bool routed = false;

  std::span<const kernels::RoutedRow> of(int32_t expert) const {
    const auto e = static_cast<size_t>(expert);
    return std::span(rows).subspan(static_cast<size_t>(first[e]), static_cast<size_t>(first[e + 1] - first[e]));
  }
};

/// `to`: the same rows of an expert where inputs are of choices, [rows, top_k], not of rows (RouterSpec::on_input).
inline void rows_of_choices(std::span<const kernels::RoutedRow> rows, int64_t top_k,
                            std::vector<kernels::RoutedRow>& to) {
  to.clear();
  for (const kernels::RoutedRow& r : rows) to.push_back({static_cast<int32_t>(r.token * top_k + r.rank), 0});
}

/// Keeps its memory from layer to layer.
class RoutedLayer {
 public:
  /// An expert of the layer.
  struct Held {
    store::Lease lease;
    lanes::TaskId read = -1;  ///< requested and not arrived
    int32_t users = 0;        ///< micro-batches that have rows for it and have not computed them
    uint32_t blob = 0;        ///< of the copy that serves
    Status failure;           ///< why it could not be loaded
  };
  /// A router's choices for a micro-batch.
  struct Choices {
    std::span<const int32_t> ids;        ///< [rows of the micro-batch, top_k]
    int64_t top_k = 1;
    int64_t first_row = 0;               ///< of the micro-batch in the step
    std::span<const uint8_t> left_out;   ///< by row of the step: not 0 if it has no rows; empty: none is left out
    std::span<const float> row_share;    ///< by row of the step; empty: each counts as 1
    int64_t most = 0;                    ///< rows of the layer that an expert takes
    std::span<const Want> wants;         ///< as `ids`; empty: all are wanted full
    std::span<const uint8_t> beyond_room = {};  ///< as `ids`: not 0 if its sequence has no room at the expert
  };

  RoutedLayer() = default;
  explicit RoutedLayer(int64_t experts);

  void begin(MoeLayerId layer, size_t micro_batches);
  /// Returns how many choices were dropped because their expert was full.
  uint64_t route(int32_t micro_batch, const Choices& choices);
  void close() { open_ = false; }

  bool is_open() const { return open_; }
  MoeLayerId layer() const { return layer_; }
  bool has_routed(int32_t micro_batch) const { return parts_[static_cast<size_t>(micro_batch)].routed; }
  bool is_routed() const { return routed_ == micro_batches_; }
  /// No expert is leased or under way.
  bool is_idle() const { return leased_ == 0 && reading_ == 0; }
  bool is_reading() const { return reading_ > 0; }

  /// The greatest want of the rows that an expert has got.
  Want want(int32_t expert) const { return want_[static_cast<size_t>(expert)]; }
  /// The copy of it that its rows are computed with.
  void serve(int32_t expert, uint32_t blob) { held_[static_cast<size_t>(expert)].blob = blob; }
  /// The rows of these experts of a micro-batch get no expert. Nobody else needs them.
  void leave_out(int32_t micro_batch, std::span<const int32_t> experts);

  const RoutedRows& rows(int32_t micro_batch) const;
  std::span<const float> uses() const { return use_; }
  const Held& held(int32_t expert) const { return held_[static_cast<size_t>(expert)]; }

  void read(int32_t expert, lanes::TaskId task);
  /// Its read has ended, or is not wanted any more. Returns the task.
  lanes::TaskId end_read(int32_t expert);
  void hold(int32_t expert, store::Lease lease);
  void fail(int32_t expert, const Status& why) { held_[static_cast<size_t>(expert)].failure = why; }
  /// A micro-batch needs it that nobody shares it with: a failure before is over.
  void try_again(int32_t expert) {
    Status& failure = held_[static_cast<size_t>(expert)].failure;
    if (!failure.is_ok()) failure = Status::ok();
  }
  /// The rows of this micro-batch, or of all, have been computed. The lease, if nobody needs it any more.
  store::Lease release(int32_t micro_batch, int32_t expert);
  /// Nothing is needed any more.
  void abandon();

 private:
  void join();

  MoeLayerId layer_;
  bool open_ = false;
  size_t micro_batches_ = 0, routed_ = 0, leased_ = 0, reading_ = 0;
  std::vector<RoutedRows> parts_;  ///< by micro-batch
  RoutedRows all_;                 ///< of several micro-batches, once all have been routed
  std::vector<float> use_;         ///< by expert
  std::vector<int32_t> taken_;     ///< by expert: its rows so far
  std::vector<Want> want_;         ///< by expert
  std::vector<int32_t> cursor_;    ///< scratch
  std::vector<Held> held_;         ///< by expert
};

}  // namespace moestro::engine
