#pragma once
// One request for embeddings under way, from its sequences' submission to the answer. Lives on the server's thread.

#include <memory>
#include <string>
#include <vector>

#include "orchestrator/api/completion.h"
#include "orchestrator/api/embedding_request.h"

namespace moestro::orchestrator {

/// A request, read and tokenized.
struct ReadEmbedding {
  EmbeddingRequest request;
  std::vector<std::vector<TokenId>> inputs;
};

class Embedding : public std::enable_shared_from_this<Embedding> {
 public:
  Embedding(const CompletionContext& context, ReadEmbedding read, std::shared_ptr<Exchange> exchange);

  /// Submits the sequences. The answer, an error included, goes to the exchange.
  void start();

 private:
  struct Input {
    SequenceId id;
    int64_t cached_tokens = 0;
    bool done = false;
    std::vector<float> values;  ///< once it is done
  };

  SequenceRequest sequence_request(size_t index) const;
  void on_event(size_t index, SequenceEvent event);
  void take(Input& input, const std::vector<double>& pooled);
  void finish();
  std::string answer_text() const;
  void fail(const Status& error, bool quarantined = false);
  void cancel_all();

  const CompletionContext& context_;
  const ReadEmbedding read_;
  const std::shared_ptr<Exchange> exchange_;
  std::vector<Input> inputs_;
  size_t open_ = 0;
  bool over_ = false;
};

/// The JSON of one embedding: numbers, or the base64 of its little-endian f32.
std::string embedding_json(const std::vector<float>& values, bool base64);
/// In f32; `normalize`: of length 1, unless all are zero.
std::vector<float> embedding_values(const std::vector<double>& pooled, bool normalize);

}  // namespace moestro::orchestrator
