#pragma once
// The exchange of a batch's line: the answer goes to the runner instead of a connection. Server's thread only.

#include "orchestrator/http/exchange.h"

namespace moestro::orchestrator {

class LineExchange final : public Exchange {
 public:
  using Answered = std::function<void(int status, std::string body)>;
  /// `request_id`: the place of the line, for logs.
  LineExchange(std::string request_id, Answered answered)
      : request_id_(std::move(request_id)), answered_(std::move(answered)) {}

  void respond(int status, const std::string&, std::string body, const Headers&) override {
    gone_ = nullptr;  // it holds what holds this
    if (const auto tell = std::exchange(answered_, nullptr)) tell(status, std::move(body));
  }
  void respond_from(const std::string&, std::shared_ptr<BodySource>, const Headers&) override {
    respond(500, "", "null", {});
  }
  // Lines that ask for streams are refused before they come here.
  void begin_stream(const Headers&) override {}
  void write(std::string) override {}
  void end_stream() override { respond(500, "", "null", {}); }
  void on_gone(std::function<void()> callback) override {
    if (answered_)
      gone_ = std::move(callback);
    else if (left_)
      callback();
  }
  bool background() const override { return true; }
  const std::string& request_id() const override { return request_id_; }

  /// The runner no longer wants an answer.
  void leave() {
    left_ = true;
    answered_ = nullptr;
    if (const auto callback = std::exchange(gone_, nullptr)) callback();
  }

 private:
  const std::string request_id_;
  Answered answered_;
  std::function<void()> gone_;
  bool left_ = false;
};

}  // namespace moestro::orchestrator
