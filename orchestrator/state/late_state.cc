#include "orchestrator/state/late_state.h"

#include <algorithm>

#include "common/log.h"

namespace moestro::orchestrator {

namespace {
constexpr std::chrono::seconds kPauseMax{30};  ///< a damaged file is read to its end each time
}

bool may_come_later(const Status& why) { return why.code() == Code::kExhausted || why.code() == Code::kCorrupt; }

LateState::LateState(Open open, Status why, std::chrono::milliseconds pause_first)
    : open_(std::move(open)), why_(std::move(why)), pause_(pause_first), try_at_(Clock::now() + pause_) {}

Result<StateStore*> LateState::there() {
  if (state_) return state_.get();
  if (Clock::now() < try_at_) return why_;
  auto opened = open_();
  if (!opened.is_ok()) {
    why_ = opened.status();
    pause_ = std::min<Clock::duration>(2 * pause_, kPauseMax);
    try_at_ = Clock::now() + pause_;
    return why_;
  }
  log::info("the state could be opened: files and batches are served");
  state_ = std::move(*opened);
  return state_.get();
}

Status LateState::put_file(const FileRecord& file) {
  MOESTRO_ASSIGN_OR_RETURN(StateStore* const state, there());
  return state->put_file(file);
}

Result<std::optional<FileRecord>> LateState::file(const std::string& id) {
  MOESTRO_ASSIGN_OR_RETURN(StateStore* const state, there());
  return state->file(id);
}

Result<std::vector<FileRecord>> LateState::files(const ListQuery& query) {
  MOESTRO_ASSIGN_OR_RETURN(StateStore* const state, there());
  return state->files(query);
}

Result<std::vector<FileRecord>> LateState::expired_files(int64_t now) {
  MOESTRO_ASSIGN_OR_RETURN(StateStore* const state, there());
  return state->expired_files(now);
}

Status LateState::remove_file(const std::string& id) {
  MOESTRO_ASSIGN_OR_RETURN(StateStore* const state, there());
  return state->remove_file(id);
}

Status LateState::add_batch(const BatchRecord& batch) {
  MOESTRO_ASSIGN_OR_RETURN(StateStore* const state, there());
  return state->add_batch(batch);
}

Status LateState::change_batch(const BatchRecord& batch, BatchStatus from) {
  MOESTRO_ASSIGN_OR_RETURN(StateStore* const state, there());
  return state->change_batch(batch, from);
}

Result<std::optional<BatchRecord>> LateState::batch(const std::string& id) {
  MOESTRO_ASSIGN_OR_RETURN(StateStore* const state, there());
  return state->batch(id);
}

Result<std::vector<BatchRecord>> LateState::batches(const ListQuery& query) {
  MOESTRO_ASSIGN_OR_RETURN(StateStore* const state, there());
  return state->batches(query);
}

Result<std::vector<BatchRecord>> LateState::unfinished() {
  MOESTRO_ASSIGN_OR_RETURN(StateStore* const state, there());
  return state->unfinished();
}

Result<std::vector<uint64_t>> LateState::count_batches() {
  MOESTRO_ASSIGN_OR_RETURN(StateStore* const state, there());
  return state->count_batches();
}

Status LateState::put_results(const std::string& batch, std::span<const LineResult> results) {
  MOESTRO_ASSIGN_OR_RETURN(StateStore* const state, there());
  return state->put_results(batch, results);
}

Result<std::vector<uint64_t>> LateState::lines_done(const std::string& batch) {
  MOESTRO_ASSIGN_OR_RETURN(StateStore* const state, there());
  return state->lines_done(batch);
}

Result<std::vector<LineResult>> LateState::results(const std::string& batch, uint64_t after, int64_t limit) {
  MOESTRO_ASSIGN_OR_RETURN(StateStore* const state, there());
  return state->results(batch, after, limit);
}

Status LateState::put_response(const ResponseRecord& response, const ResponseLimits& limits) {
  MOESTRO_ASSIGN_OR_RETURN(StateStore* const state, there());
  return state->put_response(response, limits);
}

Result<std::optional<ResponseRecord>> LateState::response(const std::string& id) {
  MOESTRO_ASSIGN_OR_RETURN(StateStore* const state, there());
  return state->response(id);
}

Status LateState::remove_response(const std::string& id) {
  MOESTRO_ASSIGN_OR_RETURN(StateStore* const state, there());
  return state->remove_response(id);
}

Status LateState::put_blob(const std::string& name, std::span<const std::byte> bytes) {
  MOESTRO_ASSIGN_OR_RETURN(StateStore* const state, there());
  return state->put_blob(name, bytes);
}

Result<std::optional<std::vector<std::byte>>> LateState::blob(const std::string& name) {
  MOESTRO_ASSIGN_OR_RETURN(StateStore* const state, there());
  return state->blob(name);
}

Status LateState::finish(const BatchRecord& batch, BatchStatus from, std::span<const FileRecord> files) {
  MOESTRO_ASSIGN_OR_RETURN(StateStore* const state, there());
  return state->finish(batch, from, files);
}

}  // namespace moestro::orchestrator
