#include "orchestrator/batch/batch_job.h"

#include <algorithm>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "common/random_value.h"

namespace moestro::orchestrator {

namespace {
constexpr int kLinesReadAtOnce = 256;
constexpr size_t kBytesOfAPiece = 1 << 20;
constexpr const char* kDropped = "results_dropped";  ///< an error code, by which other orchestrators know it too

/// Equal by chance once in 2^64 batches of a million lines, and nobody knows the seed.
CustomIdDigest digest(const std::string& custom_id) {
  static const auto seed = random_value<uint64_t>();
  const XXH128_hash_t hash = XXH3_128bits_withSeed(custom_id.data(), custom_id.size(), seed);
  return {hash.low64, hash.high64};
}
}  // namespace

bool BatchSurroundings::serves(const std::string& name) const {
  return name == model || std::ranges::find(aliases, name) != aliases.end();
}

const HeldName* BatchSurroundings::held_by_others(const std::string& name) const {
  const auto found = std::ranges::find(held, name, &HeldName::name);
  return found == held.end() ? nullptr : &*found;
}

BatchJob::BatchJob(BatchSurroundings& around, BatchRecord record)
    : around_(around), record_(std::move(record)), served_(around_.serves(record_.model)) {
  if (record_.status == BatchStatus::kInProgress || record_.status == BatchStatus::kValidating) return;
  exhausted_ = true;
}

Result<std::unique_ptr<FileBytes>> BatchJob::input_bytes() {
  auto record = around_.state.file(record_.input_file);
  if (!record.is_ok()) return unavailable(record.status().message());  // the state's fault, not the input's
  if (!*record) return not_found("there is no file " + record_.input_file);
  input_file_ = std::move(**record);
  return around_.files.open(record_.input_file);
}

Status BatchJob::open_input() {
  MOESTRO_ASSIGN_OR_RETURN(auto bytes, input_bytes());
  input_.emplace(std::move(bytes), around_.line_bytes_max);
  return Status::ok();
}

/// Before lines are given out: whether the file is still the one that was checked when the batch was new. A piece of
/// it; true if there is more. Of a shared batch whoever leads it has checked it, and its pieces do not change.
Result<bool> BatchJob::check_input() {
  if (!input_check_) {
    auto bytes = input_bytes();
    if (!bytes.is_ok()) return without_input(bytes.status());
    input_check_.emplace(input_file_, std::move(*bytes));
  }
  const auto more = input_check_->step();
  if (!more.is_ok()) return without_input(more.status());
  input_checked_ = !*more;
  if (input_checked_) input_check_.reset();
  return true;
}

bool BatchJob::refresh(const BatchRecord& record) {
  const bool moved = record.status != record_.status;
  record_ = record;
  good_lines = bad_lines = 0;  // they are in the record
  may_ask_ = true;
  resting_ = false;
  if (!moved) return false;
  exhausted_ = record_.status != BatchStatus::kInProgress && record_.status != BatchStatus::kValidating;
  taken_.clear();
  custom_ids_ = {};
  input_.reset();
  writing_.reset();
  return true;
}

/// Whether this orchestrator checks the input and writes the files. Nobody else can where the state is not shared.
Result<bool> BatchJob::lead() {
  if (around_.shared == nullptr || leads_) return true;
  if (!std::exchange(may_ask_, false)) return false;
  MOESTRO_ASSIGN_OR_RETURN(leads_, around_.shared->lead(record_.id));
  return leads_;
}

void BatchJob::mark_done(uint64_t line) {
  if (line >= done_.size()) done_.resize(std::max<size_t>(line + 1, done_.size() * 2));
  done_[line] = true;
}

Result<bool> BatchJob::work() {
  lacks_room_.clear();
  if (over()) return false;
  if (!served_ && (record_.status == BatchStatus::kValidating || record_.status == BatchStatus::kInProgress))
    return false;
  if (around_.shared != nullptr) {
    // Its lines may be anybody's, so their number tells whether all are done.
    if (record_.status == BatchStatus::kInProgress && record_.completed + record_.failed < record_.total) return false;
    MOESTRO_ASSIGN_OR_RETURN(const bool leads, lead());
    if (!leads) return false;
    return record_.status == BatchStatus::kValidating ? check() : write();
  }
  if (!loaded_) {
    MOESTRO_ASSIGN_OR_RETURN(const auto lines, around_.state.lines_done(record_.id));
    for (const uint64_t line : lines) mark_done(line);
    loaded_ = true;
  }
  if (record_.status == BatchStatus::kValidating) return check();
  if (record_.status == BatchStatus::kInProgress && !exhausted_) return input_checked_ ? false : check_input();
  return open_lines > 0 ? Result<bool>(false) : write();
}

std::optional<LineProblem> BatchJob::problem_of(const LineReader::Line& line, BatchLine* good) {
  if (line.too_long)
    return LineProblem{"", "line_too_long",
                       "the line has more than " + std::to_string(around_.line_bytes_max) + " bytes"};
  // Who does not serve its model does not know the model's other names either.
  auto read = read_batch_line(line.text, record_.endpoint, served_ ? around_.model : "", around_.aliases);
  if (auto* problem = std::get_if<LineProblem>(&read)) return std::move(*problem);
  *good = std::move(std::get<BatchLine>(read));
  return std::nullopt;
}

Status BatchJob::begin_check() {
  lines_seen_ = 0;
  custom_ids_.clear();
  if (around_.shared != nullptr) MOESTRO_RETURN_IF_ERROR(around_.shared->offer(record_.id, {}, /*anew=*/true));
  return Status::ok();
}

Result<bool> BatchJob::check() {
  if (!input_) {
    MOESTRO_RETURN_IF_ERROR(begin_check());
    if (const Status opened = open_input(); !opened.is_ok()) return without_input(opened);
  }
  std::vector<LineResult> problems;
  std::vector<QueuedLine> to_offer;
  bool ended = false;
  size_t bytes = 0;
  for (int i = 0; i < kLinesReadAtOnce && bytes < kBytesOfAPiece && !ended; ++i) {
    auto read = input_->next();
    if (!read.is_ok()) return without_input(read.status());
    auto& line = *read;
    ended = !line;
    if (!line) break;
    bytes += line->text.size();
    if (++lines_seen_ > around_.lines_max || line->number > around_.line_numbers_max)
      return fail("too_many_lines",
                  "the input has more than " +
                      std::to_string(lines_seen_ > around_.lines_max ? around_.lines_max : around_.line_numbers_max) +
                      (lines_seen_ > around_.lines_max ? " lines" : " lines, blank ones with them"));
    BatchLine good;
    auto problem = problem_of(*line, &good);
    if (!problem && !custom_ids_.insert(digest(good.custom_id)).second)
      problem = LineProblem{good.custom_id, "duplicate_custom_id", "an earlier line has this custom_id"};
    if (problem) problems.push_back(refused_line({record_.id, line->number}, *problem));
    else to_offer.push_back({line->number, line->offset});
  }
  if (const Status kept = keep_checked(problems, to_offer); !kept.is_ok()) {
    input_.reset();  // from the beginning: which lines were read is not remembered
    return kept;
  }
  if (!ended) return true;
  if (auto why = difference(input_file_, input_->sum())) return without_input(corrupt(std::move(*why)));
  if (const Status kept = checked(); !kept.is_ok()) {
    input_.reset();
    return kept;
  }
  return true;
}

Status BatchJob::keep_checked(const std::vector<LineResult>& problems, const std::vector<QueuedLine>& good) {
  if (around_.shared != nullptr && !good.empty())
    MOESTRO_RETURN_IF_ERROR(around_.shared->offer(record_.id, good, /*anew=*/false));
  if (problems.empty()) return Status::ok();
  MOESTRO_ASSIGN_OR_RETURN(const LineCounts kept, around_.state.put_results(record_.id, problems));
  bad_lines += kept.bad;
  for (const LineResult& r : problems) mark_done(r.line);
  return Status::ok();
}

Status BatchJob::checked() {
  if (lines_seen_ == 0) return fail("empty_file", "the input has no lines").status();
  BatchRecord next = record_;
  next.total = lines_seen_;
  next.status = BatchStatus::kInProgress;
  next.in_progress_at = around_.now();
  MOESTRO_RETURN_IF_ERROR(around_.state.change_batch(next, record_.status));
  record_ = std::move(next);
  custom_ids_ = {};
  input_.reset();
  input_checked_ = true;
  return Status::ok();
}

/// Sets the reader to the next line that is this orchestrator's; false if there is none for now.
Result<bool> BatchJob::next_taken(size_t room) {
  if (taken_.empty()) {
    if (resting_ || room == 0) return false;
    MOESTRO_ASSIGN_OR_RETURN(const auto lines, around_.shared->take(record_.id, room));
    resting_ = lines.empty();  // there are no more, until something changes; a call may give fewer than there are
    taken_.assign(lines.begin(), lines.end());
    if (taken_.empty()) return false;
  }
  input_->go_to(taken_.front().number, taken_.front().offset);
  return true;
}

/// Of a shared batch the error is for whoever leads it.
Result<std::optional<BatchJob::Ready>> BatchJob::nothing_more(const Status& why) {
  if (around_.shared != nullptr) return why;
  MOESTRO_RETURN_IF_ERROR(without_input(why).status());
  return std::optional<Ready>();
}

Result<std::optional<BatchJob::Ready>> BatchJob::next(size_t room) {
  const bool shared = around_.shared != nullptr;
  if (!runs() || (!shared && (!loaded_ || !input_checked_))) return std::optional<Ready>();
  if (!input_) {
    if (const Status opened = open_input(); !opened.is_ok()) return nothing_more(opened);
  }
  for (;;) {
    if (shared) {
      MOESTRO_ASSIGN_OR_RETURN(const bool any, next_taken(room));
      if (!any) return std::optional<Ready>();
    }
    auto read = input_->next();
    if (!read.is_ok()) return nothing_more(read.status());
    auto& line = *read;
    if (!line) {
      if (!shared) {
        if (auto why = difference(input_file_, input_->sum())) return nothing_more(corrupt(std::move(*why)));
        exhausted_ = true;
        return std::optional<Ready>();
      }
      line = LineReader::Line{taken_.front().number, taken_.front().offset, {}, false};  // refused as no JSON
    }
    if (shared) taken_.pop_front();
    else if (done(line->number)) continue;
    Ready ready{line->number, {}};
    if (const auto problem =
            problem_of(*line, &ready.line)) {  // only if the served model is another than when it was checked
      ready.refused = refused_line({record_.id, line->number}, *problem);
    }
    ++open_lines;
    return std::optional<Ready>(std::move(ready));
  }
}

bool BatchJob::drops_results() const {
  return record_.status == BatchStatus::kCancelling && record_.error_code == kDropped;
}

Status BatchJob::end(BatchStatus outcome, bool drop_results) {
  BatchRecord next = record_;
  next.outcome = outcome;
  if (outcome == BatchStatus::kCancelled) {
    next.status = BatchStatus::kCancelling;
    if (next.cancelling_at == 0) next.cancelling_at = around_.now();
  } else {
    next.status = BatchStatus::kFinalizing;
    next.finalizing_at = around_.now();
  }
  if (drop_results) {
    next.error_code = kDropped;
    next.error_message = "its results were dropped when it was cancelled, as drop_results asks";
  }
  MOESTRO_RETURN_IF_ERROR(around_.state.change_batch(next, record_.status));
  record_ = std::move(next);
  exhausted_ = true;
  input_.reset();
  writing_.reset();  // the reason why lines were not run is another
  lacks_room_.clear();
  return Status::ok();
}

}  // namespace moestro::orchestrator
