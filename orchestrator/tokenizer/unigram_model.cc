#include "orchestrator/tokenizer/unigram_model.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "orchestrator/tokenizer/unicode.h"

namespace moestro::tok {
namespace {

constexpr double kUnknownPenalty = 10.0;  // below the least likely token, as in sentencepiece
constexpr size_t kBytesBetweenLooks = 4096;

}  // namespace

Result<UnigramModel> UnigramModel::parse(const Json& part) {
  UnigramModel model;
  MOESTRO_RETURN_IF_ERROR(model.parse_tokens(part));
  MOESTRO_ASSIGN_OR_RETURN(model.byte_fallback_, read_bool(part, "byte_fallback", false));
  if (member(part, "unk_id") != nullptr) {
    const auto last = static_cast<int64_t>(model.scores_.size()) - 1;
    MOESTRO_ASSIGN_OR_RETURN(const int64_t id, read_int(part, "unk_id", 0, last));
    model.unk_id_ = static_cast<TokenId>(id);
  }
  model.byte_tokens_.find(model);
  model.build_tree();
  return model;
}

Status UnigramModel::parse_tokens(const Json& part) {
  const Json* list = member(part, "vocab");
  if (list == nullptr || !list->is_array()) return invalid_argument("'vocab' must be an array");
  double least = 0;
  for (const Json& entry : *list) {
    const auto id = static_cast<TokenId>(scores_.size());
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number())
      return invalid_argument("entry " + std::to_string(id) + " of 'vocab' must be a token and its score");
    scores_.push_back(entry[1].get<double>());
    least = scores_.size() == 1 ? scores_.back() : std::min(least, scores_.back());
    vocab_.insert_or_assign(entry[0].get<std::string>(), id);  // of two equal tokens the last one counts
  }
  unk_score_ = least - kUnknownPenalty;
  return Status::ok();
}

void UnigramModel::build_tree() {
  std::vector<std::pair<std::string_view, TokenId>> sorted(vocab_.begin(), vocab_.end());
  std::sort(sorted.begin(), sorted.end());
  std::erase_if(sorted, [](const auto& token) { return token.first.empty(); });
  // Breadth first, so that the children of a node come to lie side by side.
  struct Pending {
    size_t begin, end;  // of `sorted`: the tokens below the node
    size_t depth;
  };
  std::vector<Pending> pending = {{0, sorted.size(), 0}};
  nodes_.emplace_back();
  bytes_.push_back(0);
  for (size_t n = 0; n < pending.size(); ++n) {
    Pending at = pending[n];
    if (at.begin < at.end && sorted[at.begin].first.size() == at.depth) nodes_[n].id = sorted[at.begin++].second;
    nodes_[n].children = static_cast<uint32_t>(nodes_.size());
    while (at.begin < at.end) {
      const char byte = sorted[at.begin].first[at.depth];
      size_t end = at.begin;
      while (end < at.end && sorted[end].first[at.depth] == byte) ++end;
      pending.push_back({at.begin, end, at.depth + 1});
      nodes_.emplace_back();
      bytes_.push_back(byte);
      ++nodes_[n].child_count;
      at.begin = end;
    }
  }
}

const UnigramModel::Node* UnigramModel::child(const Node& node, char byte) const {
  const auto begin = bytes_.begin() + node.children, end = begin + node.child_count;
  const auto less = [](char a, char b) { return static_cast<unsigned char>(a) < static_cast<unsigned char>(b); };
  const auto at = std::lower_bound(begin, end, byte, less);
  return at == end || *at != byte ? nullptr : &nodes_[static_cast<size_t>(at - bytes_.begin())];
}

// steps[i]: the likeliest way to come to byte i. Of two equal ones the first found stays, as in the reference.
Status UnigramModel::best_steps(std::string_view piece, const std::stop_token& stop, std::vector<Step>& steps) const {
  steps.assign(piece.size() + 1, Step());
  for (size_t begin = 0, next_look = 0; begin < piece.size();) {
    if (begin >= next_look) {
      if (stop.stop_requested()) return stopped();
      next_look = begin + kBytesBetweenLooks;
    }
    const double so_far = steps[begin].score;
    const size_t bytes = code_point_at(piece, begin).bytes;
    const auto offer = [&](size_t end, double score, TokenId id) {
      if (steps[end].id < 0 || so_far + score > steps[end].score) steps[end] = {so_far + score, begin, id};
    };
    bool single = false;
    const Node* node = &nodes_[0];
    for (size_t end = begin; end < piece.size() && (node = child(*node, piece[end])) != nullptr;) {
      ++end;
      if (node->id < 0) continue;
      offer(end, scores_[static_cast<size_t>(node->id)], node->id);
      single = single || end - begin == bytes;
    }
    if (!single) {
      if (!unk_id_) return invalid_argument("a character has no token, and the model names no unk_id");
      offer(begin + bytes, unk_score_, *unk_id_);
    }
    begin += bytes;
  }
  return Status::ok();
}

// A token, or what is unknown: the bytes of it where all of them have tokens.
Status UnigramModel::append(std::string_view text, std::vector<TokenId>& out) const {
  if (const TokenId id = id_of(text); id >= 0) return out.push_back(id), Status::ok();
  if (byte_fallback_ && byte_tokens_.append(text, out)) return Status::ok();
  if (!unk_id_) return invalid_argument("a character has no token, and the model names no unk_id");
  out.push_back(*unk_id_);
  return Status::ok();
}

Status UnigramModel::tokenize(std::string_view piece, const std::stop_token& stop, std::vector<TokenId>& out) const {
  if (piece.empty()) return Status::ok();
  std::vector<Step> steps;
  MOESTRO_RETURN_IF_ERROR(best_steps(piece, stop, steps));
  // Backwards along the way; unknown characters side by side are one.
  std::vector<std::string_view> parts;
  size_t end = piece.size();
  while (end > 0) {
    size_t begin = steps[end].begin;
    if (unk_id_ && steps[end].id == *unk_id_) {
      while (begin > 0 && steps[begin].id == *unk_id_) begin = steps[begin].begin;
    }
    parts.push_back(piece.substr(begin, end - begin));
    end = begin;
  }
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) MOESTRO_RETURN_IF_ERROR(append(*part, out));
  return Status::ok();
}

}  // namespace moestro::tok
