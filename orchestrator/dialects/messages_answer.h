#pragma once
// Answers of chats in the shapes of Anthropic's Messages API.

#include "orchestrator/dialects/dialect.h"
#include "orchestrator/dialects/dialect_text.h"

namespace moestro::orchestrator {

class MessagesAnswer final : public AnswerTranslator {
 public:
  void read_whole(const RequestJson& answer) override;
  std::string whole() override { return std::move(text_); }
  std::string chunk(const RequestJson& chunk) override;
  std::string end() override;
  std::string failed(const ApiError& error) override;

 private:
  std::string begin(const RequestJson& chunk);
  std::string take_delta(const RequestJson& delta);
  std::string open(const std::string& kind, RequestJson block);
  std::string close();
  std::string say(const char* type, const char* member, const std::string& words);
  std::string say_call(const RequestJson& call);

  std::string text_;  ///< of a whole answer
  bool begun_ = false;
  RequestJson content_ = RequestJson::array();  ///< the blocks that were opened
  std::string kind_;  ///< of the open block, or its call's index; empty: none is open
  std::string said_;  ///< its text or input so far
  ChoiceEnd end_;
  Usage usage_;
};

/// The answer of /v1/messages/count_tokens.
class TokenCountAnswer final : public AnswerTranslator {
 public:
  void read_whole(const RequestJson& answer) override { tokens_ = answer.value("prompt_tokens", int64_t{0}); }
  std::string whole() override { return text_of({{"input_tokens", tokens_}}); }
  // It has no streams.
  std::string chunk(const RequestJson&) override { return ""; }
  std::string end() override { return ""; }
  std::string failed(const ApiError&) override { return ""; }

 private:
  int64_t tokens_ = 0;
};

}  // namespace moestro::orchestrator
