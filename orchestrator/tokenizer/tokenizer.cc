#include "orchestrator/tokenizer/tokenizer.h"

#include <nlohmann/json.hpp>
#include <unordered_map>

#include "common/model/strict_json.h"
#include "common/utf8.h"
#include "orchestrator/tokenizer/added_tokens.h"
#include "orchestrator/tokenizer/decoder.h"
#include "orchestrator/tokenizer/model.h"
#include "orchestrator/tokenizer/normalizer.h"
#include "orchestrator/tokenizer/post_processor.h"
#include "orchestrator/tokenizer/pre_tokenizer.h"

namespace moestro {
namespace tok {

struct TokenizerData {
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::unique_ptr<Model> model;
  AddedTokens added;
  PostProcessor post_processor;
  Decoder decoder;
  std::vector<std::string> tokens;  // by id; empty where there is none
  std::vector<bool> special;        // by id
  size_t token_bytes_max = 1;       // as they are spelled
  std::unordered_map<std::string, TokenId> added_ids;

  bool skips(TokenId id, bool skip_special) const {
    if (id < 0 || static_cast<size_t>(id) >= tokens.size() || tokens[id].empty()) return true;
    return skip_special && special[id];
  }
  Status name_tokens();
  Status encode_normalized(std::string_view text, bool at_start, const std::stop_token& stop,
                           std::vector<TokenId>& out) const;
};

Status TokenizerData::name_tokens() {
  TokenId id_max = -1;
  for (const auto& [token, id] : model->vocab()) id_max = std::max(id_max, id);
  for (const auto& token : added.tokens()) id_max = std::max(id_max, token.id);
  tokens.resize(static_cast<size_t>(id_max) + 1);
  special.resize(tokens.size());
  const auto name = [&](TokenId id, const std::string& content) {
    std::string& named = tokens[static_cast<size_t>(id)];
    if (!named.empty() && named != content)
      return invalid_argument("the id " + std::to_string(id) + " is given to two tokens: '" + named.substr(0, 60) +
                              "' and '" + content.substr(0, 60) + "'");
    named = content;
    return Status::ok();
  };
  for (const auto& [token, id] : model->vocab()) MOESTRO_RETURN_IF_ERROR(name(id, token));
  for (const auto& token : added.tokens()) {
    MOESTRO_RETURN_IF_ERROR(name(token.id, token.content));
    special[token.id] = special[token.id] || token.flags.special;
    added_ids.emplace(token.content, token.id);
  }
  for (const std::string& token : tokens) token_bytes_max = std::max(token_bytes_max, token.size());
  return Status::ok();
}

Status TokenizerData::encode_normalized(std::string_view text, bool at_start, const std::stop_token& stop,
                                        std::vector<TokenId>& out) const {
  for (const Segment& segment : added.split(text, true)) {
    if (segment.id >= 0) {
      out.push_back(segment.id);
      continue;
    }
    Pieces pieces;
    pieces.text = text.substr(segment.begin, segment.end - segment.begin);
    pieces.ranges = {{0, pieces.text.size()}};
    pieces.at_start = at_start && segment.begin == 0;
    MOESTRO_RETURN_IF_ERROR(pre_tokenizer.apply(pieces));
    for (const Match& piece : pieces.ranges) {
      if (stop.stop_requested()) return stopped();
      MOESTRO_RETURN_IF_ERROR(
          model->tokenize(std::string_view(pieces.text).substr(piece.begin, piece.end - piece.begin), stop, out));
    }
  }
  return Status::ok();
}

namespace {

constexpr size_t kTextBytesMax = size_t{256} << 20;

Result<std::shared_ptr<const TokenizerData>> build(const Json& json, std::span<const Tokenizer::Said> said,
                                                   int64_t ids_end) {
  const Json* model = member(json, "model");
  if (model == nullptr)
    return invalid_argument("it has no model: this is not a tokenizer.json of Hugging Face tokenizers");
  auto data = std::make_shared<TokenizerData>();
  MOESTRO_ASSIGN_OR_RETURN(data->model, Model::parse(*model));
  MOESTRO_ASSIGN_OR_RETURN(data->normalizer, Normalizer::parse(member(json, "normalizer")));
  MOESTRO_ASSIGN_OR_RETURN(data->pre_tokenizer, PreTokenizer::parse(member(json, "pre_tokenizer")));
  MOESTRO_ASSIGN_OR_RETURN(data->added, AddedTokens::parse(member(json, "added_tokens"), {said, ids_end}, *data->model,
                                                           data->normalizer));
  MOESTRO_ASSIGN_OR_RETURN(data->post_processor, PostProcessor::parse(member(json, "post_processor")));
  MOESTRO_ASSIGN_OR_RETURN(data->decoder, Decoder::parse(member(json, "decoder")));
  MOESTRO_RETURN_IF_ERROR(data->name_tokens());
  for (const auto* ids : {&data->post_processor.before, &data->post_processor.after}) {
    for (const TokenId id : *ids) {
      if (data->skips(id, false))
        return invalid_argument("the post-processor adds id " + std::to_string(id) + ", which no token has");
    }
  }
  return std::shared_ptr<const TokenizerData>(std::move(data));
}

}  // namespace
}  // namespace tok

Result<Tokenizer> Tokenizer::from_json(std::string_view json, std::span<const Said> said, int64_t ids_end) {
  MOESTRO_ASSIGN_OR_RETURN(const tok::Json parsed, model::parse_json_object(json, "tokenizer.json"));
  auto data = tok::build(parsed, said, ids_end);
  if (!data.is_ok()) return data.status().with_context("tokenizer.json");
  return Tokenizer(std::move(data).value());
}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view utf8, bool add_special_tokens,
                                               const std::stop_token& stop) const {
  if (utf8.size() > tok::kTextBytesMax) return invalid_argument("the text is longer than 256 MiB");
  if (const size_t at = find_invalid_utf8(utf8); at != std::string_view::npos) {
    return invalid_argument("the text is not valid UTF-8 at byte " + std::to_string(at));
  }
  std::vector<TokenId> ids;
  if (add_special_tokens) ids = data_->post_processor.before;
  for (const tok::Segment& segment : data_->added.split(utf8, false)) {
    if (segment.id >= 0) {
      ids.push_back(segment.id);
      continue;
    }
    const std::string_view raw = utf8.substr(segment.begin, segment.end - segment.begin);
    const bool at_start = segment.begin == 0;
    if (data_->normalizer.is_identity()) {
      MOESTRO_RETURN_IF_ERROR(data_->encode_normalized(raw, at_start, stop, ids));
      continue;
    }
    MOESTRO_ASSIGN_OR_RETURN(const std::string normalized, data_->normalizer.apply(raw));
    MOESTRO_RETURN_IF_ERROR(data_->encode_normalized(normalized, at_start, stop, ids));
  }
  if (add_special_tokens) ids.insert(ids.end(), data_->post_processor.after.begin(), data_->post_processor.after.end());
  return ids;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  tok::DecodeStream stream = data_->decoder.stream();
  std::string text;
  for (const TokenId id : ids) {
    if (!data_->skips(id, skip_special)) text += stream.push(data_->tokens[id]);
  }
  text += stream.finish();
  return text;
}

