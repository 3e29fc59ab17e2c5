#pragma once
// The bytes of one connection, with or without TLS. Coroutines of the server's thread. Its templates are compiled only
// in wire.cc.

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/system/error_code.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string_view>

namespace boost::asio::ssl {
class context;
}

namespace moestro::orchestrator {

class Wire {
 public:
  enum class Greeting { kReady, kNoTls, kFailed };

  /// `context`: for TLS; null: plain TCP.
  Wire(boost::asio::ip::tcp::socket socket, std::shared_ptr<boost::asio::ssl::context> context);
  ~Wire();
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  boost::asio::any_io_executor executor();

  /// Does the TLS handshake, if there is a context. kNoTls: the client does not use TLS, and gets the answer in plain
  /// text.
  boost::asio::awaitable<Greeting> greet();
  boost::asio::awaitable<size_t> read_some(char* to, size_t room, boost::system::error_code& error);
  boost::asio::awaitable<size_t> write_some(std::string_view bytes, boost::system::error_code& error);
  /// Writes all bytes, however slowly the client reads. False if the client reads nothing for `patience`, or is gone.
  boost::asio::awaitable<bool> write(std::string_view bytes, std::chrono::seconds patience);
  /// Reads while a coroutine writes. cancel() ends it.
  void read_beside(char* to, size_t room, std::function<void(boost::system::error_code, size_t)> done);
  void cancel();
  /// Closes the socket if later reads and writes have not ended within `limit` from now.
  void expires_after(std::chrono::seconds limit);
  void expires_never();
  /// Whether the client has closed its side, even if earlier bytes were not read yet.
  bool client_closed();

  /// Tells the client that nothing more follows. In TLS, a client could not know otherwise whether it has received
  /// everything.
  boost::asio::awaitable<void> say_end();
  /// Closes this side and reads further bytes for up to two seconds. Closing a socket with unread data would reset the
  /// connection before the client has read the answer.
  boost::asio::awaitable<void> let_client_read();
  /// Closes at once: readers and writers get an error.
  void close();

 private:
  struct Stream;
  std::unique_ptr<Stream> stream_;
};

}  // namespace moestro::orchestrator
