#include "orchestrator/api/request_log.h"

#include <algorithm>
#include <random>
#include <utility>

#include "common/log.h"
#include "common/log_format.h"

namespace moestro::orchestrator {
namespace {

using std::chrono::steady_clock;

constexpr int kWarningsASecond = 5;
constexpr size_t kShownBytes = 300;
constexpr std::string_view kSigns = "-_.:/=+@";  ///< of ids, beside letters and digits

std::string new_request_id() {
  thread_local std::mt19937_64 random{std::random_device{}()};
  char id[24];
  std::snprintf(id, sizeof id, "req-%016llx", static_cast<unsigned long long>(random()));
  return id;
}

/// Whoever checks health hears the reason in the answer, often many times a second.
bool is_health(std::string_view path) { return path == "/health" || path == "/v1/health" || path == "/ping"; }

}  // namespace

bool is_request_id(std::string_view text) {
  const auto good = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           kSigns.find(c) != std::string_view::npos;
  };
  return !text.empty() && text.size() <= kRequestIdBytesMax && std::all_of(text.begin(), text.end(), good);
}

int64_t WarningLimit::take(Time now) {
  if (now - second_ >= std::chrono::seconds(1)) second_ = now, in_second_ = 0;
  if (++in_second_ > kWarningsASecond) return ++left_out_, -1;
  return std::exchange(left_out_, 0);
}

/// Adds the header, and writes the line when the answer is out.
class RequestLog::Logged final : public ForwardingExchange {
 public:
  Logged(std::shared_ptr<Exchange> inner, std::shared_ptr<WarningLimit> limit, std::string id,
         const HttpRequest& request)
      : ForwardingExchange(std::move(inner)),
        limit_(std::move(limit)),
        id_(std::move(id)),
        what_(request.method + " " + request.path.substr(0, kShownBytes)),
        quiet_(is_health(request.path)) {}

  void respond(int status, const std::string& content_type, std::string body, const Headers& headers) override {
    write_line(status, status >= 500 ? body : "");
    inner_->respond(status, content_type, std::move(body), with_id(headers));
  }
  void respond_from(const std::string& content_type, std::shared_ptr<BodySource> source,
                    const Headers& headers) override {
    write_line(200, "");
    inner_->respond_from(content_type, std::move(source), with_id(headers));
  }
  void begin_stream(const Headers& headers) override { inner_->begin_stream(with_id(headers)); }
  void end_stream() override {
    write_line(200, "");
    inner_->end_stream();
  }
  void on_gone(std::function<void()> callback) override {
    inner_->on_gone([callback = std::move(callback), what = what_, id = id_] {
      const log::Field field("request_id", id);
      log::debug("{}: the client left", what);
      callback();
    });
  }
  const std::string& request_id() const override { return id_; }

 private:
  Headers with_id(Headers headers) const {
    headers.emplace_back("X-Request-Id", id_);
    return headers;
  }
  void write_line(int status, const std::string& said) const {
    const log::Field field("request_id", id_);
    const auto now = steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - arrived_).count();
    if (said.empty() || quiet_) return log::debug("{}: {} in {:.3f} s", what_, status, seconds);
    const int64_t left_out = limit_->take(now);
    if (left_out < 0) return;
    log::warn("{}: {} in {:.3f} s: {}{}", what_, status, seconds, said.substr(0, kShownBytes),
              left_out == 0 ? "" : " (and " + std::to_string(left_out) + " more before it)");
  }

  const std::shared_ptr<WarningLimit> limit_;
  const std::string id_, what_;
  const bool quiet_;
  const steady_clock::time_point arrived_ = steady_clock::now();
};

void RequestLog::handle(HttpRequest request, std::shared_ptr<Exchange> exchange) {
  std::string id = is_request_id(request.request_id) ? request.request_id : new_request_id();
  request.request_id = id;
  const log::Field field("request_id", id);
  auto logged = std::make_shared<Logged>(std::move(exchange), limit_, std::move(id), request);
  inside_(std::move(request), std::move(logged));
}

}  // namespace moestro::orchestrator