int64_t Tokenizer::vocab_size() const {
  return static_cast<int64_t>(data_->tokens.size());
}

int64_t Tokenizer::token_bytes_max() const {
  return static_cast<int64_t>(data_->token_bytes_max);
}

std::optional<TokenId> Tokenizer::id_of(std::string_view token) const {
  if (const auto it = data_->added_ids.find(std::string(token)); it != data_->added_ids.end()) return it->second;
  const TokenId id = data_->model->id_of(token);
  return id < 0 ? std::nullopt : std::optional<TokenId>(id);
}

std::string_view Tokenizer::token(TokenId id) const {
  return data_->skips(id, false) ? std::string_view() : std::string_view(data_->tokens[id]);
}

std::string Tokenizer::token_bytes(TokenId id) const {
  return data_->skips(id, false) ? std::string() : data_->decoder.token_bytes(data_->tokens[id]);
}

std::string Tokenizer::token_text(TokenId id) const {
  return lossy_utf8(token_bytes(id));
}

bool Tokenizer::is_special(TokenId id) const {
  return !data_->skips(id, false) && data_->special[id];
}

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
    : data_(tokenizer.data_),
      stream_(std::make_unique<tok::DecodeStream>(data_->decoder.stream())),
      skip_special_(skip_special) {}
StreamDecoder::~StreamDecoder() = default;
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;

std::string StreamDecoder::prime(std::span<const TokenId> context) {
  for (const TokenId id : context) push(id);
  stream_->settle();
  return said_ = stream_->held();
}

/// What the stream held when the context ended comes out with a later token. Where it comes out as it was read
/// at the context's end it is dropped; where later tokens have made it something else, a character completed,
/// it is news.
std::string StreamDecoder::without_said(std::string text) {
  if (said_.empty() || text.empty()) return text;
  if (std::string_view(said_).starts_with(text)) {
    said_.erase(0, text.size());
    return {};
  }
  if (text.starts_with(said_)) text.erase(0, said_.size());
  said_.clear();
  return text;
}

std::string StreamDecoder::push(TokenId id) {
  return data_->skips(id, skip_special_) ? std::string() : without_said(stream_->push(data_->tokens[id]));
}

std::string StreamDecoder::finish() {
  return without_said(stream_->finish());
}

bool StreamDecoder::drops_space() const {
  constexpr std::string_view kWord = "\u2581a";
  return data_->decoder.token_bytes(kWord) == " a" && !stream_->rest_after(kWord).ends_with(" a");
}

}  // namespace moestro
