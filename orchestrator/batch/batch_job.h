#pragma once
// One batch in progress: checks its input, gives out its lines one by one, and writes its files. Each call does a
// bounded part of the work. Owned by the runner's thread.

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

/// What all jobs share; outlives them.
struct BatchSurroundings {
  StateStore& state;
  SharedLines* shared;  ///< null: this orchestrator alone works on batches
  const FileStore& files;
  std::string model;
  std::function<int64_t()> now;  ///< Unix seconds
  std::vector<std::string> aliases;  ///< of the model
  std::vector<HeldName> held = {};  ///< of these names, those whose lines other orchestrators run with another version
  size_t line_bytes_max = 16 << 20;
  uint64_t lines_max = 1'000'000;
  uint64_t line_numbers_max = 16'000'000;  ///< including blank lines, because lines are stored by their numbers
  bool serves(const std::string& name) const;
  const HeldName* held_by_others(const std::string& name) const;
};

/// A digest of a custom_id in 16 bytes.
struct CustomIdDigest {
  uint64_t low = 0, high = 0;
  bool operator==(const CustomIdDigest&) const = default;
};
struct CustomIdHash {
  size_t operator()(const CustomIdDigest& d) const { return d.low; }
};

class BatchJob {
 public:
  /// A batch that has not ended: new, or from an earlier process.
  BatchJob(BatchSurroundings& around, BatchRecord record);

  const BatchRecord& record() const { return record_; }
  bool over() const { return is_over(record_.status); }
  /// Takes the record from the state, which other orchestrators may have changed. True if its status has changed.
  bool refresh(const BatchRecord& record);
  /// Another orchestrator may lead the batch (check and write it): ask again.
  void ask_lead() { leads_ = false; }

  /// Whether lines may be given out.
  bool runs() const { return served_ && has_lines() && held_by_others() == nullptr; }
  /// Whether lines may be given out by those who may run them.
  bool has_lines() const { return record_.status == BatchStatus::kInProgress && !exhausted_; }
  /// Its name, while it belongs to another version than that served here; null: it does not.
  const HeldName* held_by_others() const { return around_.held_by_others(record_.model); }
  /// Forgets the lines that it has taken and not given out.
  void drop_taken() { taken_.clear(); }
  /// Whether its model is served here. If not, it waits: it can be cancelled, and it expires.
  bool served() const { return served_; }

  /// Does a part of the checking or writing; true if there is more to do at once. After an error that is not the
  /// input's (a full disk) it can be called again.
  Result<bool> work();

  struct Ready {
    uint64_t number = 0;
    BatchLine line;
    std::optional<LineResult> refused = {};  ///< the line is not run: this is its result
  };
  /// The next line that has no result; nullopt if there is none for now. `room`: the most lines that are taken of a
  /// shared batch.
  Result<std::optional<Ready>> next(size_t room);
  /// Takes no more lines of a shared batch until it is refreshed.
  void rest() { resting_ = true; }
  /// Lines that this orchestrator has taken and not given out yet.
  const std::deque<QueuedLine>& taken() const { return taken_; }
  /// No more lines are given out; the batch will be `outcome` when its files are written. `drop_results`: it gets none.
  Status end(BatchStatus outcome, bool drop_results = false);
  /// It is cancelled and gets no files, whether there is room for them or not.
  bool drops_results() const;
  /// Why its files could not be written when that was last tried, if they had no room; then it alone waits for some.
  const std::string& lacks_room() const { return lacks_room_; }
  /// Lines that were given out and have no stored result yet. Writing begins when there are none left.
  uint64_t open_lines = 0;
  /// Lines whose results were stored by this process; record() has earlier ones.
  uint64_t good_lines = 0, bad_lines = 0;
  /// Marks a line whose result is stored.
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
  Result<bool> finish_without_files();
  Result<bool> fail(std::string code, std::string message);
  bool done(uint64_t line) const { return line < done_.size() && done_[line]; }

  BatchSurroundings& around_;
  BatchRecord record_;
  const bool served_;
  std::optional<LineReader> input_;
  FileRecord input_file_;
  std::optional<InputCheck> input_check_;
  bool input_checked_ = false;  ///< this process has checked that it is what was uploaded
  std::vector<bool> done_;  ///< by line
  bool loaded_ = false;     ///< done_ was loaded from the state
  bool exhausted_ = false;  ///< the input has no more lines to give out
  std::unordered_set<CustomIdDigest, CustomIdHash> custom_ids_;  ///< seen while checking
  // For a shared batch:
  std::deque<QueuedLine> taken_;
  bool leads_ = false;      ///< checks the input and writes the files
  bool may_ask_ = true;     ///< may ask whether it leads; once after each refresh
  bool resting_ = false;
  uint64_t lines_seen_ = 0;
  std::shared_ptr<Writing> writing_;
  std::string lacks_room_;
};

}  // namespace moestro::orchestrator
