#include "orchestrator/dialects/translated_exchange.h"

#include "orchestrator/dialects/dialect_text.h"

namespace moestro::orchestrator {

namespace {
constexpr const char* kJsonType = "application/json";
/// Longer answers, which have log-probabilities, are not turned on the server's thread.
constexpr size_t kInlineAnswerBytes = 128 << 10;
constexpr std::string_view kData = "data: ", kDone = "[DONE]", kEventEnd = "\n\n";

RequestJson parsed(std::string_view text) {
  return RequestJson::parse(text, nullptr, /*allow_exceptions=*/false);
}
}  // namespace

void TranslatedExchange::respond(int status, const std::string& content_type, std::string body,
                                 const Headers& headers) {
  if (status >= 400)
    return inner_->respond(status, kJsonType, error_body_(error_of(status, parsed(body)), request_id()), headers);
  if (!*slot_) return inner_->respond(status, content_type, std::move(body), headers);  // not of a completion
  const bool is_long = body.size() > kInlineAnswerBytes;
  const auto text = std::make_shared<std::string>(std::move(body));
  const auto read = [self = shared_from_this(), text, headers](const std::stop_token&) -> ReadingPool::Outcome {
    self->answer().read_whole(parsed(*text));
    return [self, headers](const std::shared_ptr<Exchange>&) { self->say_whole(headers); };
  };
  if (!is_long || !pool_.run(flow_, /*heavy=*/false, read, inner_)) read({})(inner_);
}

void TranslatedExchange::say_whole(const Headers& headers) {
  answer().settle(
      [self = shared_from_this(), headers] { self->inner_->respond(200, kJsonType, self->answer().whole(), headers); });
}

void TranslatedExchange::write(std::string text) {
  unread_ += text;
  size_t at = 0;
  for (size_t end; (end = unread_.find(kEventEnd, at)) != std::string::npos; at = end + kEventEnd.size())
    take_event(std::string_view(unread_).substr(at, end - at));
  unread_.erase(0, at);
}

void TranslatedExchange::take_event(std::string_view event) {
  if (event.starts_with(':')) return inner_->write(std::string(event) + std::string(kEventEnd));  // a comment
  if (!event.starts_with(kData) || failed_) return;
  event.remove_prefix(kData.size());
  if (event == kDone) return;  // end_stream() follows
  const RequestJson chunk = parsed(event);
  failed_ = chunk.is_object() && chunk.contains("error");
  inner_->write(failed_ ? answer().failed(error_of(0, chunk)) : answer().chunk(chunk));
}

void TranslatedExchange::end_stream() {
  if (failed_) return inner_->end_stream();
  answer().settle([self = shared_from_this()] {
    self->inner_->write(self->answer().end());
    self->inner_->end_stream();
  });
}

}  // namespace moestro::orchestrator
