#include <gmock/gmock.h>

#include <random>
#include <thread>

#include "orchestrator/tokenizer/tokenizer.h"
#include "tests/tokenizer/make_tokenizer.h"
#include "tests/tokenizer/tiny_tokenizers.h"

namespace moestro {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace moestro::testing;  // NOLINT

std::vector<std::string> tokens(const Tokenizer& tokenizer, std::string_view text, bool special = false) {
  const auto ids = tokenizer.encode(text, special);
  EXPECT_TRUE(ids.is_ok()) << ids.status().message();
  std::vector<std::string> out;
  for (const TokenId id : *ids) out.emplace_back(tokenizer.token(id));
  return out;
}

const Merges kHello = {{"h", "e"}, {"l", "l"}, {"he", "ll"}, {"hell", "o"}, {"Ġ", "w"}};

TEST(Encode, MergesByteLevelPieces) {
  const Tokenizer tokenizer = make(gpt2_like(kHello));
  EXPECT_THAT(tokens(tokenizer, "hello world"), ElementsAre("hello", "Ġw", "o", "r", "l", "d"));
  EXPECT_THAT(tokens(tokenizer, ""), ElementsAre());
  EXPECT_THAT(tokens(tokenizer, "é\n"), ElementsAre("Ã", "©", "Ċ"));
}

TEST(Encode, Gpt2RegexSplitsBeforeMerging) {
  // The merges could join everything; the pieces of the regex keep them apart.
  const Tokenizer tokenizer =
      make(gpt2_like({{"Ġ", "Ġ"}, {"ĠĠ", "Ġ"}, {"'", "l"}, {"'l", "l"}, {"1", "a"}, {"Ġ", "x"}}));
  EXPECT_THAT(tokens(tokenizer, "I'll"), ElementsAre("I", "'ll"));
  EXPECT_THAT(tokens(tokenizer, "1a"), ElementsAre("1", "a"));
  EXPECT_THAT(tokens(tokenizer, "   x"), ElementsAre("ĠĠ", "Ġx"));
  EXPECT_THAT(tokens(tokenizer, "x   "), ElementsAre("x", "ĠĠĠ"));
}

TEST(Encode, Llama3RegexAndWholeWords) {
  Json json = gpt2_like({{"1", "2"}, {"12", "3"}, {"4", "5"}});
  json["model"]["ignore_merges"] = true;
  json["model"]["vocab"]["whole"] = 900;
  json["pre_tokenizer"] = Json::parse(R"J({"type":"Sequence","pretokenizers":[
    {"type":"Split","pattern":{"Regex":"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
     "behavior":"Isolated","invert":false},
    {"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}]})J");
  const Tokenizer tokenizer = make(json);
  EXPECT_THAT(tokens(tokenizer, "12345"), ElementsAre("123", "45"));
  EXPECT_THAT(tokens(tokenizer, "whole"), ElementsAre("whole"))
      << "no merge makes it, but ignore_merges takes it";
  EXPECT_THAT(tokens(tokenizer, "a'S"), ElementsAre("a", "'", "S"));
}

TEST(Encode, ByteFallbackAndBos) {
  const Tokenizer tokenizer = make(llama2_like({{"▁", "a"}, {"▁a", "b"}}));
  EXPECT_THAT(tokens(tokenizer, "ab ab", true), ElementsAre("<s>", "▁ab", "▁ab"));
  EXPECT_THAT(tokens(tokenizer, "aé", false), ElementsAre("▁a", "<0xC3>", "<0xA9>"));
  EXPECT_THAT(tokens(tokenizer, "</s>b", false), ElementsAre("</s>", "▁", "b"));
}

TEST(Encode, UnknownCharactersWithoutByteFallback) {
  Json json = llama2_like({});
  json["model"]["byte_fallback"] = false;
  EXPECT_THAT(tokens(make(json), "éèa"), ElementsAre("▁", "<unk>", "a"));
  json["model"]["fuse_unk"] = false;
  EXPECT_THAT(tokens(make(json), "éèa"), ElementsAre("▁", "<unk>", "<unk>", "a"));
  json["model"]["unk_token"] = "<nope>";
  EXPECT_THAT(make(json).encode("é", false).status().message(), HasSubstr("<nope>"));
}

TEST(Encode, AddedTokens) {
  Json json = gpt2_like({});
  json["added_tokens"] = {added_token(256, "<a>"), added_token(257, "<a><b>"),
                          added_token(258, "word", {{"single_word", true}}),
                          added_token(259, "<gap>", {{"lstrip", true}, {"rstrip", true}})};
  const Tokenizer tokenizer = make(json);
  EXPECT_THAT(tokens(tokenizer, "x<a><b>y<a>"), ElementsAre("x", "<a><b>", "y", "<a>"))
      << "the longest at a place";
  EXPECT_THAT(tokens(tokenizer, "word-words"), ElementsAre("word", "-", "w", "o", "r", "d", "s"));
  EXPECT_THAT(tokens(tokenizer, "x  <gap>\ny"), ElementsAre("x", "<gap>", "y"));
  EXPECT_TRUE(tokenizer.is_special(256));
  EXPECT_EQ(tokenizer.id_of("<gap>"), 259);
  EXPECT_EQ(tokenizer.vocab_size(), 260);
}

// The ids are those that Hugging Face's tokenizers 0.23.3 gives for these lists.
TEST(Encode, AddedTokensAreNumberedInTheirOrder) {
  const auto ids = [](const Json& vocab, const Json& added) {
    const Json model = {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"a b"}}};
    const Tokenizer tokenizer = make({{"model", model}, {"added_tokens", added}});
    return *tokenizer.encode("<x><y><z>ab", false);
  };
  const Json vocab = {{"a", 0}, {"b", 1}, {"ab", 2}};
  EXPECT_THAT(ids(vocab, {added_token(10, "<x>"), added_token(20, "<y>"), added_token(5, "<z>")}),
              ElementsAre(3, 4, 5, 2))
      << "gaps and order in the file do not count";
  EXPECT_THAT(ids(vocab, {added_token(10, "<x>"), added_token(1, "<y>"), added_token(11, "a"), added_token(12, "<x>"),
                          added_token(30, "")}),
              ElementsAre(3, 4, 0, 1))
      << "a token of the vocabulary keeps its id, the same one twice has one";
  const Json gap = {{"a", 0}, {"b", 7}, {"ab", 2}};
  EXPECT_THAT(ids(gap, {added_token(10, "<x>"), added_token(11, "<y>")}), ElementsAre(3, 4, 2));
  EXPECT_THAT(ids(gap, {added_token(7, "b"), added_token(11, "<y>")}), ElementsAre(3, 0, 7))
      << "nor does an id of the vocabulary beyond its size";
}

TEST(Encode, NormalizersRunBeforeNormalizedAddedTokens) {
  Json json = gpt2_like({});
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, {{"type", "Lowercase"}}}}};
  json["added_tokens"] = {added_token(300, "TAG", {{"normalized", true}}),
                          added_token(301, "RAW", {{"normalized", false}})};
  const Tokenizer tokenizer = make(json);
  EXPECT_THAT(tokens(tokenizer, "e\u0301"), ElementsAre("Ã", "©")) << "composed";
  EXPECT_THAT(tokens(tokenizer, "tagTaGRAWraw"), ElementsAre("TAG", "TAG", "RAW", "r", "a", "w"));
}

