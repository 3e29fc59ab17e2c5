#include "orchestrator/api/served_model.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cerrno>
#include <fstream>
#include <iterator>

#include "common/clock.h"
#include "common/may_read.h"
#include "common/model/model_spec.h"
#include "common/model/strict_json.h"
#include "orchestrator/api/tokenizer_config.h"
#include "orchestrator/forms/find_tool_form.h"

namespace moestro::orchestrator {

namespace {

/// Nothing if there is no such file.
Result<std::optional<std::string>> read_file_if_any(const std::filesystem::path& path) {
  MOESTRO_RETURN_IF_ERROR(check_may_read(path, path.parent_path()));
  std::error_code error;
  if (!std::filesystem::exists(path, error) && !error) return std::optional<std::string>();
  std::ifstream in(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in.is_open() || in.bad()) return io_error("cannot read " + path.string(), errno);
  return std::optional(std::move(text));
}

/// An unusable template only costs chat: completions still work, and who asks for chat is told why.
void set_template(const std::optional<std::string>& source, ServedModel& m) {
  if (!source) {
    m.chat_template_missing =
        "the model has no chat template (chat_template.jinja, tokenizer_config.json or chat_template.json); use "
        "/v1/completions";
    return;
  }
  auto parsed = ChatTemplate::parse(*source);
  if (parsed.is_ok()) {
    m.chat_template = std::move(*parsed);
    m.set_styles(*source);
  } else {
    m.chat_template_error = parsed.status().message();
    m.chat_template_missing = "the model's chat template cannot be used: " + m.chat_template_error;
  }
}

/// Likewise it costs only tools.
void set_tool_template(const std::optional<std::string>& source, ServedModel& m) {
  if (!source) return;
  auto parsed = ChatTemplate::parse(*source);
  if (parsed.is_ok()) {
    m.tool_template = std::move(*parsed);
    m.set_tool_form(*source);
  } else {
    m.tool_form = nullptr;
    m.tool_form_missing = "its chat template 'tool_use' cannot be used: " + parsed.status().message();
  }
}

/// `rows`: of the embedding.
Result<Tokenizer> read_tokenizer(const ModelFiles& files, const TokenizerConfig& config, int64_t rows) {
  constexpr char kName[] = "tokenizer.json";
  MOESTRO_ASSIGN_OR_RETURN(const auto text, files.read(kName));
  if (!text) return io_error("cannot open " + files.label(kName), ENOENT);
  auto tokenizer = Tokenizer::from_json(*text, config.said, rows);
  if (!tokenizer) return tokenizer.status().with_context(files.label(kName));
  if (const Status s = config.check(*tokenizer); !s.is_ok()) return s.with_context(files.label(kTokenizerConfig));
  return tokenizer;
}

/// As transformers has it: where nothing is said, a target begins as a text does.
Result<TargetBegin> target_begin(const model::ModelSpec& spec, const ModelFiles& files) {
  const auto start = spec.decoder_start_id ? spec.decoder_start_id : spec.bos_id;
  if (!start)
    return invalid_argument(files.label("config.json") +
                            ": decoder_start_token_id is missing, and targets have to begin with something");
  return TargetBegin{*start, spec.forced_bos_id};
}

}  // namespace

void ServedModel::set_styles(const std::string& source) {
  set_tool_form(source);
  reasoning_style = reasoning_style_of(source);
  knows_effort = source.find("reasoning_effort") != std::string::npos;
  knows_thinking = source.find("enable_thinking") != std::string::npos;
}

void ServedModel::set_tool_form(const std::string& source) {
  auto form = find_tool_form(source, [&](std::string_view token) { return tokenizer.id_of(token).has_value(); });
  tool_form = form.is_ok() ? std::move(*form) : nullptr;
  tool_form_missing = form.is_ok() ? "" : form.status().message();
}

Result<ServedModel> ServedModel::of_files(const std::string& name, const ModelFiles& files) {
  MOESTRO_ASSIGN_OR_RETURN(const auto config, files.read("config.json"));
  if (!config) return not_found("cannot read " + files.label("config.json"));
  MOESTRO_ASSIGN_OR_RETURN(const auto generation, files.read("generation_config.json"));
  MOESTRO_ASSIGN_OR_RETURN(const auto description, model::describe_model(*config, generation.value_or("")));
  MOESTRO_ASSIGN_OR_RETURN(const TokenizerConfig words, TokenizerConfig::of_files(files));
  MOESTRO_ASSIGN_OR_RETURN(auto tokenizer, read_tokenizer(files, words, description.spec.vocab));
  ServedModel m{name, std::move(tokenizer), std::nullopt, "", "", "", description.spec.eos_ids, description.spec.vocab,
                description.spec.max_position, 0};
  m.hidden = description.spec.hidden;
  if (description.spec.is_encoder_decoder()) {
    MOESTRO_ASSIGN_OR_RETURN(m.target, target_begin(description.spec, files));
  }
  if (m.tokenizer.vocab_size() > m.vocab) {
    const auto last = static_cast<TokenId>(m.tokenizer.vocab_size() - 1);
    return invalid_argument(files.label("tokenizer.json") + ": the token " + model::in_quotes(m.tokenizer.token(last)) +
                            " has id " + std::to_string(last) + ", but config.json has a vocab_size of " +
                            std::to_string(m.vocab) + ": they are not of one model");
  }
  m.bos_token = words.bos_token;
  m.eos_token = words.eos_token;
  m.pad_token = words.pad_token;
  m.unk_token = words.unk_token;
  set_template(words.chat_template, m);
  set_tool_template(words.tool_template, m);
  return m;
}

Result<ServedModel> ServedModel::load(const std::string& name, const std::filesystem::path& pack) {
  uint64_t digest = 0, tokenizer_digest = 0;
  const auto add = [&digest](std::string_view bytes) {
    digest = XXH3_64bits_withSeed(bytes.data(), bytes.size(), digest);
  };
  const auto read = [&](const std::string& file) {
    auto text = read_file_if_any(pack / file);
    // Of config.json only the end tokens count here: the pack's own version covers it, and versions that `moestro store
    // replace` takes for one model may say otherwise how weights are stored.
    if (text.is_ok() && file != "config.json") add(file), add(text->value_or(""));
    if (text.is_ok() && *text && file == "tokenizer.json")
      tokenizer_digest = XXH3_64bits((*text)->data(), (*text)->size());
    return text;
  };
  const auto label = [&](const std::string& file) { return (pack / file).string(); };
  MOESTRO_ASSIGN_OR_RETURN(ServedModel m, of_files(name, {read, label}));
  for (const TokenId id : m.eos_ids) add(std::to_string(id) + " ");
  m.text_digest = digest;
  m.tokenizer_digest = tokenizer_digest;
  const auto created = std::filesystem::last_write_time(pack / "config.json");
  const auto age = std::filesystem::file_time_type::clock::now() - created;
  m.created_unix_s = unix_seconds() - std::chrono::duration_cast<std::chrono::seconds>(age).count();
  return m;
}

}  // namespace moestro::orchestrator
