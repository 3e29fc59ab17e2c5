#include "services/cli/common/http_client.h"

#include <openssl/pem.h>
#include <sys/socket.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <cerrno>
#include <charconv>
#include <optional>

#include "common/tls/either_stream.h"

namespace moestro::cli {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using Tcp = asio::ip::tcp;

double seconds_of(std::string_view text) {
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  return error == std::errc{} && end == text.data() + text.size() && seconds > 0 && seconds < 3600 ? seconds
                                                                                                   : 0;
}

bool is_protocol_error(const beast::error_code& error) {
  // A peer that hangs up amid an answer is gone, not wrong.
  return error.category() == http::make_error_code(http::error::bad_version).category() &&
         error != http::error::end_of_stream && error != http::error::partial_message;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> request_headers(const Url& url, const std::string& api_key) {
  std::vector<std::pair<std::string, std::string>> headers{{"Host", url.authority()}, {"User-Agent", "moestro"}};
  if (!api_key.empty()) headers.emplace_back("Authorization", "Bearer " + api_key);
  return headers;
}

struct HttpClient::Impl {
  using Parser = http::response_parser<http::buffer_body>;

  Impl(Url u, HttpLimits l, HttpAccess a) : url(std::move(u)), limits(l), access(std::move(a)) {}

  Url url;
  HttpLimits limits;
  HttpAccess access;
  std::shared_ptr<tls::Context> context;  ///< made for the first connection of https
  asio::io_context io;
  std::optional<tls::EitherStream> stream;
  beast::flat_buffer buffer;

  // Beast's timeouts work on asynchronous operations only: each call starts one and runs the loop until it is
  // done.
  template <typename Start>
  beast::error_code wait_for(std::chrono::milliseconds limit, Start start) {
    beast::error_code result = asio::error::would_block;
    stream->expires_after(limit);
    start([&result](beast::error_code error, auto&&...) { result = error; });
    io.restart();
    io.run();
    return result;
  }

  Status failed(std::string_view doing, const beast::error_code& error) {
    stream.reset();
    const std::string message = url.origin() + ": " + std::string(doing) + ": " +
                                (error == beast::error::timeout ? "no answer in time" : error.message());
    return is_protocol_error(error) ? corrupt(message) : unavailable(message);
  }

  Status connect() {
    Tcp::resolver resolver(io);
    beast::error_code error;
    const auto endpoints = resolver.resolve(url.host, url.port, error);
    if (error) return unavailable("host '" + url.host + "': " + error.message());
    stream.emplace(beast::tcp_stream(io));
    buffer.clear();
    error = wait_for(limits.connect, [&](auto done) { stream->tcp().async_connect(endpoints, done); });
    if (error) return unavailable(failed("cannot connect", error).message() + "; " + access.not_there);
    stream->tcp().socket().set_option(Tcp::no_delay(true), error);
    return url.secure ? secure() : Status::ok();
  }

  Status make_context() {
    auto made = std::make_shared<tls::Context>(tls::Context::tls_client);
    SSL_CTX_set_min_proto_version(made->native_handle(), TLS1_2_VERSION);
    beast::error_code error;
    if (access.ca_file.empty())
      made->set_default_verify_paths(error);
    else
      made->load_verify_file(access.ca_file, error);
    if (error)
      return invalid_argument("--ca-file " + access.ca_file + ": no certificates in PEM form can be read from it");
    context = std::move(made);
    return Status::ok();
  }

  /// The handshake, and that the server is the one that was asked for.
  Status secure() {
    if (!context) MOESTRO_RETURN_IF_ERROR(make_context());
    stream->secure(context);
    SSL* ssl = stream->tls().native_handle();
    beast::error_code no_address;
    asio::ip::make_address(url.host, no_address);
    if (no_address) SSL_set_tlsext_host_name(ssl, url.host.c_str());
    const bool verify = access.verify && access.certificate.empty();
    if (verify) {
      X509_VERIFY_PARAM* wanted = SSL_get0_param(ssl);
      const bool set = no_address ? X509_VERIFY_PARAM_set1_host(wanted, url.host.data(), url.host.size()) == 1
                                  : X509_VERIFY_PARAM_set1_ip_asc(wanted, url.host.c_str()) == 1;
      if (!set) return invalid_argument("'" + url.host + "' cannot be looked for in a certificate");
      SSL_set_verify(ssl, SSL_VERIFY_PEER, nullptr);
    }
    const beast::error_code error = wait_for(
        limits.connect, [&](auto done) { stream->tls().async_handshake(asio::ssl::stream_base::client, done); });
    if (!error) return access.certificate.empty() ? Status::ok() : check_certificate(ssl);
    const long seen = verify ? SSL_get_verify_result(ssl) : X509_V_OK;
    if (seen == X509_V_OK)
      return unavailable(failed("no TLS", error).message() +
                         (error.category() == asio::error::get_ssl_category() ? "; does it speak https?" : ""));
    const std::string why = X509_verify_cert_error_string(seen);
    stream.reset();
    const bool other_name = seen == X509_V_ERR_HOSTNAME_MISMATCH || seen == X509_V_ERR_IP_ADDRESS_MISMATCH;
    return invalid_argument(
        url.origin() + ": the server's certificate is " + (other_name ? "for another name: " : "not trusted: ") + why +
        (other_name ? "; ask for it by the name that it has" : "; give the certificate to trust with --ca-file"));
  }

  /// Nothing has been said to the server yet, no key above all.
  Status check_certificate(SSL* ssl) {
    const std::unique_ptr<BIO, decltype(&BIO_free_all)> file(BIO_new_file(access.certificate.c_str(), "r"),
                                                             BIO_free_all);
    const std::unique_ptr<X509, decltype(&X509_free)> wanted(
        file ? PEM_read_bio_X509(file.get(), nullptr, nullptr, nullptr) : nullptr, X509_free);
    const std::unique_ptr<X509, decltype(&X509_free)> shown(SSL_get1_peer_certificate(ssl), X509_free);
    if (wanted && shown && X509_cmp(wanted.get(), shown.get()) == 0) return Status::ok();
    stream.reset();
    if (!wanted)
      return invalid_argument("no certificate in PEM form can be read from " + access.certificate +
                              ": give --url and --ca-file");
    return invalid_argument(url.origin() + ": the server does not show the certificate of " + access.certificate +
                            ": another program listens there, or the file was replaced just now");
  }

  http::request<http::string_body> make_request(http::verb verb, const std::string& path,
                                                std::string_view json) {
    http::request<http::string_body> request(verb, url.base + path, 11);
    for (const auto& [name, value] : request_headers(url, access.api_key)) request.set(name, value);
    request.set(http::field::accept, "*/*");
    if (verb == http::verb::post) request.set(http::field::content_type, "application/json");
    request.body() = std::string(json);
    request.prepare_payload();
    return request;
  }

  /// Whether the kept connection was closed by the server, as an idle one may be: then there is an end (or
  /// rubbish) to read before we ask.
  bool is_stale() {
    char byte = 0;
    const ssize_t n = ::recv(stream->tcp().socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
  }

  Result<HttpReply> request(http::verb verb, const std::string& path, std::string_view json,
                            const OnBody* on_body) {
    const auto message = make_request(verb, path, json);
    if (stream && is_stale()) stream.reset();
    if (!stream) MOESTRO_RETURN_IF_ERROR(connect());
    Parser parser;
    if (on_body != nullptr)
      parser.body_limit(boost::none);  // it goes on in pieces
    else
      parser.body_limit(limits.body_bytes_max);
    beast::error_code error =
        wait_for(limits.silence, [&](auto done) { http::async_write(*stream, message, done); });
    if (!error)
      error = wait_for(limits.silence,
                       [&](auto done) { http::async_read_header(*stream, buffer, parser, done); });
    if (error) return failed("no answer", error);
    return read_reply(parser, on_body);
  }

  /// Whether something was said to what has not been sent to its end. In TLS that cannot be seen from outside; there
  /// writing fails in the end.
  bool has_answered() { return !stream->secured() && is_stale(); }

  /// The head, then the pieces; a server that has had enough answers before the end.
  Result<HttpReply> upload(const std::string& path, const std::string& content_type, uint64_t bytes,
                           const NextPiece& next) {
    http::request<http::empty_body> message(http::verb::post, url.base + path, 11);
    for (const auto& [name, value] : request_headers(url, access.api_key)) message.set(name, value);
    message.set(http::field::content_type, content_type);
    message.content_length(bytes);
    stream.reset();
    MOESTRO_RETURN_IF_ERROR(connect());
    http::request_serializer<http::empty_body> head(message);
    beast::error_code error =
        wait_for(limits.silence, [&](auto done) { http::async_write_header(*stream, head, done); });
    if (error) return failed("no answer", error);
    for (uint64_t sent = 0; sent < bytes && !has_answered();) {
      auto piece = next();
      if (!piece.is_ok()) return stream.reset(), piece.status();
      if (piece->empty()) return stream.reset(), io_error("the file became shorter while it was read");
      sent += piece->size();
      error = wait_for(limits.silence, [&](auto done) { asio::async_write(*stream, asio::buffer(*piece), done); });
      if (error) break;  // it may have answered
    }
    Parser parser;
    parser.body_limit(limits.body_bytes_max);
    error = wait_for(limits.silence, [&](auto done) { http::async_read_header(*stream, buffer, parser, done); });
    if (error) return failed("no answer", error);
    return read_reply(parser, nullptr);
  }

  Result<HttpReply> read_reply(Parser& parser, const OnBody* on_body) {
    HttpReply reply;
    const auto& head = parser.get();
    reply.status = static_cast<int>(head.result_int());
    const auto id = head["x-request-id"];
    reply.request_id.assign(id.data(), id.size());
    const auto after = head[http::field::retry_after];
    reply.retry_after_s = seconds_of({after.data(), after.size()});
    const bool streamed = on_body != nullptr && reply.status == 200;
    char chunk[16384];
    while (!parser.is_done()) {
      parser.get().body().data = chunk;
      parser.get().body().size = sizeof chunk;
      beast::error_code error =
          wait_for(limits.silence, [&](auto done) { http::async_read_some(*stream, buffer, parser, done); });
      const std::string_view piece(chunk, sizeof chunk - parser.get().body().size);
      if (error && error != http::error::need_buffer) return failed("the answer broke off", error);
      if (!streamed) {
        reply.body += piece;
      } else if (!piece.empty()) {
        const Status status = (*on_body)(piece);
        if (!status.is_ok()) return stream.reset(), status;
      }
    }
    if (!parser.keep_alive()) stream.reset();
    return reply;
  }
};

HttpClient::HttpClient(Url url, HttpLimits limits, HttpAccess access)
    : impl_(std::make_unique<Impl>(std::move(url), limits, std::move(access))) {}
HttpClient::HttpClient(HttpClient&&) noexcept = default;
HttpClient& HttpClient::operator=(HttpClient&&) noexcept = default;
HttpClient::~HttpClient() = default;

Result<HttpReply> HttpClient::get(const std::string& path) {
  return impl_->request(http::verb::get, path, {}, nullptr);
}
Result<HttpReply> HttpClient::post(const std::string& path, std::string_view json) {
  return impl_->request(http::verb::post, path, json, nullptr);
}
Result<HttpReply> HttpClient::remove(const std::string& path) {
  return impl_->request(http::verb::delete_, path, {}, nullptr);
}
Result<HttpReply> HttpClient::upload(const std::string& path, const std::string& content_type, uint64_t bytes,
                                     const NextPiece& next) {
  return impl_->upload(path, content_type, bytes, next);
}
Result<HttpReply> HttpClient::get_stream(const std::string& path, const OnBody& on_body) {
  return impl_->request(http::verb::get, path, {}, &on_body);
}
Result<HttpReply> HttpClient::post_stream(const std::string& path, std::string_view json,
                                          const OnBody& on_body) {
  return impl_->request(http::verb::post, path, json, &on_body);
}

}  // namespace moestro::cli
