#include "orchestrator/state/redis_migrations.h"

#include <array>
#include <charconv>

namespace moestro::orchestrator {
namespace {

/// What each step does to the keys of the version before it; each runs once, whole. Steps are only ever added at the
/// end: those before have been done to keys that exist. Version 1 needed none.
constexpr std::array<std::string_view, 2> kRedisSteps{
    // 2: files and batches have owners; those from before are nobody's.
    R"lua(
local function give_sets(all, hash)
  local ids = redis.call('ZRANGE', all, 0, -1, 'WITHSCORES')
  for i = 1, #ids, 2 do
    local owner, purpose = unpack(redis.call('HMGET', hash .. ids[i], 'owner', 'purpose'))
    redis.call('ZADD', all .. ':of:' .. (owner or ''), ids[i + 1], ids[i])
    if purpose then redis.call('ZADD', all .. ':' .. purpose .. ':of:' .. (owner or ''), ids[i + 1], ids[i]) end
  end
end
give_sets('moestro:files', 'moestro:file:')
give_sets('moestro:batches', 'moestro:batch:')
)lua",
    // 3: names belong to versions. An orchestrator from before would take their lines with whatever it serves.
    ""};

/// ARGV[1]: the version before the step.
constexpr std::string_view kOnlyFrom = "if redis.call('GET', 'moestro:version') ~= ARGV[1] then return 0 end\n";
constexpr std::string_view kCounted = "\nredis.call('SET', 'moestro:version', ARGV[1] + 1)\nreturn 1\n";

}  // namespace

int64_t redis_version() {
  return kRedisSteps.size() + 1;
}

Result<int64_t> migrate(const RedisSay& say) {
  while (true) {
    MOESTRO_ASSIGN_OR_RETURN(const RedisReply reply, say({"GET", "moestro:version"}));
    if (reply->is_nil()) {  // only then: a Redis whose memory is full refuses to set what is there
      MOESTRO_RETURN_IF_ERROR(say({"SET", "moestro:version", "1", "NX"}).status());
      continue;
    }
    const std::string text(reply->text());
    int64_t version = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), version);
    if (error != std::errc() || end != text.data() + text.size() || version < 1)
      return corrupt("moestro:version is '" + text + "'");
    if (version >= redis_version()) return version;
    const std::string_view step = kRedisSteps[static_cast<size_t>(version - 1)];
    const std::string script = std::string(kOnlyFrom).append(step).append(kCounted);
    MOESTRO_RETURN_IF_ERROR(say({"EVAL", script, "0", text}).status());
  }
}

}  // namespace moestro::orchestrator
