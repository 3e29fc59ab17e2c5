#pragma once
// The model as the request plane needs it: its tokenizer, chat template, limits and end tokens.

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/ids.h"
#include "common/status.h"
#include "orchestrator/api/model_files.h"
#include "orchestrator/chat/chat_template.h"
#include "orchestrator/forms/reasoning_style.h"
#include "orchestrator/forms/tool_form.h"
#include "orchestrator/tokenizer/tokenizer.h"

namespace moestro::orchestrator {

/// What targets of an encoder-decoder model begin with.
struct TargetBegin {
  TokenId start = 0;
  std::optional<TokenId> forced = {};  ///< after that, unless the request says how its target begins
};

struct ServedModel {
  std::string name;
  Tokenizer tokenizer;
  std::optional<ChatTemplate> chat_template;
  std::string chat_template_missing;  ///< why there is none
  std::string bos_token, eos_token;   ///< empty: the model has none; likewise below
  std::vector<TokenId> eos_ids;
  int64_t vocab = 0;        ///< rows of the embedding
  int64_t context_max = 0;  ///< positions
  int64_t created_unix_s = 0;
  std::string pad_token = {}, unk_token = {};
  std::optional<ChatTemplate> tool_template = {};  ///< of requests with tools; nullopt: chat_template
  std::shared_ptr<const ToolForm> tool_form = {};  ///< of the chat template; null: see tool_form_missing
  std::string chat_template_error = {};  ///< what is wrong with the template that is there; empty: nothing
  std::string tool_form_missing = "the model has no chat template";
  std::vector<std::string> aliases = {};     ///< further names that requests may use
  std::optional<ReasoningStyle> reasoning_style = {};  ///< how the chat template marks reasoning
  bool knows_effort = false;    ///< it looks at the variable reasoning_effort
  bool knows_thinking = false;  ///< it looks at the variable enable_thinking
  uint64_t tokenizer_digest = 0;  ///< XXH3-64 of tokenizer.json
  uint64_t text_digest = 0;  ///< of what makes tokens of requests and ends answers: two that differ are two models
  int64_t hidden = 0;                        ///< values of a hidden state
  std::optional<TargetBegin> target = {};    ///< nullopt: the model has no encoder

  bool is_called(const std::string& asked) const {
    return asked == name || std::find(aliases.begin(), aliases.end(), asked) != aliases.end();
  }

  /// Sets what is known of the chat template by its source.
  void set_styles(const std::string& source);
  void set_tool_form(const std::string& source);
  /// Reads config.json, generation_config.json, tokenizer.json, tokenizer_config.json and the chat template of a pack
  /// or a checkpoint. Refuses files that contradict each other: a token beyond the embedding, a token that only
  /// tokenizer_config.json knows.
  static Result<ServedModel> load(const std::string& name, const std::filesystem::path& pack);
  static Result<ServedModel> of_files(const std::string& name, const ModelFiles& files);
};

}  // namespace moestro::orchestrator
