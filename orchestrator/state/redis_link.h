#pragma once
// One connection to a Redis that was checked to be safe for batches. It reconnects when the connection is lost. One
// thread at a time.

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "orchestrator/state/redis_place.h"

struct redisContext;
struct redisReply;

namespace moestro::orchestrator {

/// A part of an answer, valid as long as the answer. A missing value, or one of another type, reads as empty, 0 or
/// nullopt.
class RedisValue {
 public:
  explicit RedisValue(const redisReply* reply) : reply_(reply) {}
  bool is_nil() const;
  int64_t integer() const;
  std::string_view text() const;
  size_t size() const;
  RedisValue operator[](size_t i) const;

 private:
  const redisReply* reply_;
};

class RedisReply {
 public:
  explicit RedisReply(redisReply* reply) : reply_(reply) {}
  RedisReply(RedisReply&& other) noexcept : reply_(std::exchange(other.reply_, nullptr)) {}
  RedisReply& operator=(RedisReply&&) = delete;
  ~RedisReply();
  RedisValue value() const { return RedisValue(reply_); }
  const RedisValue* operator->() const { return &(view_ = value()); }
  RedisValue operator[](size_t i) const { return value()[i]; }

 private:
  redisReply* reply_;
  mutable RedisValue view_{nullptr};
};

class RedisLink {
 public:
  using Words = std::vector<std::string_view>;
  struct Limits {
    /// `connect` is for the first answers too: the kernel takes connections for a Redis that hangs.
    std::chrono::milliseconds connect{1000}, answer{5000};
    std::chrono::milliseconds pause{500};  ///< before the next attempt to connect; until then calls fail at once
  };
  explicit RedisLink(RedisPlace place, Limits limits);
  ~RedisLink();
  RedisLink(const RedisLink&) = delete;
  RedisLink& operator=(const RedisLink&) = delete;

  /// Errors: kUnavailable: Redis is away, or not safe for batches (the message says which), and it is unknown whether
  /// the command was done. kExhausted: its memory is full. kConflict, kNotFound: from a script of Moestro. kIo: other
  /// errors of Redis.
  Result<RedisReply> call(const Words& words);
  /// Many commands at once. Returns the first error after all have been done.
  Result<std::vector<RedisReply>> calls(std::span<const Words> commands);
  /// Connects if there is no connection. Increases with each new one.
  Result<uint64_t> generation();
  const RedisPlace& place() const { return place_; }

 private:
  using Clock = std::chrono::steady_clock;
  bool closed() const;
  Status connect();
  Status prepare();
  Status send(const Words& words);
  Result<RedisReply> receive();
  Status lost(const std::string& what);
  void drop();

  const RedisPlace place_;
  const Limits limits_;
  redisContext* context_ = nullptr;
  bool prepared_ = false;
  uint64_t generation_ = 0;
  Clock::time_point away_until_{};
  Status away_;  ///< the reason while there is no connection
};

}  // namespace moestro::orchestrator
