#pragma once
// From the counts in workers' results to the activation history of the model. A machine without I/O; the control thread
// owns it.

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
  int32_t capacity = 512;             ///< requests that are kept, prompts and answers apart; 0: nothing is
  std::vector<std::byte> checkpoint = {};  ///< of an earlier run; empty: none
  Nanos interval = std::chrono::seconds(60);  ///< between checkpoints while something changes
  /// Makes an empty history for a pack. Empty: one in this process's own memory.
  std::function<std::unique_ptr<activation::ActivationHistory>(uint64_t pack_identity,
                                                               const activation::EamcShape& shape, int32_t capacity)>
      make = {};
};

/// An entry that is to be told to workers.
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

  /// A worker is there whose model has this shape. The first one of a pack begins its history: from the checkpoint, if
  /// that is of this pack.
  void begin(uint64_t pack_identity, const activation::EamcShape& shape);
  /// `text_ends`: its end may be found in its text, after the tokens behind it have been computed; what it has used is
  /// known when settled() is called.
  void submitted(SequenceId sequence, int64_t prompt_tokens, bool text_ends = false);
  /// The plan goes out: its sequences learn up to where they have been counted.
  void planned(WorkerId worker, Plan& plan);
  void done(WorkerId worker, const PlanOutcome& outcome);
  /// What it had under way does not come back.
  void lost(WorkerId worker);
  /// Nothing more is computed of it. The entries that have changed; none where settled() is to come.
  std::vector<HistoryEntry> ended(SequenceId sequence);
  /// It has ended, or ends here; so many of its sampled tokens are its answer, of the others nothing is counted. -1:
  /// all that came.
  std::vector<HistoryEntry> settled(SequenceId sequence, int64_t sampled);

  /// Null until a worker has been there, or if nothing is kept.
  const activation::ActivationHistory* history() const { return history_.get(); }
  HistoryFigures figures() const;

  /// A checkpoint, if something has changed since the last one and that is `interval` ago, or `at_once`.
  std::optional<std::vector<std::byte>> checkpoint(Nanos now, bool at_once);
  /// The last checkpoint could not be kept.
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
  };
  struct Chunk {
    int64_t first = 0, end = 0;  ///< positions
  };
  void count(Sequence& s, const Chunk& chunk, std::vector<activation::ActivationCount> counts);
  static void add_first(Sequence& s);
  static void cut(Sequence& s, int64_t end);

  HistoryOptions options_;
  uint64_t pack_identity_ = 0;
  std::unique_ptr<activation::ActivationHistory> history_;
  std::unordered_map<SequenceId, Sequence> sequences_;
  std::deque<SequenceId> unsettled_;  ///< of these, who has ended, oldest first; some have been settled since
  std::map<WorkerId, std::map<PlanId, std::vector<std::pair<SequenceId, Chunk>>>> under_way_;
  uint64_t requests_ = 0, replacements_ = 0;
  bool changed_ = false;
  std::optional<Nanos> checkpointed_;
};

}  // namespace moestro::orchestrator
