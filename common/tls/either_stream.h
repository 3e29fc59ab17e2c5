#pragma once
// A TCP stream that speaks TLS or does not: Boost.Beast and Boost.Asio read and write it as any other. One thread.

#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <memory>
#include <optional>
#include <utility>

namespace moestro::tls {

using Context = boost::asio::ssl::context;

class EitherStream {
 public:
  using executor_type = boost::beast::tcp_stream::executor_type;
  using Secured = boost::asio::ssl::stream<boost::beast::tcp_stream&>;

  explicit EitherStream(boost::beast::tcp_stream tcp) : tcp_(std::move(tcp)) {}
  EitherStream(const EitherStream&) = delete;
  EitherStream& operator=(const EitherStream&) = delete;

  /// From now on what is read and written goes through TLS; the handshake is to be made on tls(). The connection keeps the context.
  void secure(std::shared_ptr<Context> context) {
    context_ = std::move(context);
    tls_.emplace(tcp_, *context_);
  }
  /// Back to plain TCP: nothing was said in TLS yet.
  void unsecure() { tls_.reset(); }
  bool secured() const { return tls_.has_value(); }
  Secured& tls() { return *tls_; }
  boost::beast::tcp_stream& tcp() { return tcp_; }

  executor_type get_executor() noexcept { return tcp_.get_executor(); }
  /// Bounds each operation that begins from now on; one that takes longer closes the socket. An operation under way keeps its bound.
  template <typename Duration>
  void expires_after(Duration limit) {
    tcp_.expires_after(limit);
  }
  void expires_never() { tcp_.expires_never(); }

  template <typename Buffers, typename Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    if (tls_) return tls_->async_read_some(buffers, std::forward<Token>(token));
    return tcp_.async_read_some(buffers, std::forward<Token>(token));
  }
  template <typename Buffers, typename Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    if (tls_) return tls_->async_write_some(buffers, std::forward<Token>(token));
    return tcp_.async_write_some(buffers, std::forward<Token>(token));
  }

 private:
  boost::beast::tcp_stream tcp_;
  std::shared_ptr<Context> context_;
  std::optional<Secured> tls_;  ///< last: it refers to both
};

}  // namespace moestro::tls
