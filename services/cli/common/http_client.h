#pragma once
// One kept-alive HTTP/1.1 connection, with TLS or without. Only http_client.cc includes Boost.Beast.

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/status.h"
#include "services/cli/common/url.h"

namespace moestro::cli {

struct HttpReply {
  int status = 0;
  std::string body;
  std::string request_id;    ///< the header x-request-id, if there is one
  double retry_after_s = 0;  ///< the header retry-after in seconds; 0 if there is none
};

struct HttpLimits {
  std::chrono::milliseconds connect{3000};
  std::chrono::milliseconds silence{
      600'000};  ///< longest wait for the next bytes of an answer; a long prompt may take minutes
  uint64_t body_bytes_max = 256u << 20;
};

struct HttpAccess {
  std::string api_key = {};  ///< empty: none is sent; it never stands in an error
  std::string ca_file = {};  ///< PEM, trusted instead of the system's certificates
  std::string certificate = {};  ///< PEM: of https, the server shows the first one in this file, or is refused; its
                                 ///< name and who signed it do not matter
  std::string not_there = "is the server up?";  ///< what an error says if nothing listens there
  bool verify = true;        ///< of https: whether the server is who it says; false only where it is our own
};

/// What every request of these programs says of itself: the server, the program and, if there is one, the key.
std::vector<std::pair<std::string, std::string>> request_headers(const Url& url, const std::string& api_key);

/// Blocks; belongs to one thread. Errors: kUnavailable if the server does not answer or closes the connection, kCorrupt
/// if the answer is not HTTP, kInvalidArgument if its certificate is not trusted or --ca-file cannot be read.
class HttpClient {
 public:
  explicit HttpClient(Url url, HttpLimits limits = {}, HttpAccess access = {});
  HttpClient(HttpClient&&) noexcept;
  HttpClient& operator=(HttpClient&&) noexcept;
  ~HttpClient();

  /// If the server closed the connection while it was idle, it is opened once more. A request that may have arrived is
  /// not sent twice.
  Result<HttpReply> get(const std::string& path);
  Result<HttpReply> post(const std::string& path, std::string_view json);

  Result<HttpReply> remove(const std::string& path);
  /// Sends `bytes` bytes in the pieces that `next` gives; an empty one, or an error, ends the request.
  using NextPiece = std::function<Result<std::string>()>;
  Result<HttpReply> upload(const std::string& path, const std::string& content_type, uint64_t bytes,
                           const NextPiece& next);
  Result<HttpReply> get_stream(const std::string& path, const std::function<Status(std::string_view piece)>& on_body);

  /// An answer of 200 goes to `on_body` in pieces as it arrives, and the reply's body is empty. Any other answer is
  /// complete in the reply. An error from on_body ends the request and is returned.
  using OnBody = std::function<Status(std::string_view piece)>;
  Result<HttpReply> post_stream(const std::string& path, std::string_view json, const OnBody& on_body);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moestro::cli
