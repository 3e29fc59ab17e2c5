#pragma once
// One batch under way: its input is checked, its lines are given out one by one, its files are written. Each call does
// a bounded piece of it. Owned by the runner's thread.

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_set>
#include <vector>

#include "orchestrator/batch/batch_line.h"
#include "orchestrator/batch/file_store.h"
#include "orchestrator/batch/input_check.h"
#include "orchestrator/batch/line_reader.h"
#include "orchestrator/state/state_store.h"

namespace moestro::orchestrator {

/// What jobs share; outlives them.
struct BatchSurroundings {
  StateStore& state;
  SharedLines* shared;  ///< null: this orchestrator alone works on batches
  const FileStore& files;
  std::string model;
  std::function<int64_t()> now;  ///< Unix seconds
  std::vector<std::string> aliases;  ///< of the model
  size_t line_bytes_max = 16 << 20;
  uint64_t lines_max = 1'000'000;
  uint64_t line_numbers_max = 16'000'000;  ///< blank ones count here: what is kept of lines is by their numbers
};

/// 16 bytes that stand for a custom_id.
struct CustomIdDigest {
  uint64_t low = 0, high = 0;
  bool operator==(const CustomIdDigest&) const = default;
};
struct CustomIdHash {
  size_t operator()(const CustomIdDigest& d) const { return d.low; }
};

class BatchJob {
 public:
  /// A batch that is not over: new, or as a former process left it.
  BatchJob(BatchSurroundings& around, BatchRecord record);

  const BatchRecord& record() const { return record_; }
  bool over() const { return is_over(record_.status); }
  /// As the state has it now: others may have changed it. True if it is in another state than before.
  bool refresh(const BatchRecord& record);
  /// Another orchestrator may have the batch's checking or writing: ask again.
  void ask_lead() { leads_ = false; }

  /// Lines may be given out.
  bool runs() const { return record_.status == BatchStatus::kInProgress && !exhausted_; }

  /// Does a piece of the checking or of the writing; true if there is more at once. After an error that is not the
  /// input's (a full disk) it can be called again.
  Result<bool> work();

  struct Ready {
    uint64_t number = 0;
    BatchLine line;
    std::optional<LineResult> refused = {};  ///< it is not to be run: this is its result
  };
  /// The next line that has no result; nothing if there is none (for now). `room`: of a shared batch at most so many
  /// lines are taken from the others.
  Result<std::optional<Ready>> next(size_t room);
  /// Takes no more lines of a shared batch until it is refreshed.
  void rest() { resting_ = true; }
  /// Lines that are this orchestrator's and were not given out yet.
  const std::deque<QueuedLine>& taken() const { return taken_; }
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
  Result<std::unique_ptr<FileBytes>> input_bytes();
  Status open_input();
  Result<bool> check_input();
  Result<bool> without_input(const Status& why);
  Status begin_check();
  Result<bool> lead();
  Result<bool> next_taken(size_t room);
  Result<std::optional<Ready>> nothing_more(const Status& why);
  Result<bool> check();
  Status keep_checked(const std::vector<LineResult>& problems, const std::vector<QueuedLine>& good);
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
  FileRecord input_file_;
  std::optional<InputCheck> input_check_;
  bool input_checked_ = false;  ///< in this life it has been what was uploaded
  std::vector<bool> done_;  ///< by line
  bool loaded_ = false;     ///< done_ is as the state has it
  bool exhausted_ = false;  ///< the input has no more lines to give out
  std::unordered_set<CustomIdDigest, CustomIdHash> custom_ids_;  ///< seen while checking
  // Of a shared batch:
  std::deque<QueuedLine> taken_;
  bool leads_ = false;      ///< checks the input and writes the files
  bool may_ask_ = true;     ///< whether it leads; once after each refresh
  bool resting_ = false;
  uint64_t lines_seen_ = 0;
  std::shared_ptr<Writing> writing_;
};

}  // namespace moestro::orchestrator
