// How a batch ends: its results become files, and then it is over, in one step of the state.

#include "common/log.h"
#include "orchestrator/batch/batch_job.h"

namespace moestro::orchestrator {

namespace {
constexpr int64_t kResultsOfAPiece = 64;
constexpr int kLinesWrittenAtOnce = 256;
constexpr const char* kPurpose = "batch_output";
}  // namespace

struct BatchJob::Writing {
  std::unique_ptr<PartFile> output, errors;
  uint64_t output_lines = 0, error_lines = 0, after = 0;
  bool results_written = false;
};

/// The ids of both files are kept before anything is written, and stay the same if the writing begins again.
Status BatchJob::begin_writing() {
  MOESTRO_RETURN_IF_ERROR(around_.state.has_room_for_files(record_.id));
  BatchRecord next = record_;
  if (next.status != BatchStatus::kCancelling) next.status = BatchStatus::kFinalizing;
  if (next.finalizing_at == 0) next.finalizing_at = around_.now();
  if (next.output_file.empty()) next.output_file = new_id("file-");
  if (next.error_file.empty()) next.error_file = new_id("file-");
  // A full disk makes it begin again and again: what is kept already is not written anew.
  const bool kept = next.status == record_.status && next.finalizing_at == record_.finalizing_at &&
                    next.output_file == record_.output_file && next.error_file == record_.error_file;
  if (!kept || around_.shared != nullptr) {
    MOESTRO_RETURN_IF_ERROR(around_.state.change_batch(next, record_.status));
    record_ = std::move(next);
  }
  exhausted_ = true;
  taken_.clear();
  if (around_.shared != nullptr) {  // from here on no results are kept, so these are all
    done_.clear();
    MOESTRO_ASSIGN_OR_RETURN(const auto lines, around_.state.lines_done(record_.id));
    for (const uint64_t line : lines) mark_done(line);
  }
  MOESTRO_ASSIGN_OR_RETURN(auto output, around_.files.create(record_.output_file));
  MOESTRO_ASSIGN_OR_RETURN(auto errors, around_.files.create(record_.error_file));
  writing_ = std::make_shared<Writing>(Writing{std::move(output), std::move(errors)});
  input_.reset();
  lines_seen_ = 0;
  return Status::ok();
}

Result<bool> BatchJob::write() {
  if (drops_results()) return finish_without_files();
  const auto piece = [this]() -> Result<bool> {
    MOESTRO_RETURN_IF_ERROR(around_.state.has_room());
    if (!writing_) MOESTRO_RETURN_IF_ERROR(begin_writing());
    return writing_->results_written ? write_rest() : write_results();
  };
  auto more = piece();
  if (!more.is_ok()) writing_.reset();  // the parts are gone with it; it begins anew
  if (more.status().code() == Code::kExhausted) lacks_room_ = more.status().message();
  return more;
}

Result<bool> BatchJob::write_results() {
  MOESTRO_ASSIGN_OR_RETURN(const auto results, around_.state.results(record_.id, writing_->after, kResultsOfAPiece));
  for (const LineResult& r : results) {
    MOESTRO_RETURN_IF_ERROR((r.good ? writing_->output : writing_->errors)->write(r.text + "\n"));
    (r.good ? writing_->output_lines : writing_->error_lines) += 1;
    writing_->after = r.line;
  }
  writing_->results_written = results.empty();
  return true;
}

/// The lines that were not run, of a batch that was cancelled or has expired.
Result<bool> BatchJob::write_rest() {
  const bool cancelled = record_.outcome == BatchStatus::kCancelled;
  if (record_.outcome == BatchStatus::kCompleted) return finish();
  if (!input_) {
    if (const Status opened = open_input(); !opened.is_ok()) return without_input(opened);
  }
  for (int i = 0; i < kLinesWrittenAtOnce; ++i) {
    auto read = input_->next();
    if (!read.is_ok()) return without_input(read.status());
    const auto& line = *read;
    if (!line) {
      record_.total = std::max(record_.total, lines_seen_);
      return finish();
    }
    ++lines_seen_;
    if (done(line->number)) continue;
    BatchLine good;
    auto problem = problem_of(*line, &good);
    if (!problem)
      problem = cancelled
                    ? LineProblem{good.custom_id, "batch_cancelled", "the batch was cancelled before this line was run"}
                    : LineProblem{good.custom_id, "batch_expired",
                                  "the batch's completion window ended before this line was run"};
    MOESTRO_RETURN_IF_ERROR(writing_->errors->write(refused_line({record_.id, line->number}, *problem).text + "\n"));
    ++writing_->error_lines;
  }
  return true;
}

Result<bool> BatchJob::finish() {
  BatchRecord next = record_;
  const int64_t now = around_.now();
  next.status = next.outcome;
  (next.outcome == BatchStatus::kCancelled ? next.cancelled_at
   : next.outcome == BatchStatus::kExpired ? next.expired_at
                                           : next.completed_at) = now;
  std::vector<FileRecord> files;
  const auto keep = [&](PartFile& part, uint64_t lines, std::string& id, const char* what) -> Status {
    if (lines == 0) {
      id.clear();
      return Status::ok();
    }
    MOESTRO_RETURN_IF_ERROR(part.commit());
    files.push_back({id, record_.id + "_" + what + ".jsonl", kPurpose, part.sum().bytes(), now,
                     record_.output_seconds > 0 ? now + record_.output_seconds : 0, part.sum().text(),
                     record_.owner});
    return Status::ok();
  };
  MOESTRO_RETURN_IF_ERROR(keep(*writing_->output, writing_->output_lines, next.output_file, "output"));
  MOESTRO_RETURN_IF_ERROR(keep(*writing_->errors, writing_->error_lines, next.error_file, "error"));
  MOESTRO_RETURN_IF_ERROR(around_.state.finish(next, record_.status, files));
  record_ = std::move(next);
  log::info("{} is {}: {} lines in its output file, {} in its error file", record_.id,
            batch_status_name(record_.status), writing_->output_lines, writing_->error_lines);
  writing_.reset();
  input_.reset();
  return false;
}

Result<bool> BatchJob::finish_without_files() {
  writing_.reset();
  BatchRecord next = record_;
  next.status = next.outcome;
  next.cancelled_at = around_.now();
  next.output_file.clear();
  next.error_file.clear();
  MOESTRO_RETURN_IF_ERROR(around_.state.finish(next, record_.status, {}));
  record_ = std::move(next);
  log::info("{} is cancelled: {}", record_.id, record_.error_message);
  return false;
}

/// Its input cannot be read. What passes is tried again; else the batch fails, and others go on.
Result<bool> BatchJob::without_input(const Status& why) {
  if (why.code() == Code::kUnavailable || why.code() == Code::kExhausted) return why;
  return fail(why.code() == Code::kNotFound ? "input_file_missing" : "input_file_damaged", why.message());
}

/// The batch as a whole: none of its lines stands.
Result<bool> BatchJob::fail(std::string code, std::string message) {
  BatchRecord next = record_;
  next.status = next.outcome = BatchStatus::kFailed;
  next.failed_at = around_.now();
  next.error_code = std::move(code);
  next.error_message = std::move(message);
  next.output_file.clear();
  next.error_file.clear();
  MOESTRO_RETURN_IF_ERROR(around_.state.finish(next, record_.status, {}));
  record_ = std::move(next);
  log::warn("{} has failed: {}", record_.id, record_.error_message);
  return false;
}

}  // namespace moestro::orchestrator
