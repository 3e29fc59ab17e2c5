// Addresses of Redis: what they say, and what is refused by name, without the password.

#include "orchestrator/state/redis_place.h"

#include <gmock/gmock.h>

#include "tests/cli/temp_dir.h"

namespace moestro::orchestrator {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(RedisPlaceTest, AllParts) {
  const auto place = parse_redis_url("redis://me:p%40ss%2Fw@[::1]:7000/5?window=3s");
  ASSERT_TRUE(place.is_ok()) << place.status().message();
  EXPECT_EQ(place->host, "::1");
  EXPECT_EQ(place->port, 7000);
  EXPECT_EQ(place->database, 5);
  EXPECT_EQ(place->user, "me");
  EXPECT_EQ(place->password, "p@ss/w");
  EXPECT_EQ(place->window_seconds, 3);
  EXPECT_EQ(place->shown(), "redis://[::1]:7000/5");
}

TEST(RedisPlaceTest, DefaultsAndAPasswordAlone) {
  const auto place = parse_redis_url("redis://:secret@queue.example");
  ASSERT_TRUE(place.is_ok()) << place.status().message();
  EXPECT_EQ(place->shown(), "redis://queue.example:6379/0");
  EXPECT_EQ(place->password, "secret");
  EXPECT_EQ(place->user, "");
  EXPECT_EQ(place->window_seconds, 0);
}

TEST(RedisPlaceTest, APasswordFromAFile) {
  const test::TempDir dir;
  test::write_file(dir / "password", "from a file\r\nand more");
  const auto place = parse_redis_url("redis://h?password_file=" + (dir / "password").string());
  ASSERT_TRUE(place.is_ok()) << place.status().message();
  EXPECT_EQ(place->password, "from a file");
  const Status missing = parse_redis_url("redis://h?password_file=" + (dir / "none").string()).status();
  EXPECT_EQ(missing.code(), Code::kInvalidArgument);
  EXPECT_THAT(missing.message(), HasSubstr("No such file or directory; the orchestrator's user must be able"));
  test::write_file(dir / "empty", "");
  EXPECT_THAT(parse_redis_url("redis://h?password_file=" + (dir / "empty").string()).status().message(),
              HasSubstr("has no first line"));
  EXPECT_EQ(parse_redis_url("redis://h?password_file=password").status().code(), Code::kInvalidArgument);
}

TEST(RedisPlaceTest, WhatIsWrongIsRefusedWithoutThePassword) {
  for (const char* url :
       {"redis://", "redis:///0", "redis://h:0", "redis://h:70000", "redis://h:x", "redis://h/x", "redis://h/-1",
        "redis://h?color=red", "redis://h?window=1s", "redis://h?window=2", "redis://user@h", "redis://u:secret%4@h",
        "redis://h?window=2s&window=3s", "redis://u:secret@h:port", "redis://[::1", "redis://[::1]x", "redis://a b",
        "redis://h?"
        "window=99999s"}) {
    const Status refused = parse_redis_url(url).status();
    EXPECT_EQ(refused.code(), Code::kInvalidArgument) << url;
    EXPECT_THAT(refused.message(), Not(HasSubstr("secret"))) << url;
  }
  EXPECT_EQ(parse_redis_url("rediss://h/0").status().code(), Code::kUnsupported);
  EXPECT_THAT(parse_redis_url("rediss://h/0").status().message(), HasSubstr("TLS"));
  EXPECT_TRUE(is_redis_url("rediss://h"));
  EXPECT_FALSE(is_redis_url("sqlite:redis"));
}

}  // namespace
}  // namespace moestro::orchestrator
