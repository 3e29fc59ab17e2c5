#pragma once
// One batch under way: its input is checked, its lines are given out one by one, its files are written. Each call does a bounded piece of it.
// Owned by the runner's thread.

#include <functional>
#include <memory>
#include <optional>
#include <unordered_set>
#include <vector>

#include "orchestrator/batch/batch_line.h"
#include "orchestrator/batch/file_store.h"
#include "orchestrator/batch/line_reader.h"
#include "orchestrator/state/state_store.h"

namespace moestro::orchestrator {

/// What jobs share; outlives them.
struct BatchSurroundings {
  StateStore& state;
  const FileStore& files;
  std::string model;
  std::function<int64_t()> now;  ///< Unix seconds
  size_t line_bytes_max = 16 << 20;
  uint64_t lines_max = 1'000'000;
};

class BatchJob {
 public:
  /// A batch that is not over: new, or as a former process left it.
  BatchJob(BatchSurroundings& around, BatchRecord record);

  const BatchRecord& record() const { return record_; }
  bool over() const { return is_over(record_.status); }
  /// Lines may be given out.
  bool runs() const { return record_.status == BatchStatus::kInProgress && !exhausted_; }

  /// Does a piece of the checking or of the writing; true if there is more at once. After an error that is not the input's (a full disk)
  /// it can be called again.
  Result<bool> work();

  struct Ready {
    uint64_t number = 0;
    BatchLine line;
    std::optional<LineResult> refused = {};  ///< it is not to be run: this is its result
  };
  /// The next line that has no result; nothing if there is none.
  Result<std::optional<Ready>> next();
  /// No more lines are given out; the batch will be `outcome` when its files are written.
  Status end(BatchStatus outcome);
  /// Lines that were given out and have no result kept yet. Writing begins when none is left.
  uint64_t open_lines = 0;
  /// Lines whose results were kept since this process took the batch up: record() has those of before.
  uint64_t good_lines = 0, bad_lines = 0;
  /// These have results that are kept.
  void mark_done(uint64_t line);

 private:
  struct Writing;
  Status open_input();
  Result<bool> check();
  Status checked();
  std::optional<LineProblem> problem_of(const LineReader::Line& line, BatchLine* good);
  Result<bool> write();
  Status begin_writing();
  Result<bool> write_results();
  Result<bool> write_rest();
  Result<bool> finish();
  Result<bool> fail(std::string code, std::string message);
  bool done(uint64_t line) const { return line < done_.size() && done_[line]; }

  BatchSurroundings& around_;
  BatchRecord record_;
  std::optional<LineReader> input_;
  std::vector<bool> done_;  ///< by line
  bool loaded_ = false;     ///< done_ is as the state has it
  bool exhausted_ = false;  ///< the input has no more lines to give out
  std::unordered_set<std::string> custom_ids_;  ///< seen while checking; as hashes, 16 bytes each
  uint64_t lines_seen_ = 0;
  std::shared_ptr<Writing> writing_;
};

}  // namespace moestro::orchestrator
