#include "orchestrator/state/open_state.h"

#include <linux/magic.h>
#include <sys/vfs.h>

#include "orchestrator/state/redis_store.h"
#include "orchestrator/state/sqlite_store.h"

namespace moestro::orchestrator {

Result<StatePlace> state_place(const std::string& setting, const std::filesystem::path& run_dir) {
  constexpr std::string_view kSqlite = "sqlite:";
  const size_t scheme = setting.find("://");
  std::filesystem::path path = setting;
  if (is_redis_url(setting)) {
    MOESTRO_ASSIGN_OR_RETURN(auto redis, parse_redis_url(setting));
    return StatePlace{{}, {}, std::move(redis)};
  }
  if (setting == "default") {
    path = run_dir / "state" / "batches.db";
  } else if (setting.starts_with(kSqlite)) {
    path = setting.substr(kSqlite.size());
  } else if (scheme != std::string::npos) {
    return unsupported("orchestrator.state '" + setting +
                       "': state is kept in SQLite or in Redis; give sqlite:PATH or redis://HOST:PORT/DB");
  }
  if (path.empty() || !path.has_filename())
    return invalid_argument("orchestrator.state '" + setting +
                            "' names no file; give sqlite:PATH or redis://HOST:PORT/DB");
  path = std::filesystem::absolute(path).lexically_normal();
  return StatePlace{path, path.string() + ".files"};
}

Result<std::unique_ptr<StateStore>> open_state(const StatePlace& place, const std::string& host,
                                               std::chrono::milliseconds lease) {
  if (place.redis)
    return std::unique_ptr<StateStore>(std::make_unique<RedisStore>(RedisOptions{*place.redis, host, lease}));
  MOESTRO_ASSIGN_OR_RETURN(auto store, SqliteStore::open(place.database));
  return std::unique_ptr<StateStore>(std::move(store));
}

bool lies_in_memory(const std::filesystem::path& path) {
  struct statfs info {};
  return statfs(path.c_str(), &info) == 0 && (info.f_type == TMPFS_MAGIC || info.f_type == RAMFS_MAGIC);
}

}  // namespace moestro::orchestrator
