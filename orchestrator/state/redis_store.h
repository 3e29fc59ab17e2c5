#pragma once
// The state in a Redis that several orchestrators share. Only the connection is kept here. While Redis is away calls
// fail; when it is back they work again. redis_scripts.h describes the data.

#include <memory>

#include "orchestrator/state/redis_link.h"
#include "orchestrator/state/redis_scripts.h"
#include "orchestrator/state/state_store.h"

namespace moestro::orchestrator {

struct RedisOptions {
  RedisPlace place;
  std::string host;  ///< of this process alone (host_name.h)
  std::chrono::milliseconds lease{15'000};
  RedisLink::Limits limits = {};
};

class RedisStore final : public StateStore, public SharedLines {
 public:
  /// Connects at the first call, so it can be created while Redis is away.
  explicit RedisStore(RedisOptions options);

  SharedLines* shared() override { return this; }
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
  Result<LineCounts> put_results(const std::string& batch, std::span<const LineResult> results) override;
  Result<std::vector<uint64_t>> lines_done(const std::string& batch) override;
  Result<std::vector<LineResult>> results(const std::string& batch, uint64_t after, int64_t limit) override;
  Status put_response(const ResponseRecord& response, const ResponseLimits& limits) override;
  Result<std::optional<ResponseRecord>> response(const std::string& id) override;
  Status remove_response(const std::string& id) override;
  Status put_blob(const std::string& name, std::span<const std::byte> bytes) override;
  Result<std::optional<std::vector<std::byte>>> blob(const std::string& name) override;
  Status has_room_for_files(const std::string& batch) override;
  Status finish(const BatchRecord& batch, BatchStatus from, std::span<const FileRecord> files) override;

  Result<std::vector<HeldName>> beat(const ServedVersion& served) override;
  int64_t lease_ms() const override { return options_.lease.count(); }
  Status leave() override;
  Result<bool> lead(const std::string& batch) override;
  Status offer(const std::string& batch, std::span<const QueuedLine> lines, bool anew) override;
  Result<std::vector<QueuedLine>> take(const std::string& batch, size_t most) override;
  Status give_back(const std::string& batch, std::span<const uint64_t> lines) override;
  Status hold_only(const std::string& batch, std::span<const uint64_t> lines) override;

 private:
  using Clock = std::chrono::steady_clock;
  Result<RedisReply> run(const redis::Script& script, std::span<const std::string> arguments);
  Result<bool> may_claim();
  std::vector<std::string> served_words(bool may_claim) const;
  Result<std::vector<std::string>> page(const std::string& all, const ListQuery& query);
  Result<std::vector<FileRecord>> files_of(std::span<const std::string> ids);
  Result<std::vector<BatchRecord>> batches_of(std::span<const std::string> ids);

  const RedisOptions options_;
  RedisLink link_;
  ServedVersion served_;  ///< as the last beat() said
  uint64_t claim_generation_ = 0;
  Clock::time_point claim_from_{};  ///< until then no orchestrator is considered dead, because none could renew its key
                                    ///< while Redis was away
};

}  // namespace moestro::orchestrator
