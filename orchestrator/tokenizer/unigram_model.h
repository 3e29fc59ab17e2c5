#pragma once
// Unigram: the most probable way to cut a piece into tokens (Kudo 2018, arXiv 1804.10959), found by Viterbi's
// algorithm.

#include <optional>
#include <string_view>
#include <vector>

#include "orchestrator/tokenizer/model.h"

namespace moestro::tok {

class UnigramModel : public Model {
 public:
  static Result<UnigramModel> parse(const Json& part);
  Status tokenize(std::string_view piece, const std::stop_token& stop, std::vector<TokenId>& out) const override;

 private:
  /// A node of the tree of all tokens, byte by byte. Its children are stored in order of their bytes, starting at
  /// `children`.
  struct Node {
    uint32_t children = 0;
    uint16_t child_count = 0;
    TokenId id = -1;
  };
  struct Step {
    double score = 0;
    size_t begin = 0;
    TokenId id = -1;  // -1: nothing ends here
  };

  Status parse_tokens(const Json& part);
  void build_tree();
  const Node* child(const Node& node, char byte) const;
  Status best_steps(std::string_view piece, const std::stop_token& stop, std::vector<Step>& steps) const;
  Status append(std::string_view text, std::vector<TokenId>& out) const;

  std::vector<double> scores_;  // by id
  double unk_score_ = 0;
  std::optional<TokenId> unk_id_;
  bool byte_fallback_ = false;
  ByteTokens byte_tokens_;
  std::vector<Node> nodes_;
  std::vector<char> bytes_;  // of each node, as seen from its parent
};

}  // namespace moestro::tok
