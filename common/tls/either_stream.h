#pragma once
// A TCP stream with or without TLS. Boost.Beast and Boost.Asio read and write it like any other stream. Belongs to one
// thread.

#include <array>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/buffer.hpp>
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

  /// From now on what is read and written goes through TLS; the handshake is to be made on tls(). The connection keeps
  /// the context.
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
  /// Limits the time of each operation that begins from now on; one that takes longer closes the socket. An operation
  /// in progress keeps its limit.
  template <typename Duration>
  void expires_after(Duration limit) {
    tcp_.expires_after(limit);
  }
  void expires_never() { tcp_.expires_never(); }

  // The two that Beast's and Asio's composed operations are made of. Their completion handlers are erased here, so that
  // TCP and TLS are instantiated in either_stream.cc alone: they take seconds to compile for each kind of handler.
  template <typename Buffers, typename Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    return initiate<BufferList<boost::asio::mutable_buffer>>(&EitherStream::start_read, buffers, token);
  }
  template <typename Buffers, typename Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    return initiate<BufferList<boost::asio::const_buffer>>(&EitherStream::start_write, buffers, token);
  }

 private:
  using ErrorCode = boost::system::error_code;

  /// The first buffers that are not empty; the rest of a sequence may wait for the next call.
  template <typename Buffer>
  struct BufferList {
    using value_type = Buffer;
    using const_iterator = const Buffer*;
    static constexpr size_t kMost = 16;

    template <typename Buffers>
    explicit BufferList(const Buffers& buffers) {
      const auto end = boost::asio::buffer_sequence_end(buffers);
      for (auto at = boost::asio::buffer_sequence_begin(buffers); at != end && count < kMost; ++at)
        if (const Buffer buffer(*at); buffer.size() > 0) some[count++] = buffer;
    }
    const_iterator begin() const { return some.data(); }
    const_iterator end() const { return some.data() + count; }

    std::array<Buffer, kMost> some;
    size_t count = 0;
  };

  /// A completion handler of any type; called once, on the executor that the handler asks for.
  class Completion {
   public:
    using executor_type = boost::asio::any_io_executor;

    template <typename Handler>
    Completion(Handler handler, const executor_type& otherwise)
        : executor_(boost::asio::get_associated_executor(handler, otherwise)),
          handler_(std::make_unique<Held<Handler>>(std::move(handler))) {}
    executor_type get_executor() const noexcept { return executor_; }
    void operator()(ErrorCode error, size_t bytes) { std::exchange(handler_, nullptr)->call(error, bytes); }

   private:
    struct Callable {
      virtual ~Callable() = default;
      virtual void call(ErrorCode error, size_t bytes) = 0;
    };
    template <typename Handler>
    struct Held final : Callable {
      explicit Held(Handler h) : handler(std::move(h)) {}
      void call(ErrorCode error, size_t bytes) override { handler(error, bytes); }
      Handler handler;
    };

    executor_type executor_;
    std::unique_ptr<Callable> handler_;
  };

  template <typename List, typename Start, typename Buffers, typename Token>
  auto initiate(Start start, const Buffers& buffers, Token& token) {
    return boost::asio::async_initiate<Token, void(ErrorCode, size_t)>(
        [this, start](auto handler, const List& list) {
          (this->*start)(list, Completion(std::move(handler), get_executor()));
        },
        token, List(buffers));
  }
  void start_read(const BufferList<boost::asio::mutable_buffer>& buffers, Completion done);
  void start_write(const BufferList<boost::asio::const_buffer>& buffers, Completion done);

  boost::beast::tcp_stream tcp_;
  std::shared_ptr<Context> context_;
  std::optional<Secured> tls_;  ///< last: it refers to both
};

}  // namespace moestro::tls
