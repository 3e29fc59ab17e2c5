#pragma once
// The "model" of tokenizer.json: pieces to ids.

#include <array>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/ids.h"
#include "common/status.h"
#include "orchestrator/tokenizer/json_fields.h"

namespace moestro::tok {

/// The error for a text whose tokens are no longer wanted.
inline Status stopped() { return cancelled("nobody wants the tokens any more"); }

class Model {
 public:
  /// Errors: kUnsupported for a kind that is not known.
  static Result<std::unique_ptr<Model>> parse(const Json& part);
  virtual ~Model() = default;

  /// Appends the ids of one piece. Errors: kInvalidArgument if the piece has no token and the file names no usable
  /// unknown token, kCancelled (stopped()) soon after a stop was asked for.
  virtual Status tokenize(std::string_view piece, const std::stop_token& stop, std::vector<TokenId>& out) const = 0;

  const std::unordered_map<std::string, TokenId>& vocab() const { return vocab_; }
  TokenId id_of(std::string_view token) const;  ///< -1: none

 protected:
  Model() = default;
  Model(Model&&) = default;
  Model& operator=(Model&&) = default;

  /// "vocab" as an object of tokens and ids.
  Status parse_vocab(const Json& part);

  std::unordered_map<std::string, TokenId> vocab_;
};

/// Ids of the tokens "<0x00>" to "<0xFF>"; -1 where there is none.
class ByteTokens {
 public:
  void find(const Model& model);
  /// Appends the ids of the bytes. If one of them has no id, appends nothing and returns false.
  bool append(std::string_view bytes, std::vector<TokenId>& ids) const;

 private:
  std::array<TokenId, 256> ids_{};
};

}  // namespace moestro::tok
