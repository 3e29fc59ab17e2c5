#include "services/cli/common/url.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moestro::cli {
namespace {

TEST(Url, HostPortAndBase) {
  const Result<Url> url = parse_url("http://127.0.0.1:8080");
  ASSERT_TRUE(url.is_ok());
  EXPECT_EQ(url->host, "127.0.0.1");
  EXPECT_EQ(url->port, "8080");
  EXPECT_EQ(url->base, "");
  EXPECT_EQ(parse_url("http://box/")->port, "80");
  EXPECT_EQ(parse_url("http://box:1/api/")->base, "/api");
  EXPECT_EQ(parse_url("http://[::1]:81/x")->host, "::1");
  EXPECT_EQ(parse_url("http://[::1]:81")->authority(), "[::1]:81");
  EXPECT_EQ(parse_url("http://[::1]")->port, "80");
}

TEST(Url, Secure) {
  const Result<Url> url = parse_url("https://box/api");
  ASSERT_TRUE(url.is_ok());
  EXPECT_TRUE(url->secure);
  EXPECT_EQ(url->port, "443");
  EXPECT_EQ(url->origin(), "https://box:443");
  EXPECT_EQ(parse_url("https://[::1]:8443")->authority(), "[::1]:8443");
  EXPECT_FALSE(parse_url("http://box")->secure);
  EXPECT_EQ(parse_url("http://box")->origin(), "http://box:80");
}

TEST(Url, WhatIsNoneIsRefusedByName) {
  for (const char* text : {"", "127.0.0.1:8080", "ftp://x", "http://", "http://:80", "http://a:b",
                           "http://a:70000", "http://u@h:1", "http://h:1/a?b", "http://h:1/a b",
                           "http://h\r\nX: y", "http://::1:80", "http://[::1", "https://", "https:/x", "HTTPS://x"}) {
    const Result<Url> url = parse_url(text);
    ASSERT_FALSE(url.is_ok()) << text;
    EXPECT_EQ(url.status().code(), Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace moestro::cli
