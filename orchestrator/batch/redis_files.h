#pragma once
// Files in the Redis that has the state, where every host reaches them. They are stored in pieces, so that no file is
// completely in this process's memory.

#include <memory>

#include "orchestrator/batch/file_store.h"
#include "orchestrator/state/redis_link.h"

namespace moestro::orchestrator {

class RedisFiles final : public FileStore {
 public:
  /// `host`: the same as the state's, which turns a part into a file when it stores the record. `part_life`: how long
  /// an abandoned part is kept.
  RedisFiles(RedisPlace place, std::string host, std::chrono::seconds part_life = std::chrono::hours(1),
             RedisLink::Limits limits = {});
  ~RedisFiles() override;

  Result<std::unique_ptr<PartFile>> create(const std::string& id) const override;
  Result<std::unique_ptr<FileBytes>> open(const std::string& id) const override;
  /// Removes parts only: the bytes of a file are removed with its record.
  void remove(const std::string& id) const override;
  bool keeps_strays() const override { return false; }
  void sweep(const std::function<bool(const std::string& id)>&) const override {}

  struct Shared;

 private:
  const std::shared_ptr<Shared> shared_;
};

}  // namespace moestro::orchestrator
