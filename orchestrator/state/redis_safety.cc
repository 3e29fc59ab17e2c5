#include "orchestrator/state/redis_safety.h"

#include <charconv>
#include <chrono>

namespace moestro::orchestrator {
namespace {

constexpr int kMajorLeast = 6,
              kMinorLeast = 2;  // streams whose groups can be asked by consumer, scripts that are kept by their effects

/// Hosts end batches and remove files when their own clocks say that the time has come.
constexpr std::chrono::seconds kClocksApartMost{300};

/// The value behind "KEY:" of INFO.
std::string line_of(std::string_view info, const std::string& key) {
  const std::string begin = "\n" + key + ":";
  const size_t at = info.find(begin);
  if (at == std::string_view::npos) return {};
  const size_t from = at + begin.size();
  return std::string(info.substr(from, info.find_first_of("\r\n", from) - from));
}

bool is_old(const std::string& version) {
  int major = 0, minor = 0;
  const char* end = version.data() + version.size();
  const auto [dot, error] = std::from_chars(version.data(), end, major);
  if (error != std::errc{} || dot == end) return true;
  std::from_chars(dot + 1, end, minor);
  return major < kMajorLeast || (major == kMajorLeast && minor < kMinorLeast);
}

struct Asked {
  const RedisPlace& place;
  const RedisSay& say;
  Status refuse(const std::string& why) const {
    return unavailable("batches cannot be kept in " + place.shown() + ": " + why);
  }
  Result<std::string> info(const char* section) const {
    MOESTRO_ASSIGN_OR_RETURN(const RedisReply reply, say({"INFO", section}));
    return std::string("\n") + std::string(reply->text());
  }
  Result<std::string> setting(const char* name) const {
    auto reply = say({"CONFIG", "GET", name});
    if (!reply.is_ok() && reply.status().code() == Code::kUnavailable &&
        reply.status().message().find("NOPERM") == std::string::npos)
      return reply.status();
    if (!reply.is_ok() || (*reply)->size() != 2)
      return refuse(std::string("it does not show its setting ") + name +
                    " (CONFIG GET), so what it keeps cannot be told");
    return std::string((*reply)[1].text());
  }
};

Status check_kind(const Asked& asked) {
  MOESTRO_ASSIGN_OR_RETURN(const std::string server, asked.info("server"));
  const std::string version = line_of(server, "redis_version");
  if (is_old(version)) return asked.refuse("it is version " + version + "; 6.2 is the least");
  MOESTRO_ASSIGN_OR_RETURN(const std::string cluster, asked.info("cluster"));  // its mode has other names in Valkey
  const std::string is_cluster = line_of(cluster, "cluster_enabled");
  if (is_cluster.empty()) return asked.refuse("it keeps no keys, as a sentinel; give the server that it watches");
  if (is_cluster != "0")
    return asked.refuse("it is a cluster, which cannot change several keys in one step; give one server for itself");
  MOESTRO_ASSIGN_OR_RETURN(const std::string replication, asked.info("replication"));
  if (line_of(replication, "role") != "master") return asked.refuse("it is a replica; give its master");
  return Status::ok();
}

Status check_durable(const Asked& asked) {
  MOESTRO_ASSIGN_OR_RETURN(const std::string append, asked.setting("appendonly"));
  if (append != "yes")
    return asked.refuse(
        "it has no append-only file, so a restart loses them; set `appendonly yes` and `appendfsync always`");
  MOESTRO_ASSIGN_OR_RETURN(const std::string sync, asked.setting("appendfsync"));
  const bool late = sync == "everysec" && asked.place.window_seconds > 0;
  if (sync == "everysec" && !late)
    return asked.refuse(
        "it syncs each second alone, so what was acknowledged in the last second or two can be lost; set `appendfsync "
        "always`, or say that this may be with ?window=2s");
  if (sync != "always" && !late)
    return asked.refuse("its appendfsync is '" + sync +
                        "', so what was acknowledged can be lost; set `appendfsync always`");
  MOESTRO_ASSIGN_OR_RETURN(const std::string pausing, asked.setting("no-appendfsync-on-rewrite"));
  if (pausing != "no")
    return asked.refuse("it does not sync while it rewrites its file; set `no-appendfsync-on-rewrite no`");
  MOESTRO_ASSIGN_OR_RETURN(const std::string eviction, asked.setting("maxmemory-policy"));
  if (eviction != "noeviction")
    return asked.refuse("it drops keys when its memory is full (" + eviction + "); set `maxmemory-policy noeviction`");
  return Status::ok();
}

Status check_clock(const Asked& asked) {
  MOESTRO_ASSIGN_OR_RETURN(const RedisReply time, asked.say({"TIME"}));
  const std::string_view text = time[0].text();
  int64_t theirs = 0;
  std::from_chars(text.data(), text.data() + text.size(), theirs);
  const auto ours = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now()).time_since_epoch();
  const auto ahead = ours - std::chrono::seconds(theirs);
  if (std::chrono::abs(ahead) <= kClocksApartMost) return Status::ok();
  return asked.refuse("the clock of this machine is " + std::to_string(std::chrono::abs(ahead).count()) + " s " +
                      (ahead.count() > 0 ? "ahead of" : "behind") +
                      " that of Redis, so batches and files would end at the wrong time; set both clocks");
}

}  // namespace

Status check_redis_safe(const RedisPlace& place, const RedisSay& say) {
  const Asked asked{place, say};
  MOESTRO_RETURN_IF_ERROR(check_kind(asked));
  MOESTRO_RETURN_IF_ERROR(check_durable(asked));
  MOESTRO_RETURN_IF_ERROR(check_clock(asked));
  MOESTRO_ASSIGN_OR_RETURN(const int64_t version, migrate(say));
  if (version == redis_version()) return Status::ok();
  return asked.refuse("its keys have version " + std::to_string(version) +
                      ", written by a later Moestro; this one knows " + std::to_string(redis_version()));
}

}  // namespace moestro::orchestrator
