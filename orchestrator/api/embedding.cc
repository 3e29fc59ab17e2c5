#include "orchestrator/api/embedding.h"

#include <openssl/evp.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <numeric>

#include "common/check.h"
#include "common/log.h"
#include "common/log_format.h"
#include "orchestrator/api/answer_headers.h"

namespace moestro::orchestrator {

namespace {
/// More values take the server's thread a few milliseconds to write: they are written elsewhere.
constexpr size_t kManyValues = 64 << 10;
}  // namespace

std::vector<float> embedding_values(const std::vector<double>& pooled, bool normalize) {
  const double length = std::sqrt(std::inner_product(pooled.begin(), pooled.end(), pooled.begin(), 0.0));
  const double divisor = normalize && length > 0 ? length : 1;
  std::vector<float> values;
  values.reserve(pooled.size());
  for (const double value : pooled) values.push_back(static_cast<float>(value / divisor));
  return values;
}

std::string embedding_json(const std::vector<float>& values, bool base64) {
  static_assert(std::endian::native == std::endian::little);
  std::string text;
  if (base64) {
    const size_t bytes = values.size() * sizeof(float);
    text.resize((bytes + 2) / 3 * 4 + 1);  // and a zero
    text.resize(static_cast<size_t>(EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                                    reinterpret_cast<const unsigned char*>(values.data()),
                                                    static_cast<int>(bytes))));
    return "\"" + text + "\"";
  }
  char number[32];  // the longest is "-1.17549435e-38"
  for (const float value : values) {
    const auto [end, error] = std::to_chars(number, number + sizeof number, value);
    MOESTRO_CHECK(error == std::errc(), "a float fits");
    text.append(text.empty() ? "[" : ",").append(number, end);
  }
  return text.empty() ? "[]" : text + "]";
}

Embedding::Embedding(const CompletionContext& context, ReadEmbedding read, std::shared_ptr<Exchange> exchange)
    : context_(context), read_(std::move(read)), exchange_(std::move(exchange)) {}

SequenceRequest Embedding::sequence_request(size_t index) const {
  SequenceRequest s;
  s.id = inputs_[index].id;
  s.prompt = read_.inputs[index];
  s.pooling = read_.request.pooling;
  s.prefix_domain = read_.request.prefix_domain;
  s.low_share_max = 0;
  s.background = exchange_->background();
  s.flow = read_.request.owner;
  s.request_id = exchange_->request_id();
  return s;
}

void Embedding::start() {
  inputs_.resize(read_.inputs.size());
  open_ = inputs_.size();
  context_.metrics.request_started();
  for (size_t i = 0; i < inputs_.size(); ++i) {
    inputs_[i].id = context_.control.next_sequence_id();
    context_.metrics.prompt_tokens(read_.inputs[i].size());
  }
  // The exchange keeps this object alive until the answer is out.
  exchange_->on_gone([self = shared_from_this()] {
    if (std::exchange(self->over_, true)) return;
    self->cancel_all();
    self->context_.metrics.request_ended("cancelled", true);
  });
  for (size_t i = 0; i < inputs_.size(); ++i) {
    Sink sink = posted_sink(context_, [weak = weak_from_this(), i](SequenceEvent event) {
      if (const auto self = weak.lock()) self->on_event(i, std::move(event));
    });
    if (Status s = context_.control.submit(sequence_request(i), std::move(sink)); !s.is_ok()) return fail(s);
  }
}

void Embedding::on_event(size_t index, SequenceEvent event) {
  Input& input = inputs_[index];
  if (over_ || input.done) return;
  if (const auto* failed = std::get_if<Failed>(&event)) return fail(failed->error, failed->quarantined);
  if (const auto* progress = std::get_if<Progress>(&event)) input.cached_tokens = progress->prompt_tokens_cached;
  if (const auto* finished = std::get_if<Finished>(&event)) take(input, finished->embedding);
}

void Embedding::take(Input& input, const std::vector<double>& pooled) {
  const bool finite = std::ranges::all_of(pooled, [](double v) { return std::isfinite(v); });
  if (static_cast<int64_t>(pooled.size()) != context_.model.hidden || !finite)
    return fail(internal_error(
        "the worker's hidden states are not those of this model: " + std::to_string(pooled.size()) + " values" +
        (finite ? "" : ", not all finite") + ", where the model has " + std::to_string(context_.model.hidden)));
  input.values = embedding_values(pooled, read_.request.normalize);
  input.done = true;
  if (--open_ == 0) finish();
}

void Embedding::finish() {
  over_ = true;
  context_.metrics.request_ended("ok", true);
  Headers headers;
  add_ignored(headers, read_.request.ignored);
  const bool is_long = inputs_.size() * inputs_.front().values.size() > kManyValues;
  context_.pool.answer(
      read_.request.owner, is_long, [self = shared_from_this()] { return self->answer_text(); }, std::move(headers),
      exchange_);
}

/// Written as text: a JSON value of each number would take many times the memory.
std::string Embedding::answer_text() const {
  int64_t tokens = 0, cached = 0;
  std::string text = R"({"object":"list","data":[)";
  for (size_t i = 0; i < inputs_.size(); ++i) {
    text += (i > 0 ? R"(,{"object":"embedding","index":)" : R"({"object":"embedding","index":)") + std::to_string(i) +
            R"(,"embedding":)" + embedding_json(inputs_[i].values, read_.request.base64) + "}";
    tokens += static_cast<int64_t>(read_.inputs[i].size());
    cached += inputs_[i].cached_tokens;
  }
  const nlohmann::json rest{
      {"model", read_.request.model.value_or(context_.model.name)},
      {"pooling", pooling_name(read_.request.pooling)},
      {"normalize", read_.request.normalize},
      {"usage",
       {{"prompt_tokens", tokens}, {"total_tokens", tokens}, {"prompt_tokens_details", {{"cached_tokens", cached}}}}}};
  return text + "]," + dump(rest).substr(1);
}

void Embedding::fail(const Status& error, bool quarantined) {
  if (std::exchange(over_, true)) return;
  cancel_all();
  const ApiError e = from_status(error);
  context_.metrics.request_ended(e.http_status < 500 ? "refused" : "error", true);
  const log::Field field("request_id", exchange_->request_id());
  // Other answers are logged where they go out.
  if (e.http_status == 500 && exchange_->background()) log::warn("an embedding failed: {}", e.message);
  exchange_->respond(e.http_status, "application/json", e.body(), failure_headers(e, context_.control, quarantined));
}

void Embedding::cancel_all() {
  for (const Input& input : inputs_)
    if (!input.done) context_.control.cancel(input.id);
}

}  // namespace moestro::orchestrator
