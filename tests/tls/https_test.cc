// The server and the CLI's client over TLS.

#include <gmock/gmock.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "services/cli/common/http_client.h"
#include "tests/cli/temp_dir.h"
#include "tests/orchestrator/http_server_fixture.h"
#include "tests/tls/test_identity.h"

namespace moestro::orchestrator {
namespace {

using namespace testing;
using cli::HttpAccess;
using cli::HttpClient;
using ::testing::HasSubstr;

struct Pattern final : BodySource {
  uint64_t bytes() const override { return 3'000'000; }
  void next(std::function<void(std::string)> ready) override { ready(std::string(100'000, 'p')); }
};

class HttpsTest : public HttpServerTest {
 protected:
  void serve_tls(Handler handler, HttpOptions options = {}) {
    test::make_identity(dir_.path(), "own");
    options.tls = TlsFiles{dir_ / "own.crt", dir_ / "own.key"};
    serve(options, std::move(handler));
  }
  HttpClient client(HttpAccess access, const std::string& host = "127.0.0.1") const {
    return HttpClient(*cli::parse_url("https://" + host + ":" + std::to_string(server_->port())), {},
                      std::move(access));
  }
  HttpAccess trusting() const { return {.ca_file = dir_ / "own.crt"}; }
  test::TempDir dir_;
};

void echo(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  exchange->respond(200, "text/plain",
                    request.method + " " + request.path + " " + request.authorization + " " + request.body, {});
}

TEST_F(HttpsTest, AnswersRequestsOfOneConnection) {
  serve_tls(echo);
  HttpAccess access = trusting();
  access.api_key = "k";
  HttpClient c = client(access);
  for (int i = 0; i < 3; ++i) {
    const auto reply = c.post("/x" + std::to_string(i), std::string(100'000, 'b'));
    ASSERT_TRUE(reply.is_ok()) << reply.status().message();
    EXPECT_EQ(reply->body, "POST /x" + std::to_string(i) + " Bearer k " + std::string(100'000, 'b'));
  }
}

TEST_F(HttpsTest, AClientForWhomThereIsNoPlaceIsToldSo) {
  std::promise<std::shared_ptr<Exchange>> held;
  serve_tls([&](const HttpRequest&, std::shared_ptr<Exchange> exchange) { held.set_value(std::move(exchange)); },
            {.connections_max = 1});
  std::thread first([this] { EXPECT_EQ(client(trusting()).get("/first")->status, 200); });
  const auto exchange = held.get_future().get();
  const auto refused = client(trusting()).get("/second");
  ASSERT_TRUE(refused.is_ok()) << refused.status().message();
  EXPECT_EQ(refused->status, 503) << "the first is being answered, and there may be one";
  server_->post([exchange] { exchange->respond(200, "text/plain", "", {}); });
  first.join();
}

TEST_F(HttpsTest, StreamsAndLargeAnswers) {
  serve_tls([](const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
    if (request.path == "/large") return exchange->respond_from("a/b", std::make_shared<Pattern>());
    exchange->begin_stream();
    for (int i = 0; i < 100; ++i) exchange->write("data: " + std::to_string(i) + "\n\n");
    exchange->end_stream();
  });
  HttpClient c = client(trusting(), "localhost");
  std::string heard;
  const auto keep = [&](std::string_view piece) { return heard += piece, Status::ok(); };
  ASSERT_TRUE(c.post_stream("/s", "{}", keep).is_ok());
  EXPECT_TRUE(heard.starts_with("data: 0\n\n") && heard.ends_with("data: 99\n\n")) << heard;
  EXPECT_EQ(c.get("/large")->body, std::string(3'000'000, 'p'));
}

TEST_F(HttpsTest, UploadsGoIntoTheirSink) {
  struct Sink final : BodySink {
    void take(std::string piece, std::function<void(bool)> taken) override { bytes += piece.size(), taken(true); }
    uint64_t bytes = 0;
  };
  serve_tls(
      [](const HttpRequest& r, const std::shared_ptr<Exchange>& e) {
        e->respond(200, "text/plain", std::to_string(static_cast<const Sink&>(*r.sink).bytes));
      },
      {.upload_bytes_max = 8 << 20});
  server_->post([this] {
    server_->take_uploads([](const HttpRequest&, const std::string&) { return std::make_shared<Sink>(); });
  });
  HttpClient c = client(trusting());
  const auto reply =
      c.upload("/up", "x/y", 5'000'000, []() -> Result<std::string> { return std::string(500'000, 'u'); });
  ASSERT_TRUE(reply.is_ok()) << reply.status().message();
  EXPECT_EQ(reply->body, "5000000");
}

TEST_F(HttpsTest, NoticesAClientThatLeaves) {
  std::promise<void> gone;
  std::shared_ptr<Exchange> kept;
  serve_tls([&](const HttpRequest&, std::shared_ptr<Exchange> exchange) {
    exchange->on_gone([&] { gone.set_value(); });
    exchange->begin_stream();
    exchange->write("first");
    kept = std::move(exchange);
  });
  HttpClient c = client(trusting());
  EXPECT_FALSE(c.post_stream("/", "", [](std::string_view) { return cancelled("enough"); }).is_ok());
  EXPECT_EQ(gone.get_future().wait_for(kPatience), std::future_status::ready);
}

TEST_F(HttpsTest, ACertificateThatIsNotTrustedOrOfAnotherNameIsRefused) {
  serve_tls(echo);
  EXPECT_THAT(client({}).get("/").status().message(), AllOf(HasSubstr("not trusted"), HasSubstr("--ca-file")));
  test::make_identity(dir_.path(), "other");
  EXPECT_THAT(client({.ca_file = dir_ / "other.crt"}).get("/").status().message(), HasSubstr("not trusted"));
  EXPECT_THAT(client({.ca_file = dir_ / "missing"}).get("/").status().message(), HasSubstr("--ca-file"));
  EXPECT_TRUE(client({.verify = false}).get("/").is_ok());
  end();
  test::make_identity(dir_.path(), "far", {.name = "far.example", .loopback = false});
  serve({.tls = TlsFiles{dir_ / "far.crt", dir_ / "far.key"}}, echo);
  for (const char* host : {"127.0.0.1", "localhost"})
    EXPECT_THAT(client({.ca_file = dir_ / "far.crt"}, host).get("/").status().message(), HasSubstr("for another name"))
        << host;
  end();
  test::make_identity(dir_.path(), "over", {.days = -1});
  serve({.tls = TlsFiles{dir_ / "over.crt", dir_ / "over.key"}}, echo);
  EXPECT_THAT(client({.ca_file = dir_ / "over.crt"}).get("/").status().message(), HasSubstr("expired"));
}

TEST_F(HttpsTest, TheVeryCertificateIsEnoughWhateverItIsFor) {
  test::make_identity(dir_.path(), "own");
  test::make_identity(dir_.path(), "far", {.name = "far.example", .loopback = false});
  serve({.tls = TlsFiles{dir_ / "far.crt", dir_ / "far.key"}}, echo);
  EXPECT_TRUE(client({.certificate = dir_ / "far.crt"}).get("/").is_ok());
  EXPECT_THAT(client({.certificate = dir_ / "own.crt"}).get("/").status().message(),
              HasSubstr("does not show the certificate of"));
  EXPECT_THAT(client({.certificate = dir_ / "missing"}).get("/").status().message(),
              HasSubstr("no certificate in PEM form can be read"));
}

TEST_F(HttpsTest, PlainHttpIsToldWhereItIs) {
  serve_tls(echo);
  const std::string answer = ask(kGet);
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 400 ")) << answer;
  EXPECT_THAT(answer, HasSubstr("https"));
  end();
  serve({}, echo);
  EXPECT_THAT(client({}).get("/").status().message(), HasSubstr("does it speak https"));
}

TEST_F(HttpsTest, AHandshakeThatDoesNotComeToAnEndIsGivenUp) {
  serve_tls(echo, {.request_timeout = std::chrono::seconds(1)});
  for (const std::string& begun :
       {std::string(), std::string("\x16"), std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11)})
    EXPECT_EQ(ask(begun), "");
  EXPECT_TRUE(client(trusting()).get("/").is_ok());
}

/// What a client that speaks no newer TLS than `newest` hears: empty if it is let in.
std::string handshake(uint16_t port, int newest) {
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  SSL_CTX_set_security_level(context.get(), 0);
  SSL_CTX_set_min_proto_version(context.get(), TLS1_VERSION);
  SSL_CTX_set_max_proto_version(context.get(), newest);
  const std::unique_ptr<BIO, decltype(&BIO_free_all)> bio(BIO_new_ssl_connect(context.get()), BIO_free_all);
  BIO_set_conn_hostname(bio.get(), ("127.0.0.1:" + std::to_string(port)).c_str());
  ERR_clear_error();
  if (BIO_do_connect(bio.get()) == 1) return "";
  const char* reason = ERR_reason_error_string(ERR_peek_last_error());
  return reason != nullptr ? reason : "it failed";
}

TEST_F(HttpsTest, OldVersionsAreRefused) {
  serve_tls(echo);
  EXPECT_EQ(handshake(server_->port(), TLS1_3_VERSION), "");
  EXPECT_EQ(handshake(server_->port(), TLS1_2_VERSION), "");
  EXPECT_THAT(handshake(server_->port(), TLS1_1_VERSION), HasSubstr("protocol version"));
}

}  // namespace
}  // namespace moestro::orchestrator
