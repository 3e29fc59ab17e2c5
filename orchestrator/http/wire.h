#pragma once
// One connection's bytes, plain or in TLS. Coroutines of the server's thread. The templates that this takes are
// compiled in wire.cc alone.

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

  /// `context`: of TLS; null: plain TCP.
  Wire(boost::asio::ip::tcp::socket socket, std::shared_ptr<boost::asio::ssl::context> context);
  ~Wire();
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  boost::asio::any_io_executor executor();

  /// Makes the connection a secure one where it is to be. kNoTls: the client speaks something else, and hears it plain.
  boost::asio::awaitable<Greeting> greet();
  boost::asio::awaitable<size_t> read_some(char* to, size_t room, boost::system::error_code& error);
  boost::asio::awaitable<size_t> write_some(std::string_view bytes, boost::system::error_code& error);
  /// Writes it all, however slowly the client reads. False if it takes nothing for `patience`, or is gone.
  boost::asio::awaitable<bool> write(std::string_view bytes, std::chrono::seconds patience);
  /// Reads beside a coroutine that writes. cancel() ends it.
  void read_beside(char* to, size_t room, std::function<void(boost::system::error_code, size_t)> done);
  void cancel();
  /// What is read or written from now on must have ended within `limit` from now, or the socket is closed.
  void expires_after(std::chrono::seconds limit);
  void expires_never();
  /// Whether the client has closed its side, also where bytes that it sent before were not read yet.
  bool client_closed();

  /// Says that nothing more comes: in TLS a client could not tell otherwise whether it has heard everything.
  boost::asio::awaitable<void> say_end();
  /// Closes our side and reads what still comes for two seconds: closing with unread data in the socket would reset the
  /// connection before the client has read the answer.
  boost::asio::awaitable<void> let_client_read();
  /// At once: whoever reads or writes gets an error.
  void close();

 private:
  struct Stream;
  std::unique_ptr<Stream> stream_;
};

}  // namespace moestro::orchestrator
