#include "tests/state/state_backends.h"

#include "orchestrator/batch/folder_files.h"
#include "orchestrator/batch/redis_files.h"
#include "orchestrator/state/redis_store.h"
#include "orchestrator/state/sqlite_store.h"

namespace moestro::test {

using namespace orchestrator;

StateBox::StateBox(Backend backend) {
  if (backend == Backend::kRedis) redis_.emplace();
}

StateBox::Opened StateBox::open() {
  if (!redis_) {
    auto state = SqliteStore::open(database());
    MOESTRO_CHECK(state.is_ok(), state.status().message());
    auto files = FolderFiles::open_folder(database().string() + ".files");
    MOESTRO_CHECK(files.is_ok(), files.status().message());
    return {std::move(*state), std::move(*files)};
  }
  const auto place = parse_redis_url(redis_->url());
  MOESTRO_CHECK(place.is_ok(), place.status().message());
  host_ = new_id("host-");
  RedisOptions options{*place, host_, lease_};
  options.limits.pause = std::chrono::milliseconds(5);
  return {std::make_unique<RedisStore>(options),
          std::make_unique<RedisFiles>(*place, options.host, std::chrono::hours(1), options.limits)};
}

}  // namespace moestro::test
