// The lines of batches in Redis: their results, and whose they are.

#include <algorithm>
#include <charconv>

#include "orchestrator/state/redis_records.h"
#include "orchestrator/state/redis_store.h"

namespace moestro::orchestrator {
namespace {

constexpr size_t kLinesOfACall = 256;
/// A script's arguments stay well below what Redis takes (proto-max-bulk-len, Lua's stack).
constexpr size_t kBytesOfACall = 8 << 20;

/// Calls `found` with each bit that is set, from bit `from` on, in Redis' order of bits; until it says false.
template <typename Found>
void each_line(std::string_view bitmap, uint64_t from, Found found) {
  for (uint64_t line = from; line / 8 < bitmap.size(); ++line) {
    const auto byte = static_cast<unsigned char>(bitmap[line / 8]);
    if (byte == 0) {
      line |= 7;
      continue;
    }
    if ((byte >> (7 - line % 8) & 1) != 0 && !found(line)) return;
  }
}

}  // namespace

Result<LineCounts> RedisStore::put_results(const std::string& batch, std::span<const LineResult> results) {
  LineCounts kept;
  while (!results.empty()) {
    std::vector<std::string> words{batch, served_.version};
    size_t n = 0, bytes = 0;
    for (; n < results.size() && n < kLinesOfACall && (n == 0 || bytes + results[n].text.size() <= kBytesOfACall);
         ++n) {
      const LineResult& r = results[n];
      bytes += r.text.size();
      for (const uint64_t figure : {r.line, uint64_t{r.good}, r.prompt_tokens, r.cached_tokens, r.completion_tokens})
        words.push_back(std::to_string(figure));
      words.push_back(r.text);
    }
    MOESTRO_ASSIGN_OR_RETURN(const RedisReply counts, run(redis::kPutResults, words));
    kept.good += static_cast<uint64_t>(counts[0].integer()), kept.bad += static_cast<uint64_t>(counts[1].integer());
    results = results.subspan(n);
  }
  return kept;
}

Result<std::vector<uint64_t>> RedisStore::lines_done(const std::string& batch) {
  const std::string key = "moestro:done:" + batch;
  MOESTRO_ASSIGN_OR_RETURN(const RedisReply bitmap, link_.call({"GET", key}));
  std::vector<uint64_t> lines;
  each_line(bitmap->text(), 0, [&](uint64_t line) {
    lines.push_back(line);
    return true;
  });
  return lines;
}

Result<std::vector<LineResult>> RedisStore::results(const std::string& batch, uint64_t after, int64_t limit) {
  // The bitmap from `after` on, a piece at a time, tells which lines to ask for.
  constexpr uint64_t kPiece = 4096;
  const std::string done = "moestro:done:" + batch, kept = "moestro:results:" + batch;
  MOESTRO_ASSIGN_OR_RETURN(const RedisReply length, link_.call({"STRLEN", done}));
  std::vector<uint64_t> lines;
  for (uint64_t at = (after + 1) / 8; at < static_cast<uint64_t>(length->integer()) && lines.empty(); at += kPiece) {
    const std::string first = std::to_string(at), last = std::to_string(at + kPiece - 1);
    MOESTRO_ASSIGN_OR_RETURN(const RedisReply piece, link_.call({"GETRANGE", done, first, last}));
    const uint64_t base = at * 8;
    each_line(piece->text(), after + 1 > base ? after + 1 - base : 0, [&](uint64_t line) {
      lines.push_back(base + line);
      return static_cast<int64_t>(lines.size()) < limit;
    });
  }
  std::vector<LineResult> results;
  if (lines.empty()) return results;
  std::vector<std::string> names;
  for (const uint64_t line : lines) names.push_back(std::to_string(line));
  RedisLink::Words words{"HMGET", kept};
  words.insert(words.end(), names.begin(), names.end());
  MOESTRO_ASSIGN_OR_RETURN(const RedisReply texts, link_.call(words));
  for (size_t i = 0; i < lines.size(); ++i)
    if (!texts[i].is_nil()) results.push_back(line_result_of(lines[i], texts[i].text()));
  return results;
}

/// Whether orchestrators that have said nothing for a lease are dead. Not for a lease after a new connection.
Result<bool> RedisStore::may_claim() {
  MOESTRO_ASSIGN_OR_RETURN(const uint64_t generation, link_.generation());
  if (std::exchange(claim_generation_, generation) != generation) claim_from_ = Clock::now() + options_.lease;
  return Clock::now() >= claim_from_;
}

std::vector<std::string> RedisStore::served_words(bool may_claim) const {
  std::vector<std::string> words{options_.host, may_claim ? "1" : "0", served_.version};
  words.insert(words.end(), served_.names.begin(), served_.names.end());
  return words;
}

Result<std::vector<HeldName>> RedisStore::beat(const ServedVersion& served) {
  served_ = served;  // whether this is heard or not: what is computed from now on is of this version
  MOESTRO_ASSIGN_OR_RETURN(const bool may, may_claim());
  std::vector<std::string> words = served_words(may);
  words.push_back(std::to_string(options_.lease.count()));
  MOESTRO_ASSIGN_OR_RETURN(const RedisReply reply, run(redis::kBeat, words));
  std::vector<HeldName> held;
  for (size_t at = 0; at + 2 < reply->size();) {
    HeldName& name = held.emplace_back(std::string(reply[at].text()), std::string(reply[at + 1].text()));
    const auto hosts = static_cast<size_t>(reply[at + 2].integer());
    for (at += 3; name.hosts.size() < hosts; ++at) name.hosts.emplace_back(reply[at].text());
  }
  return held;
}

Status RedisStore::leave() {
  MOESTRO_ASSIGN_OR_RETURN(const bool may, may_claim());
  return run(redis::kLeave, served_words(may)).status();
}

Result<bool> RedisStore::lead(const std::string& batch) {
  MOESTRO_ASSIGN_OR_RETURN(const RedisReply leads, run(redis::kLead, std::vector{batch, options_.host}));
  return leads->integer() == 1;
}

Status RedisStore::offer(const std::string& batch, std::span<const QueuedLine> lines, bool anew) {
  std::vector<std::string> words{batch, options_.host, anew ? "1" : "0"};
  for (const QueuedLine& line : lines) {
    words.push_back(std::to_string(line.number));
    words.push_back(std::to_string(line.offset));
  }
  return run(redis::kOffer, words).status();
}

Result<std::vector<QueuedLine>> RedisStore::take(const std::string& batch, size_t most) {
  MOESTRO_ASSIGN_OR_RETURN(const bool may, may_claim());
  const std::vector<std::string> words{batch, options_.host, std::to_string(std::min(most, kLinesOfACall)),
                                       may ? "1" : "0", served_.version};
  MOESTRO_ASSIGN_OR_RETURN(const RedisReply taken, run(redis::kTake, words));
  std::vector<QueuedLine> lines;
  for (size_t i = 0; i + 1 < taken->size(); i += 2) {
    const std::string_view id = taken[i].text(), offset = taken[i + 1].text();
    QueuedLine line;
    std::from_chars(id.data(), id.data() + id.size(), line.number);
    std::from_chars(offset.data(), offset.data() + offset.size(), line.offset);
    lines.push_back(line);
  }
  return lines;
}

Status RedisStore::give_back(const std::string& batch, std::span<const uint64_t> lines) {
  std::vector<std::string> words{batch, options_.host};
  for (const uint64_t line : lines) words.push_back(std::to_string(line));
  return run(redis::kGiveBack, words).status();
}

Status RedisStore::hold_only(const std::string& batch, std::span<const uint64_t> lines) {
  std::vector<std::string> words{batch, options_.host};
  for (const uint64_t line : lines) words.push_back(std::to_string(line));
  return run(redis::kHoldOnly, words).status();
}

}  // namespace moestro::orchestrator
