#pragma once
// The "model" of tokenizer.json: byte-pair encoding by ranked merges, as in Sennrich et al. 2016 (arXiv
// 1508.07909).

#include <array>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "orchestrator/tokenizer/model.h"

namespace moestro::tok {

class BpeModel : public Model {
 public:
  static Result<BpeModel> parse(const Json& part);

  Status tokenize(std::string_view piece, const std::stop_token& stop, std::vector<TokenId>& out) const override;

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

  Status parse_options(const Json& part);
  Status parse_merges(const Json& part);
  Status add_merge(std::string_view left, std::string_view right, int32_t rank);
  Merge* slot(uint64_t pair);
  const Merge* find(TokenId left, TokenId right) const;
  Status split(std::string_view piece, std::vector<TokenId>& ids) const;
  void merge_short(std::vector<TokenId>& ids) const;
  Status merge_long(const std::stop_token& stop, std::vector<TokenId>& ids) const;

  std::vector<Merge> merges_;  // open addressing; the size is a power of two, at most half full
  ByteTokens byte_tokens_;
  std::array<TokenId, 0x800> char_ids_{};  // ids of the characters of one or two bytes: -1 where there is none
  std::string prefix_, suffix_, unk_token_;
  bool has_unk_ = false, fuse_unk_ = false, byte_fallback_ = false, ignore_merges_ = false;
};

}  // namespace moestro::tok
