#pragma once
// Files in the Redis that has the state: every host reaches them there. In pieces, so that none is held in memory whole
// here.

#include <memory>

#include "orchestrator/batch/file_store.h"
#include "orchestrator/state/redis_link.h"

namespace moestro::orchestrator {

class RedisFiles final : public FileStore {
 public:
  /// `host`: as the state's, which makes a part into a file when it gets the record. `part_life`: how long a part that
  /// nobody goes on with is kept.
  RedisFiles(RedisPlace place, std::string host, std::chrono::seconds part_life = std::chrono::hours(1),
             RedisLink::Limits limits = {});
  ~RedisFiles() override;

  Result<std::unique_ptr<PartFile>> create(const std::string& id) const override;
  Result<std::unique_ptr<FileBytes>> open(const std::string& id) const override;
  /// Of parts: the bytes of a file go with its record.
  void remove(const std::string& id) const override;
  bool keeps_strays() const override { return false; }
  void sweep(const std::function<bool(const std::string& id)>&) const override {}

  struct Shared;

 private:
  const std::shared_ptr<Shared> shared_;
};

}  // namespace moestro::orchestrator
