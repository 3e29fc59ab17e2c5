#include "common/net/zmq_socket.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <filesystem>

namespace moestro::net {
namespace {

using namespace std::chrono_literals;

class ZmqSocket : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/moestro-net-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    dir_ = name;
    endpoint_ = "ipc://" + dir_ + "/s";
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  static Bytes bytes(std::string_view text) {
    const auto* data = reinterpret_cast<const std::byte*>(text.data());
    return Bytes(data, data + text.size());
  }
  std::string dir_, endpoint_;
};

TEST_F(ZmqSocket, MessagesGoBothWays) {
  auto router = RouterSocket::bind(endpoint_).value();
  auto dealer = DealerSocket::connect(endpoint_).value();
  ASSERT_TRUE(dealer.send(bytes("hello")));
  ASSERT_TRUE(router.wait(5000ms).value());
  auto in = router.receive().value();
  ASSERT_TRUE(in.has_value());
  EXPECT_EQ(in->body, bytes("hello"));
  ASSERT_TRUE(router.send(in->peer, bytes("")));
  ASSERT_TRUE(dealer.wait(5000ms).value());
  EXPECT_EQ(dealer.receive().value(), bytes(""));
  EXPECT_EQ(dealer.receive().value(), std::nullopt);
}

TEST_F(ZmqSocket, AClientMayComeBeforeTheServer) {
  auto dealer = DealerSocket::connect(endpoint_).value();
  ASSERT_TRUE(dealer.send(bytes("early")));
  auto router = RouterSocket::bind(endpoint_).value();
  ASSERT_TRUE(router.wait(5000ms).value());
  EXPECT_EQ(router.receive().value()->body, bytes("early"));
}

TEST_F(ZmqSocket, AnUnknownPeerIsAnError) {
  auto router = RouterSocket::bind(endpoint_).value();
  EXPECT_EQ(router.send("nobody", bytes("x")).code(), Code::kUnavailable);
}

TEST_F(ZmqSocket, AWakeFdEndsTheWait) {
  auto router = RouterSocket::bind(endpoint_).value();
  const int fd = eventfd(1, EFD_CLOEXEC);
  EXPECT_TRUE(router.wait(5000ms, fd).value());
  EXPECT_EQ(router.receive().value().has_value(), false);
  close(fd);
  EXPECT_FALSE(router.wait(1ms).value());
}

TEST_F(ZmqSocket, BadEndpointsAreRefusedByName) {
  EXPECT_EQ(DealerSocket::connect("http://x").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(DealerSocket::connect("ipc://").status().code(), Code::kInvalidArgument);
  const auto too_long = DealerSocket::connect("ipc:///" + std::string(200, 'a')).status();
  EXPECT_NE(too_long.message().find("shorter run directory"), std::string::npos);
  EXPECT_EQ(RouterSocket::bind("ipc:///no/such/dir/s").status().code(), Code::kUnavailable);
  auto first = RouterSocket::bind(endpoint_).value();
  EXPECT_EQ(RouterSocket::bind("tcp://256.0.0.1:1").status().code(), Code::kUnavailable);
}

}  // namespace
}  // namespace moestro::net
