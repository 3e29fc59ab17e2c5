#pragma once
// The answer to a request of another API: what the completion says in OpenAI's shapes goes to the client in the other
// API's. Server's thread only.

#include <memory>
#include <string>
#include <string_view>

#include "orchestrator/api/reading_pool.h"
#include "orchestrator/dialects/dialect.h"
#include "orchestrator/http/exchange.h"

namespace moestro::orchestrator {

class TranslatedExchange final : public ForwardingExchange, public std::enable_shared_from_this<TranslatedExchange> {
 public:
  /// Where reading the request puts what turns its answer.
  using Slot = std::shared_ptr<std::unique_ptr<AnswerTranslator>>;

  /// `pool`: for long answers, as requests of `flow`. It outlives this.
  TranslatedExchange(std::shared_ptr<Exchange> inner, ErrorBody error_body, Slot slot, ReadingPool& pool,
                     std::string flow)
      : ForwardingExchange(std::move(inner)),
        error_body_(error_body),
        slot_(std::move(slot)),
        pool_(pool),
        flow_(std::move(flow)) {}

  void respond(int status, const std::string& content_type, std::string body, const Headers& headers) override;
  /// Takes server-sent events, cut anywhere.
  void write(std::string text) override;
  void end_stream() override;

 private:
  AnswerTranslator& answer() { return **slot_; }
  void take_event(std::string_view event);
  void say_whole(const Headers& headers);

  const ErrorBody error_body_;
  const Slot slot_;
  ReadingPool& pool_;
  const std::string flow_;
  std::string unread_;  ///< the beginning of an event
  bool failed_ = false;
};

}  // namespace moestro::orchestrator
