#include "orchestrator/state/redis_link.h"

#include <hiredis/hiredis.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>

#include "orchestrator/state/conflict.h"
#include "orchestrator/state/redis_safety.h"

namespace moestro::orchestrator {
namespace {

timeval of(std::chrono::milliseconds t) { return {t.count() / 1000, (t.count() % 1000) * 1000}; }

/// What an error of Redis means here.
Status meaning(std::string_view error, const std::string& where) {
  // Redis 6 puts a command's error behind words of its own: "ERR Error running script ...: -OOM command not allowed".
  if (const size_t at = error.rfind(": -"); error.starts_with("ERR Error running script") && at != error.npos)
    error.remove_prefix(at + 3);
  const std::string_view word = error.substr(0, error.find(' '));
  const std::string rest(error.size() > word.size() ? error.substr(word.size() + 1) : error);
  // The first words that our own scripts give their errors.
  if (word == "CONFLICT") return conflict(rest);
  if (word == "ABSENT") return not_found(rest);
  if (word == "OOM")
    return exhausted("the memory of " + where +
                     " is full (maxmemory); give it more, delete files there, or cancel batches with --drop-results");
  for (const std::string_view passing : {"LOADING", "BUSY", "MISCONF", "READONLY", "MASTERDOWN", "NOREPLICAS", "NOAUTH",
                                         "WRONGPASS", "NOPERM", "TRYAGAIN"})
    if (word == passing) return unavailable(where + " cannot take batches now: " + std::string(error));
  return io_error(where + ": " + std::string(error));
}

}  // namespace

bool RedisValue::is_nil() const { return reply_ == nullptr || reply_->type == REDIS_REPLY_NIL; }
int64_t RedisValue::integer() const {
  return reply_ != nullptr && reply_->type == REDIS_REPLY_INTEGER ? reply_->integer : 0;
}
std::string_view RedisValue::text() const {
  const bool is_text = reply_ != nullptr && (reply_->type == REDIS_REPLY_STRING || reply_->type == REDIS_REPLY_STATUS ||
                                             reply_->type == REDIS_REPLY_ERROR);
  return is_text ? std::string_view(reply_->str, reply_->len) : std::string_view();
}
size_t RedisValue::size() const {
  return reply_ != nullptr && reply_->type == REDIS_REPLY_ARRAY ? reply_->elements : 0;
}
RedisValue RedisValue::operator[](size_t i) const { return RedisValue(i < size() ? reply_->element[i] : nullptr); }

RedisReply::~RedisReply() {
  if (reply_ != nullptr) freeReplyObject(reply_);
}

RedisLink::RedisLink(RedisPlace place, Limits limits) : place_(std::move(place)), limits_(limits) {}
RedisLink::~RedisLink() { drop(); }

void RedisLink::drop() {
  if (context_ != nullptr) redisFree(std::exchange(context_, nullptr));
  prepared_ = false;
}

Status RedisLink::lost(const std::string& what) {
  drop();
  away_ = unavailable(place_.shown() + " is away: " + what);
  away_until_ = Clock::now() + limits_.pause;
  return away_;
}

/// Closed by Redis while nobody used it, by a restart or its `timeout`: a command would fail, though Redis is there.
bool RedisLink::closed() const {
  char byte = 0;  // no answer is awaited: if there is one, it is not ours
  const ssize_t n = ::recv(context_->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

Status RedisLink::connect() {
  if (prepared_ && !closed()) return Status::ok();
  drop();
  if (Clock::now() < away_until_) return away_;
  context_ = redisConnectWithTimeout(place_.host.c_str(), place_.port, of(limits_.connect));
  if (context_ == nullptr) return lost("no memory for a connection");
  if (context_->err != 0) return lost(context_->errstr);
  redisSetTimeout(context_, of(limits_.connect));
  redisEnableKeepAlive(context_);
  if (const Status ready = prepare(); !ready.is_ok()) {
    if (context_ == nullptr) return ready;  // lost again meanwhile
    drop();
    away_ = ready.code() == Code::kUnavailable ? ready : unavailable(ready.message());
    away_until_ = Clock::now() + limits_.pause;
    return away_;
  }
  prepared_ = true;
  ++generation_;
  return Status::ok();
}

/// Its settings are looked at with each connection: it may have been started anew with others.
Status RedisLink::prepare() {
  const auto say = [this](const Words& words) -> Result<RedisReply> {
    MOESTRO_RETURN_IF_ERROR(send(words));
    return receive();
  };
  if (!place_.password.empty()) {
    Words login{"AUTH"};
    if (!place_.user.empty()) login.push_back(place_.user);
    login.push_back(place_.password);
    MOESTRO_RETURN_IF_ERROR(say(login).status());
  }
  const std::string database = std::to_string(place_.database);
  MOESTRO_RETURN_IF_ERROR(say({"SELECT", database}).status());
  redisSetTimeout(context_, of(limits_.answer));
  return check_redis_safe(place_, say);
}

Status RedisLink::send(const Words& words) {
  std::vector<const char*> texts;
  std::vector<size_t> lengths;
  for (const std::string_view word : words) {
    texts.push_back(word.data() == nullptr ? "" : word.data());
    lengths.push_back(word.size());
  }
  const int added = redisAppendCommandArgv(context_, static_cast<int>(words.size()), texts.data(), lengths.data());
  return added == REDIS_OK ? Status::ok() : lost("no memory for a command");
}

Result<RedisReply> RedisLink::receive() {
  void* reply = nullptr;
  if (redisGetReply(context_, &reply) != REDIS_OK)
    return lost(context_->err == REDIS_ERR_IO && errno == EAGAIN ? "it does not answer" : context_->errstr);
  RedisReply owned(static_cast<redisReply*>(reply));
  if (static_cast<redisReply*>(reply)->type != REDIS_REPLY_ERROR) return owned;
  const Status problem = meaning(owned->text(), place_.shown());
  // It has become a replica. There may be another master at this address by now; if not, the next call is told so.
  if (owned->text().find("READONLY ") != std::string_view::npos) drop();
  return problem;
}

Result<uint64_t> RedisLink::generation() {
  MOESTRO_RETURN_IF_ERROR(connect());
  return generation_;
}

Result<RedisReply> RedisLink::call(const Words& words) {
  MOESTRO_RETURN_IF_ERROR(connect());
  MOESTRO_RETURN_IF_ERROR(send(words));
  return receive();
}

Result<std::vector<RedisReply>> RedisLink::calls(std::span<const Words> commands) {
  MOESTRO_RETURN_IF_ERROR(connect());
  for (const Words& words : commands) MOESTRO_RETURN_IF_ERROR(send(words));
  std::vector<RedisReply> replies;
  Status problem;
  for (size_t i = 0; i < commands.size(); ++i) {
    auto reply = receive();
    if (context_ == nullptr) return reply.status();  // no more answers will come
    if (reply.is_ok()) replies.push_back(std::move(*reply));
    else if (problem.is_ok()) problem = reply.status();
  }
  MOESTRO_RETURN_IF_ERROR(problem);
  return replies;
}

}  // namespace moestro::orchestrator
