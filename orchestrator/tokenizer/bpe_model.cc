#include "orchestrator/tokenizer/bpe_model.h"

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <queue>

#include "common/model/strict_json.h"
#include "orchestrator/tokenizer/unicode.h"

namespace moestro::tok {
namespace {

constexpr size_t kShortPieceMax = 24;  // up to here a scan beats a heap
constexpr size_t kStepsBetweenLooks = 4096;

uint64_t pair_of(TokenId left, TokenId right) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
}

uint64_t spread(uint64_t pair) {
  pair *= 0x9E3779B97F4A7C15ull;
  return pair ^ (pair >> 32);
}

}  // namespace

Result<BpeModel> BpeModel::parse(const Json& part) {
  BpeModel model;
  MOESTRO_RETURN_IF_ERROR(model.parse_options(part));
  MOESTRO_RETURN_IF_ERROR(model.parse_vocab(part));
  MOESTRO_RETURN_IF_ERROR(model.parse_merges(part));
  model.byte_tokens_.find(model);
  for (char32_t c = 0; c < model.char_ids_.size(); ++c) {
    std::string text;
    append_utf8(text, c);
    model.char_ids_[c] = model.id_of(text);
  }
  return model;
}

Status BpeModel::parse_options(const Json& part) {
  MOESTRO_ASSIGN_OR_RETURN(prefix_, read_string_or(part, "continuing_subword_prefix", ""));
  MOESTRO_ASSIGN_OR_RETURN(suffix_, read_string_or(part, "end_of_word_suffix", ""));
  MOESTRO_ASSIGN_OR_RETURN(unk_token_, read_string_or(part, "unk_token", ""));
  has_unk_ = member(part, "unk_token") != nullptr;
  MOESTRO_ASSIGN_OR_RETURN(fuse_unk_, read_bool(part, "fuse_unk", false));
  MOESTRO_ASSIGN_OR_RETURN(byte_fallback_, read_bool(part, "byte_fallback", false));
  MOESTRO_ASSIGN_OR_RETURN(ignore_merges_, read_bool(part, "ignore_merges", false));
  const Json* dropout = member(part, "dropout");
  if (dropout != nullptr && !(dropout->is_number() && dropout->get<double>() == 0.0)) {
    return unsupported("BPE dropout makes ids random, which is not supported");
  }
  return Status::ok();
}

Status BpeModel::parse_merges(const Json& part) {
  const Json* merges = member(part, "merges");
  if (merges == nullptr || !merges->is_array()) return invalid_argument("'merges' must be an array");
  merges_.resize(std::bit_ceil(2 * merges->size() + 2));
  int32_t rank = 0;
  for (const Json& merge : *merges) {
    Status status;
    if (merge.is_string()) {
      const auto& text = merge.get_ref<const std::string&>();
      const size_t space = text.find(' ');
      if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
        status = invalid_argument("must be two tokens with one space between");
      } else {
        status = add_merge(std::string_view(text).substr(0, space), std::string_view(text).substr(space + 1), rank);
      }
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      status = add_merge(merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>(), rank);
    } else {
      status = invalid_argument("must be two tokens");
    }
    if (!status.is_ok()) return status.with_context("merge " + std::to_string(rank));
    ++rank;
  }
  return Status::ok();
}

Status BpeModel::add_merge(std::string_view left, std::string_view right, int32_t rank) {
  const TokenId a = id_of(left), b = id_of(right);
  // The second half drops its continuation prefix when it joins the first.
  const std::string_view tail = right.substr(std::min(prefix_.size(), right.size()));
  const TokenId merged = id_of(std::string(left) + std::string(tail));
  if (a < 0 || b < 0 || merged < 0) {
    return invalid_argument(model::in_quotes(left) + " + " + model::in_quotes(right) +
                            " names a token that is not in the vocabulary");
  }
  *slot(pair_of(a, b)) = Merge{pair_of(a, b), rank, merged};
  return Status::ok();
}

BpeModel::Merge* BpeModel::slot(uint64_t pair) {
  size_t i = spread(pair) & (merges_.size() - 1);
  while (merges_[i].pair != kNoPair && merges_[i].pair != pair) i = (i + 1) & (merges_.size() - 1);
  return &merges_[i];
}

const BpeModel::Merge* BpeModel::find(TokenId left, TokenId right) const {
  const uint64_t pair = pair_of(left, right);
  size_t i = spread(pair) & (merges_.size() - 1);
  while (merges_[i].pair != kNoPair) {
    if (merges_[i].pair == pair) return &merges_[i];
    i = (i + 1) & (merges_.size() - 1);
  }
  return nullptr;
}

