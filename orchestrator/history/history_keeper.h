#pragma once
// Builds the activation history of the model from the counts in workers' results. A state machine without I/O; the
// control thread owns it.

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "common/activation/history.h"
#include "common/clock.h"
#include "orchestrator/scheduler/types.h"

namespace moestro::orchestrator {

struct HistoryOptions {
  int32_t capacity = 512;             ///< requests that are kept, separately for prompts and answers; 0: none
  std::vector<std::byte> checkpoint = {};  ///< from an earlier run; empty: none
  Nanos interval = std::chrono::seconds(60);  ///< between checkpoints while something changes
  /// Makes an empty history for a pack. If not set, it is in this process's own memory.
  std::function<std::unique_ptr<activation::ActivationHistory>(uint64_t pack_identity,
                                                               const activation::EamcShape& shape, int32_t capacity)>
      make = {};
};

/// An entry that must be sent to workers.
struct HistoryEntry {
  bool answer = false;  ///< of the answers' collection
  int32_t entry = 0;
  friend bool operator==(const HistoryEntry&, const HistoryEntry&) = default;
};

struct HistoryFigures {
  uint64_t prompts = 0, answers = 0;  ///< entries
  uint64_t capacity = 0;
  uint64_t requests = 0, replacements = 0;  ///< since the start
};

class HistoryKeeper {
 public:
  explicit HistoryKeeper(HistoryOptions options);

  /// A worker has registered whose model has this shape. The first worker of a pack begins its history, from the
  /// checkpoint if that belongs to this pack.
  void begin(uint64_t pack_identity, const activation::EamcShape& shape);
  /// `text_ends`: its end may be found in its text after later tokens have been computed; what it has used is then
  /// known when settled() is called.
  void submitted(SequenceId sequence, int64_t prompt_tokens, bool text_ends = false);
  /// A plan is sent: sets in it how far its sequences have been counted.
  void planned(WorkerId worker, Plan& plan);
  void done(WorkerId worker, const PlanOutcome& outcome);
  /// The worker is gone, and its plans in flight will not return.
  void lost(WorkerId worker);
  /// Nothing more is computed of it. Returns the changed entries; none if settled() will be called.
  std::vector<HistoryEntry> ended(SequenceId sequence);
  /// It has ended, or ends here. `sampled` of its tokens are its answer; the others are not counted. -1: all.
  std::vector<HistoryEntry> settled(SequenceId sequence, int64_t sampled);

  /// Null until there was a worker, or if nothing is kept.
  const activation::ActivationHistory* history() const { return history_.get(); }
  HistoryFigures figures() const;

  /// A checkpoint, if something has changed since the last one and `interval` has passed, or `at_once`.
  std::optional<std::vector<std::byte>> checkpoint(Nanos now, bool at_once);
  /// The last checkpoint could not be stored.
  void not_kept() { changed_ = true; }

 private:
  struct Tail {
    int64_t end = 0;  ///< position
    std::vector<activation::ActivationCount> counts;
  };
  struct Sequence {
    int64_t prompt_tokens = 0;
    bool text_ends = false;
    int64_t counted = 0;  ///< positions
    std::unique_ptr<activation::RequestCounts> counts;  ///< null until something was counted
    std::deque<Tail> tail = {};  ///< the last positions of its answer, which may turn out not to be
    int64_t added = 0;           ///< positions whose counts are in `counts`, of an answer with a tail
    bool source_counted = false; ///< of an encoder-decoder model
  };
  struct Chunk {
    int64_t first = 0, end = 0;  ///< positions
    bool source = false;         ///< it has none: it is a source
  };
  void count_source(Sequence& s, std::span<const activation::ActivationCount> counts) const;
  void count(Sequence& s, const Chunk& chunk, std::vector<activation::ActivationCount> counts);
  static void add_first(Sequence& s);
  static void cut(Sequence& s, int64_t end);

  HistoryOptions options_;
  uint64_t pack_identity_ = 0;
  std::unique_ptr<activation::ActivationHistory> history_;
  std::unordered_map<SequenceId, Sequence> sequences_;
  std::deque<SequenceId> unsettled_;  ///< ended sequences, oldest first; some have been settled since
  std::map<WorkerId, std::map<PlanId, std::vector<std::pair<SequenceId, Chunk>>>> under_way_;
  uint64_t requests_ = 0, replacements_ = 0;
  bool changed_ = false;
  std::optional<Nanos> checkpointed_;
};

}  // namespace moestro::orchestrator
