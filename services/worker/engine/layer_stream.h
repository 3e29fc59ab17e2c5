#pragma once
// Dense weights that take turns in the store's memory, or in a device's: a step holds those of the layer that it
// computes, and has asked for the next ones, as many as this worker's share of the places allows. Between steps it
// holds nothing: the share of a worker that has nothing to do may shrink, and others would wait for it.
//
// A device whose kernels are queued ahead may hold several layers, in the order of the step, each until it is released.

#include <deque>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/ids.h"
#include "common/model/model_spec.h"
#include "services/worker/engine/dense_weights.h"
#include "store/blob_source.h"

namespace moestro::engine {

class LayerStream {
 public:
  LayerStream(store::BlobSource& source, DenseWeights& weights, const model::ModelSpec& spec, const Clock& clock,
              bool several = false);

  bool streams(size_t layer) const { return at_[layer] >= 0; }
  /// A step begins: asks for its first layers.
  void begin(PlanId plan);
  /// True: the layer's weights can be used until release(). False: they are not there yet; call wait().
  bool try_hold(size_t layer);
  /// Waits for them; an error names what could not be read. False: `interrupted`, which is asked where the source has
  /// waited in vain, has said true.
  Result<bool> wait(size_t layer, const std::function<bool()>& interrupted);
  void release(size_t layer);
  /// The step has failed, and the source's fetches have been cancelled.
  void abandon();
  /// After a step: kCorrupt, naming a tensor, if weights were found wrong while it used them.
  Status check() const;
  /// Of the step, waiting for dense weights.
  Nanos stalled() const { return stalled_; }

 private:
  struct Streamed {
    size_t layer = 0;
    uint32_t blob = 0;
    MoeLayerId order;  ///< the MoE layer whose experts are used after it
  };
  struct Held {
    size_t at = 0;
    store::Lease lease;
  };
  bool holds(size_t at) const;
  void hold(size_t at, store::Lease lease);
  void ask_ahead();
  /// The first that is held is so no longer.
  void let_go();

  store::BlobSource& source_;
  DenseWeights& weights_;
  const Clock& clock_;
  std::vector<Streamed> order_;  ///< as a step passes them
  std::vector<int32_t> at_;      ///< by layer: its place there, or -1
  PlanId plan_;
  size_t next_ = 0;              ///< the next to ask for in this step
  const bool several_;
  std::deque<Held> held_;        ///< in order; at most one unless `several_`
  std::vector<std::pair<uint32_t, uint32_t>> used_;  ///< several_: blobs that the step has held, each with its finds
  std::deque<size_t> asked_;     ///< and not held yet, in order
  std::optional<uint32_t> wrong_;  ///< blob
  Nanos stalled_{0};
};

}  // namespace moestro::engine
