#pragma once
// A state that cannot be opened yet because its disk is full or it is damaged. Completions are served meanwhile. Calls
// try again to open it, with pauses, and say why they could not.

#include <chrono>
#include <functional>
#include <memory>

#include "orchestrator/state/state_store.h"

namespace moestro::orchestrator {

/// Whether an orchestrator may start without the state, because the problem can be fixed while it runs.
bool may_come_later(const Status& why);

class LateState final : public StateStore {
 public:
  using Open = std::function<Result<std::unique_ptr<StateStore>>()>;
  /// `why`: the error of the last attempt to open it.
  LateState(Open open, Status why, std::chrono::milliseconds pause_first = std::chrono::seconds(1));

  Status put_file(const FileRecord& file) override;
  Result<std::optional<FileRecord>> file(const std::string& id) override;
  Result<std::vector<FileRecord>> files(const ListQuery& query) override;
  Result<std::vector<FileRecord>> expired_files(int64_t now) override;
  Status remove_file(const std::string& id) override;
  Status add_batch(const BatchRecord& batch) override;
  Status change_batch(const BatchRecord& batch, BatchStatus from) override;
  Result<std::optional<BatchRecord>> batch(const std::string& id) override;
  Result<std::vector<BatchRecord>> batches(const ListQuery& query) override;
  Result<std::vector<BatchRecord>> unfinished() override;
  Result<std::vector<uint64_t>> count_batches() override;
  Status put_results(const std::string& batch, std::span<const LineResult> results) override;
  Result<std::vector<uint64_t>> lines_done(const std::string& batch) override;
  Result<std::vector<LineResult>> results(const std::string& batch, uint64_t after, int64_t limit) override;
  Status put_response(const ResponseRecord& response, const ResponseLimits& limits) override;
  Result<std::optional<ResponseRecord>> response(const std::string& id) override;
  Status remove_response(const std::string& id) override;
  Status put_blob(const std::string& name, std::span<const std::byte> bytes) override;
  Result<std::optional<std::vector<std::byte>>> blob(const std::string& name) override;
  Status finish(const BatchRecord& batch, BatchStatus from, std::span<const FileRecord> files) override;
  Result<bool> tidy() override { return state_ ? state_->tidy() : false; }
  Status has_room() override { return state_ ? state_->has_room() : why_; }

 private:
  using Clock = std::chrono::steady_clock;
  Result<StateStore*> there();

  const Open open_;
  Status why_;
  Clock::duration pause_;
  Clock::time_point try_at_;
  std::unique_ptr<StateStore> state_;
};

}  // namespace moestro::orchestrator