TEST(Encode, MetaspaceFirstPrefixesOnlyTheStartOfTheText) {
  Json json = llama2_like({{"▁", "a"}});
  json.erase("normalizer");
  json["pre_tokenizer"] = {
      {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}, {"split", false}};
  const Tokenizer tokenizer = make(json);
  EXPECT_THAT(tokens(tokenizer, "a a"), ElementsAre("▁a", "▁a"));
  EXPECT_THAT(tokens(tokenizer, "<s>a"), ElementsAre("<s>", "a"));
}

TEST(Encode, SplitBehaviors) {
  const auto pieces = [](const char* behavior, bool invert) {
    Json json = gpt2_like({{"a", "-"}, {"-", "-"}, {"-", "b"}, {"a-", "-"}, {"--", "b"}, {"a--", "b"}});
    json["pre_tokenizer"] = {
        {"type", "Sequence"},
        {"pretokenizers",
         {{{"type", "Split"}, {"pattern", {{"String", "-"}}}, {"behavior", behavior}, {"invert", invert}},
          {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
    return tokens(make(json), "a--b");
  };
  EXPECT_THAT(pieces("Isolated", false), ElementsAre("a", "-", "-", "b"));
  EXPECT_THAT(pieces("Removed", false), ElementsAre("a", "b"));
  EXPECT_THAT(pieces("Removed", true), ElementsAre("-", "-"));
  EXPECT_THAT(pieces("MergedWithPrevious", false), ElementsAre("a-", "-", "b"));
  EXPECT_THAT(pieces("MergedWithNext", false), ElementsAre("a", "-", "-b"));
  EXPECT_THAT(pieces("Contiguous", false), ElementsAre("a", "--", "b"));
}

// The definition of BPE, taken literally: join the pair of lowest rank, leftmost first, until none is left.
std::vector<std::string> naive_bpe(std::vector<std::string> symbols, const Merges& merges) {
  for (;;) {
    size_t best_rank = merges.size(), best_at = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      for (size_t rank = 0; rank < best_rank; ++rank) {
        if (merges[rank].first == symbols[i] && merges[rank].second == symbols[i + 1])
          best_rank = rank, best_at = i;
      }
    }
    if (best_rank == merges.size()) return symbols;
    symbols[best_at] += symbols[best_at + 1];
    symbols.erase(symbols.begin() + static_cast<long>(best_at) + 1);
  }
}

TEST(Encode, EqualsTheDefinitionOfBpeForShortAndLongPieces) {
  std::mt19937 random(20261121);
  for (int round = 0; round < 60; ++round) {
    Merges merges;
    std::vector<std::string> known = {"a", "b", "c"};
    for (int i = 0; i < 12; ++i) {
      const std::pair<std::string, std::string> merge = {known[random() % known.size()],
                                                         known[random() % known.size()]};
      if (std::find(merges.begin(), merges.end(), merge) != merges.end()) continue;
      merges.push_back(merge);
      known.push_back(merge.first + merge.second);
    }
    const Tokenizer tokenizer = make(gpt2_like(merges));
    for (size_t length = 1; length < 80; length += 1 + length / 8) {
      std::string text;
      std::vector<std::string> symbols;
      for (size_t i = 0; i < length; ++i) {
        text += static_cast<char>('a' + random() % 3);
        symbols.emplace_back(1, text.back());
      }
      ASSERT_EQ(tokens(tokenizer, text), naive_bpe(symbols, merges)) << "round " << round << ": " << text;
    }
  }
}

TEST(Encode, InvalidUtf8IsAnErrorThatNamesTheByte) {
  const Tokenizer tokenizer = make(gpt2_like({}));
  for (const std::string_view bad :
       {"ab\xFF", "ab\xC3", "ab\xE0\x80\x80", "ab\xED\xA0\x80", "ab\xF4\x90\x80\x80", "ab\xC0\xAF"}) {
    const auto ids = tokenizer.encode(bad, false);
    ASSERT_FALSE(ids.is_ok());
    EXPECT_EQ(ids.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(ids.status().message(), HasSubstr("not valid UTF-8 at byte 2"));
  }
}

TEST(Encode, OneTokenizerServesManyThreads) {
  const Tokenizer tokenizer = make(gpt2_like(kHello));
  const auto expected = *tokenizer.encode("hello world, hello!", true);
  std::vector<int> wrong(4, 0);
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i)
        wrong[static_cast<size_t>(t)] += *tokenizer.encode("hello world, hello!", true) != expected;
    });
  }
  threads.clear();
  EXPECT_THAT(wrong, ElementsAre(0, 0, 0, 0));
}

}  // namespace
}  // namespace moestro
