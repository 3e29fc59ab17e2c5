#pragma once
// A state that cannot be opened yet because its disk is full or it is damaged. Completions are served meanwhile. Calls
// try again to open it, with pauses, and say why they could not.

#include <chrono>
#include <functional>
#include <memory>
#include <type_traits>

#include "orchestrator/state/state_store.h"

namespace moestro::orchestrator {

/// Whether an orchestrator may start without the state, because the problem can be fixed while it runs.
bool may_come_later(const Status& why);

class LateState final : public StateStore {
 public:
  using Open = std::function<Result<std::unique_ptr<StateStore>>()>;
  /// `why`: the error of the last attempt to open it.
  LateState(Open open, Status why, std::chrono::milliseconds pause_first = std::chrono::seconds(1));

  Status put_file(const FileRecord& file) override { return ask(&StateStore::put_file, file); }
  Result<std::optional<FileRecord>> file(const std::string& id) override { return ask(&StateStore::file, id); }
  Result<std::vector<FileRecord>> files(const ListQuery& query) override { return ask(&StateStore::files, query); }
  Result<std::vector<FileRecord>> expired_files(int64_t now) override { return ask(&StateStore::expired_files, now); }
  Status remove_file(const std::string& id) override { return ask(&StateStore::remove_file, id); }
  Status add_batch(const BatchRecord& batch) override { return ask(&StateStore::add_batch, batch); }
  Status change_batch(const BatchRecord& batch, BatchStatus from) override {
    return ask(&StateStore::change_batch, batch, from);
  }
  Result<std::optional<BatchRecord>> batch(const std::string& id) override { return ask(&StateStore::batch, id); }
  Result<std::vector<BatchRecord>> batches(const ListQuery& query) override { return ask(&StateStore::batches, query); }
  Result<std::vector<BatchRecord>> unfinished() override { return ask(&StateStore::unfinished); }
  Result<std::vector<uint64_t>> count_batches() override { return ask(&StateStore::count_batches); }
  Result<LineCounts> put_results(const std::string& batch, std::span<const LineResult> results) override {
    return ask(&StateStore::put_results, batch, results);
  }
  Result<std::vector<uint64_t>> lines_done(const std::string& batch) override {
    return ask(&StateStore::lines_done, batch);
  }
  Result<std::vector<LineResult>> results(const std::string& batch, uint64_t after, int64_t limit) override {
    return ask(&StateStore::results, batch, after, limit);
  }
  Status put_response(const ResponseRecord& response, const ResponseLimits& limits) override {
    return ask(&StateStore::put_response, response, limits);
  }
  Result<std::optional<ResponseRecord>> response(const std::string& id) override {
    return ask(&StateStore::response, id);
  }
  Status remove_response(const std::string& id) override { return ask(&StateStore::remove_response, id); }
  Status put_blob(const std::string& name, std::span<const std::byte> bytes) override {
    return ask(&StateStore::put_blob, name, bytes);
  }
  Result<std::optional<std::vector<std::byte>>> blob(const std::string& name) override {
    return ask(&StateStore::blob, name);
  }
  Status finish(const BatchRecord& batch, BatchStatus from, std::span<const FileRecord> files) override {
    return ask(&StateStore::finish, batch, from, files);
  }
  Result<bool> tidy() override { return state_ ? state_->tidy() : false; }
  Status has_room() override { return state_ ? state_->has_room() : why_; }

 private:
  using Clock = std::chrono::steady_clock;
  Result<StateStore*> there();
  template <typename Answer, typename... Takes>
  Answer ask(Answer (StateStore::*call)(Takes...), std::type_identity_t<Takes>... arguments) {
    MOESTRO_ASSIGN_OR_RETURN(StateStore* const state, there());
    return (state->*call)(arguments...);
  }

  const Open open_;
  Status why_;
  Clock::duration pause_;
  Clock::time_point try_at_;
  std::unique_ptr<StateStore> state_;
};

}  // namespace moestro::orchestrator
