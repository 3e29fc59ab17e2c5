#include "common/config/host_port.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moestro::config {
namespace {

TEST(HostPort, NamesAndAddresses) {
  EXPECT_EQ(parse_host_port("0.0.0.0:0")->port, "0");
  EXPECT_EQ(parse_host_port("[::]:8080")->host, "::");
  EXPECT_EQ(parse_host_port("[::1]:8080")->text(), "[::1]:8080");
  EXPECT_EQ(parse_host_port("box:80")->text(), "box:80");
  for (const char* text : {"", "8080", ":8080", "h:", "h:-1", "h:65536", "h:80x", "::1:80"}) {
    const Result<HostPort> parsed = parse_host_port(text);
    ASSERT_FALSE(parsed.is_ok()) << text;
    EXPECT_THAT(parsed.status().message(), testing::HasSubstr("is not HOST:PORT"));
  }
}

TEST(HostPort, AServerThatListensOnEveryAddressIsFoundOnLoopback) {
  EXPECT_EQ(parse_listen_address("0.0.0.0:80")->host_for_local_clients(), "127.0.0.1");
  EXPECT_EQ(parse_listen_address("[::]:80")->host_for_local_clients(), "::1");
  EXPECT_EQ(parse_listen_address("10.0.0.1:80")->host_for_local_clients(), "10.0.0.1");
}

TEST(HostPort, AServerListensOnLoopbackWhereNoHostIsGiven) {
  EXPECT_EQ(parse_listen_address("8080")->text(), "127.0.0.1:8080");
  EXPECT_EQ(parse_listen_address(":0")->text(), "127.0.0.1:0");
  EXPECT_EQ(parse_listen_address("0.0.0.0:8080")->text(), "0.0.0.0:8080");
  EXPECT_EQ(parse_listen_address("[::1]:8080")->text(), "[::1]:8080");
  for (const char* text : {"", ":", "::", "80x", "65536", ":65536", "-1", "box", "::1"}) {
    const Result<HostPort> parsed = parse_listen_address(text);
    ASSERT_FALSE(parsed.is_ok()) << text;
    EXPECT_THAT(parsed.status().message(), testing::HasSubstr("is not HOST:PORT"));
  }
}

}  // namespace
}  // namespace moestro::config
