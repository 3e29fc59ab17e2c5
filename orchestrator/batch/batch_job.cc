#include "orchestrator/batch/batch_job.h"

#include <sys/random.h>

#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace moestro::orchestrator {

namespace {
constexpr int kLinesOfAPiece = 256;
constexpr size_t kBytesOfAPiece = 1 << 20;

/// 16 bytes that stand for a custom_id; equal by chance once in 2^64 batches of this size, and nobody knows the seed.
std::string digest(const std::string& custom_id) {
  static const uint64_t seed = [] {
    uint64_t drawn = 0;
    return ::getrandom(&drawn, sizeof drawn, 0) == sizeof drawn ? drawn : 0;
  }();
  const XXH128_hash_t hash = XXH3_128bits_withSeed(custom_id.data(), custom_id.size(), seed);
  std::string bytes(16, '\0');
  std::memcpy(bytes.data(), &hash.low64, 8);
  std::memcpy(bytes.data() + 8, &hash.high64, 8);
  return bytes;
}
}  // namespace

BatchJob::BatchJob(BatchSurroundings& around, BatchRecord record) : around_(around), record_(std::move(record)) {
  if (record_.status == BatchStatus::kInProgress || record_.status == BatchStatus::kValidating) return;
  exhausted_ = true;
}

Status BatchJob::open_input() {
  MOESTRO_ASSIGN_OR_RETURN(auto fd, around_.files.read(record_.input_file));
  input_.emplace(std::move(fd), around_.line_bytes_max);
  return Status::ok();
}

void BatchJob::mark_done(uint64_t line) {
  if (line >= done_.size()) done_.resize(std::max<size_t>(line + 1, done_.size() * 2));
  done_[line] = true;
}

Result<bool> BatchJob::work() {
  if (over()) return false;
  if (!loaded_) {
    MOESTRO_ASSIGN_OR_RETURN(const auto lines, around_.state.lines_done(record_.id));
    for (const uint64_t line : lines) mark_done(line);
    loaded_ = true;
  }
  if (record_.status == BatchStatus::kValidating) return check();
  if (record_.status == BatchStatus::kInProgress && !exhausted_) return false;
  return open_lines > 0 ? Result<bool>(false) : write();
}

std::optional<LineProblem> BatchJob::problem_of(const LineReader::Line& line, BatchLine* good) {
  if (line.too_long)
    return LineProblem{"", "line_too_long", "the line has more than " + std::to_string(around_.line_bytes_max) + " bytes"};
  auto read = read_batch_line(line.text, record_.endpoint, around_.model);
  if (auto* problem = std::get_if<LineProblem>(&read)) return std::move(*problem);
  *good = std::move(std::get<BatchLine>(read));
  return std::nullopt;
}

Result<bool> BatchJob::check() {
  if (!input_) {
    lines_seen_ = 0;
    custom_ids_.clear();
    if (const Status opened = open_input(); !opened.is_ok()) return fail("input_file_missing", opened.message());
  }
  std::vector<LineResult> problems;
  bool ended = false;
  size_t bytes = 0;
  for (int i = 0; i < kLinesOfAPiece && bytes < kBytesOfAPiece && !ended; ++i) {
    MOESTRO_ASSIGN_OR_RETURN(auto line, input_->next());
    ended = !line;
    if (!line) break;
    bytes += line->text.size();
    if (++lines_seen_ > around_.lines_max)
      return fail("too_many_lines", "the input has more than " + std::to_string(around_.lines_max) + " lines");
    BatchLine good;
    auto problem = problem_of(*line, &good);
    if (!problem && !custom_ids_.insert(digest(good.custom_id)).second)
      problem = LineProblem{good.custom_id, "duplicate_custom_id", "an earlier line has this custom_id"};
    if (problem) problems.push_back(refused_line({record_.id, line->number}, *problem));
  }
  if (!problems.empty()) {
    if (const Status kept = around_.state.put_results(record_.id, problems); !kept.is_ok()) {
      input_.reset();  // from the beginning: which lines were read is not remembered
      return kept;
    }
    for (const LineResult& r : problems) mark_done(r.line);
  }
  if (!ended) return true;
  MOESTRO_RETURN_IF_ERROR(checked());
  return true;
}

Status BatchJob::checked() {
  if (lines_seen_ == 0) return fail("empty_file", "the input has no lines").status();
  BatchRecord next = record_;
  next.total = lines_seen_;
  next.status = BatchStatus::kInProgress;
  next.in_progress_at = around_.now();
  MOESTRO_RETURN_IF_ERROR(around_.state.put_batch(next));
  record_ = std::move(next);
  custom_ids_ = {};
  input_.reset();
  return Status::ok();
}

Result<std::optional<BatchJob::Ready>> BatchJob::next() {
  if (!runs() || !loaded_) return std::optional<Ready>();
  if (!input_) MOESTRO_RETURN_IF_ERROR(open_input());
  for (;;) {
    MOESTRO_ASSIGN_OR_RETURN(auto line, input_->next());
    if (!line) {
      exhausted_ = true;
      return std::optional<Ready>();
    }
    if (done(line->number)) continue;
    Ready ready{line->number, {}};
    if (const auto problem = problem_of(*line, &ready.line)) {  // only if the served model is another than when it was checked
      ready.refused = refused_line({record_.id, line->number}, *problem);
    }
    ++open_lines;
    return std::optional<Ready>(std::move(ready));
  }
}

Status BatchJob::end(BatchStatus outcome) {
  BatchRecord next = record_;
  next.outcome = outcome;
  if (outcome == BatchStatus::kCancelled) {
    next.status = BatchStatus::kCancelling;
    next.cancelling_at = around_.now();
  } else {
    next.status = BatchStatus::kFinalizing;
    next.finalizing_at = around_.now();
  }
  MOESTRO_RETURN_IF_ERROR(around_.state.put_batch(next));
  record_ = std::move(next);
  exhausted_ = true;
  input_.reset();
  return Status::ok();
}

}  // namespace moestro::orchestrator