Status BpeModel::tokenize(std::string_view piece, const std::stop_token& stop, std::vector<TokenId>& out) const {
  if (piece.empty()) return Status::ok();
  if (ignore_merges_) {
    if (const TokenId whole = id_of(piece); whole >= 0) return out.push_back(whole), Status::ok();
  }
  std::vector<TokenId> ids;
  ids.reserve(piece.size());
  MOESTRO_RETURN_IF_ERROR(split(piece, ids));
  if (ids.size() <= kShortPieceMax)
    merge_short(ids);
  else
    MOESTRO_RETURN_IF_ERROR(merge_long(stop, ids));
  out.insert(out.end(), ids.begin(), ids.end());
  return Status::ok();
}

// One id per character, before any merge. An unknown character waits in `unk_pending`, so that fuse_unk can
// join it to the next; as in the reference, byte-fallback ids do not end the wait.
Status BpeModel::split(std::string_view piece, std::vector<TokenId>& ids) const {
  const TokenId unk = has_unk_ ? id_of(unk_token_) : -1;
  bool unk_pending = false;
  std::string spelled;
  for (size_t i = 0; i < piece.size();) {
    const CodePoint c = code_point_at(piece, i);
    const std::string_view character = piece.substr(i, c.bytes);
    const bool first = i == 0, last = i + c.bytes == piece.size();
    i += c.bytes;
    TokenId id;
    if ((first || prefix_.empty()) && (!last || suffix_.empty())) {
      id = c.value < char_ids_.size() ? char_ids_[c.value] : id_of(character);
    } else {
      spelled = (first ? "" : prefix_) + std::string(character) + (last ? suffix_ : "");
      id = id_of(spelled);
    }
    if (id >= 0) {
      if (unk_pending) ids.push_back(unk);
      unk_pending = false;
      ids.push_back(id);
    } else if (!(byte_fallback_ && byte_tokens_.append(character, ids)) && has_unk_) {
      if (unk < 0) return invalid_argument("unk_token '" + unk_token_.substr(0, 60) + "' is not in the vocabulary");
      if (unk_pending && !fuse_unk_) ids.push_back(unk);
      unk_pending = true;
    }
  }
  if (unk_pending) ids.push_back(unk);
  return Status::ok();
}

// Lowest rank first, leftmost among equals: the same order as merge_long's heap.
void BpeModel::merge_short(std::vector<TokenId>& ids) const {
  const Merge* best_at[kShortPieceMax] = {};
  size_t n = ids.size();
  for (size_t i = 0; i + 1 < n; ++i) best_at[i] = find(ids[i], ids[i + 1]);
  while (n > 1) {
    size_t at = n;
    for (size_t i = 0; i + 1 < n; ++i) {
      if (best_at[i] != nullptr && (at == n || best_at[i]->rank < best_at[at]->rank)) at = i;
    }
    if (at == n) break;
    ids[at] = best_at[at]->merged;
    for (size_t i = at + 1; i + 1 < n; ++i) {
      ids[i] = ids[i + 1];
      best_at[i] = best_at[i + 1];
    }
    --n;
    best_at[at] = at + 1 < n ? find(ids[at], ids[at + 1]) : nullptr;
    if (at > 0) best_at[at - 1] = find(ids[at - 1], ids[at]);
  }
  ids.resize(n);
}

Status BpeModel::merge_long(const std::stop_token& stop, std::vector<TokenId>& ids) const {
  struct Candidate {
    int32_t rank, at;
    TokenId merged;
    bool operator>(const Candidate& other) const { return rank != other.rank ? rank > other.rank : at > other.at; }
  };
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  std::vector<Symbol> symbols(ids.size());
  const auto offer = [&](int32_t at) {
    if (at < 0 || symbols[at].next < 0) return;
    const Merge* merge = find(symbols[at].id, symbols[symbols[at].next].id);
    if (merge != nullptr) queue.push({merge->rank, at, merge->merged});
  };
  const auto n = static_cast<int32_t>(ids.size());
  for (int32_t i = 0; i < n; ++i) symbols[i] = {ids[i], i - 1, i + 1 < n ? i + 1 : -1};
  for (int32_t i = 0; i < n; ++i) offer(i);
  for (size_t step = 1; !queue.empty(); ++step) {
    if (step % kStepsBetweenLooks == 0 && stop.stop_requested()) return stopped();
    const Candidate top = queue.top();
    queue.pop();
    Symbol& left = symbols[top.at];
    if (left.id < 0 || left.next < 0) continue;
    Symbol& right = symbols[left.next];
    const Merge* merge = find(left.id, right.id);
    if (merge == nullptr || merge->merged != top.merged) continue;  // out of date: a neighbour has merged since
    left.id = top.merged;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols[left.next].previous = top.at;
    offer(left.previous);
    offer(top.at);
  }
  ids.clear();
  for (int32_t i = 0; i >= 0; i = symbols[i].next) ids.push_back(symbols[i].id);
  return Status::ok();
}

}  // namespace moestro::tok
