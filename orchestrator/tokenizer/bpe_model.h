#pragma once
// The "model" of tokenizer.json: byte-pair encoding by ranked merges, as in Sennrich et al. 2016 (arXiv
// 1508.07909).

#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/ids.h"
#include "common/status.h"
#include "orchestrator/tokenizer/json_fields.h"

namespace moestro::tok {

class BpeModel {
 public:
  static Result<BpeModel> parse(const Json& part);

  /// Appends the ids of one piece. Errors: kInvalidArgument if a character has no token and the file names no
  /// usable unk_token.
  Status tokenize(std::string_view piece, std::vector<TokenId>& out) const;

  const std::unordered_map<std::string, TokenId>& vocab() const { return vocab_; }
  TokenId id_of(std::string_view token) const;  ///< -1: none

 private:
  struct Symbol {
    TokenId id;
    int32_t previous, next;  // -1: none
  };
  struct Merge {
    uint64_t pair = kNoPair;
    int32_t rank = 0;
    TokenId merged = 0;
  };
  static constexpr uint64_t kNoPair = ~uint64_t{0};

  Status parse_vocab(const Json& part);
  Status parse_options(const Json& part);
  Status parse_merges(const Json& part);
  Status add_merge(std::string_view left, std::string_view right, int32_t rank);
  Merge* slot(uint64_t pair);
  const Merge* find(TokenId left, TokenId right) const;
  Status split(std::string_view piece, std::vector<TokenId>& ids) const;
  bool append_bytes(std::string_view character, std::vector<TokenId>& ids) const;
  void merge_short(std::vector<TokenId>& ids) const;
  void merge_long(std::vector<TokenId>& ids) const;

  std::unordered_map<std::string, TokenId> vocab_;
  std::vector<Merge> merges_;  // open addressing; the size is a power of two, at most half full
  std::array<TokenId, 256> byte_ids_{};
  std::array<TokenId, 0x800>
      char_ids_{};  // ids of the characters of one or two bytes: -1 where there is none
  std::string prefix_, suffix_, unk_token_;
  bool has_unk_ = false, fuse_unk_ = false, byte_fallback_ = false, ignore_merges_ = false;
};

}  // namespace moestro::tok
