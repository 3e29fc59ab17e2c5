#include "orchestrator/http/pending.h"

namespace moestro::orchestrator {

void Pending::respond(int status, const std::string& content_type, std::string body, const Headers& headers) {
  if (done_ || streaming_) return;
  answer_ = Answer{status, content_type, std::move(body), headers};
  done_ = true;
  wake();
}

void Pending::respond_from(const std::string& content_type, std::shared_ptr<BodySource> source,
                           const Headers& headers) {
  if (done_ || streaming_) return;
  answer_ = Answer{200, content_type, {}, headers, std::move(source)};
  done_ = true;
  wake();
}

void Pending::begin_stream(const Headers& headers) {
  if (done_) return;
  stream_headers_ = headers;
  streaming_ = true;
  wake();
}

void Pending::write(std::string text) {
  if (gone_ || done_ || text.empty()) return;
  waiting_bytes_ += text.size();
  queue_.push_back(std::move(text));
  wake();
}

void Pending::end_stream() {
  if (!streaming_) return;
  done_ = true;
  wake();
}

void Pending::on_gone(std::function<void()> callback) {
  if (detached_) return;
  if (gone_)
    callback();
  else
    gone_callback_ = std::move(callback);
}

void Pending::detach() {
  detached_ = gone_ = true;
  wake_ = nullptr;
  queue_.clear();
  waiting_bytes_ = 0;
  gone_callback_ = drained_callback_ = nullptr;
}

void Pending::client_left() {
  if (detached_) return;
  gone_ = true;
  queue_.clear();
  waiting_bytes_ = 0;
  if (const auto callback = std::exchange(gone_callback_, nullptr)) callback();
  wake();
}

std::deque<std::string> Pending::take_text() {
  const bool was_crowded = crowded();
  waiting_bytes_ = 0;
  std::deque<std::string> text = std::exchange(queue_, {});
  if (was_crowded && drained_callback_) drained_callback_();
  return text;
}

}  // namespace moestro::orchestrator
