#include "orchestrator/forms/reasoning.h"

#include <gtest/gtest.h>

namespace moestro::orchestrator {
namespace {

const ReasoningStyle kStyle{"<think>", "</think>"};

struct Said {
  std::string reasoning, content;
  friend bool operator==(const Said&, const Said&) = default;
};
std::ostream& operator<<(std::ostream& out, const Said& said) {
  return out << "reasoning '" << said.reasoning << "', content '" << said.content << "'";
}

void take(ReasoningParser& parser, Said& said) {
  for (const ReasonedText& t : parser.take()) (t.reasoning ? said.reasoning : said.content) += t.text;
}
Said taken(ReasoningParser& parser) {
  Said said;
  take(parser, said);
  return said;
}

/// In pieces of `size` bytes; nothing that was given out may be taken back, so the joined pieces are all there is.
Said parted(const std::string& text, size_t size, bool open = false) {
  ReasoningParser parser(kStyle, open);
  Said said;
  for (size_t at = 0; at < text.size(); at += size) {
    parser.push(std::string_view(text).substr(at, size));
    take(parser, said);
  }
  parser.finish();
  take(parser, said);
  return said;
}

void expect(const std::string& text, bool open, const Said& wanted) {
  for (const size_t size : {1, 2, 3, 5, 1000}) EXPECT_EQ(parted(text, size, open), wanted) << text << " by " << size;
}

TEST(Reasoning, IsWhatStandsBetweenTheMarkers) {
  expect("<think>\nOne.\n\nTwo.\n</think>\n\nThe answer. ", false, {"One.\n\nTwo.", "The answer. "});
  expect("\n<think>a</think>b", false, {"a", "b"});
  expect("<think></think>b", false, {"", "b"});
}

TEST(Reasoning, ThePromptMayHaveBegunIt) {
  expect("\nOne.\n</think>\nTwo.", true, {"One.", "Two."});
  expect("One", true, {"One", ""});
}

TEST(Reasoning, ATextWithoutItIsAllContent) {
  for (const char* text : {"", "  plain", "<thin", "<thinking> no", "a <think>b</think>", "x</think>y"})
    expect(text, false, {"", text});
}

TEST(Reasoning, WhatLooksLikeTheEndAndIsNoneIsReasoning) {
  expect("<think>a </thin b</think>c</think>", false, {"a </thin b", "c</think>"});
  expect("<think>a </think", false, {"a </think", ""});
}

TEST(Reasoning, ComesAsItIsSaid) {
  ReasoningParser parser(kStyle, true);
  parser.push("One two ");
  EXPECT_EQ(taken(parser), (Said{"One two", ""}));
  parser.push("</");
  EXPECT_EQ(taken(parser), Said());
  parser.push("b>");
  EXPECT_EQ(taken(parser), (Said{" </b>", ""}));
  parser.push("</think>Yes");
  EXPECT_EQ(taken(parser), (Said{"", "Yes"}));
}

/// gpt-oss' harmony, as its template shows it.
ReasoningStyle harmony() { return *reasoning_style_of("<|start|>assistant<|channel|>analysis<|message|>"); }

void expect_harmony(const std::string& text, bool open, const Said& wanted) {
  for (const size_t size : {1, 2, 3, 7, 1000}) {
    ReasoningParser parser(harmony(), open);
    Said said;
    for (size_t at = 0; at < text.size(); at += size) {
      parser.push(std::string_view(text).substr(at, size));
      take(parser, said);
    }
    parser.finish();
    take(parser, said);
    EXPECT_EQ(said, wanted) << text << " by " << size;
  }
}

TEST(Reasoning, OfHarmonyIsTheChannelAnalysis) {
  const std::string analysis = "<|channel|>analysis<|message|>",
                    answer = "<|start|>assistant<|channel|>final<|message|>";
  expect_harmony(analysis + "One. Two.<|end|>" + answer + "The answer.", false, {"One. Two.", "The answer."});
  expect_harmony("<|channel|>final<|message|>At once. ", false, {"", "At once. "});
  expect_harmony(analysis + "One.<|end|><|start|>assistant" + analysis + "Two.<|end|>" + answer + "3", false,
                 {"One.\n\nTwo.", "3"});
  expect_harmony(analysis + "a <|en b<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|>" + answer +
                     "Found.",
                 false, {"a <|en b", "I look.Found."});
  expect_harmony("goes on<|end|>" + answer + "x", true, {"goes on", "x"});
  expect_harmony(analysis + "cut sho", false, {"cut sho", ""});
  expect_harmony(analysis + "One.<|end|><|start|>assis", false, {"One.", ""});
  expect_harmony("the prompt has begun <|channel|> it", false, {"", "the prompt has begun <|channel|> it"});
  expect_harmony("<|channel|>" + std::string(300, 'x'), false, {"", "<|channel|>" + std::string(300, 'x')});
  const std::string too_long = "<|channel|>" + std::string(300, 'x') + "<|message|>hi";
  expect_harmony(too_long, false, {"", too_long});  // also where it comes at once
  EXPECT_TRUE(leaves_reasoning_open(harmony(), "<|start|>assistant<|channel|>analysis<|message|>so"));
  EXPECT_EQ(harmony().shown().size(), 6u) << "special tokens that a text leaves out otherwise";
}

TEST(Reasoning, TheTemplateShowsTheStyle) {
  EXPECT_EQ(reasoning_style_of("{{ m.content.split('</think>')[-1] }}")->begin, "<think>");
  EXPECT_EQ(reasoning_style_of("[THINK]{{ x }}[/THINK]")->end, "[/THINK]");
  EXPECT_FALSE(reasoning_style_of("{{ m.content }} I think"));
  EXPECT_TRUE(opens_reasoning(kStyle, "<|assistant|><think>\n"));
  EXPECT_FALSE(opens_reasoning(kStyle, "<think>\n\n</think>\n\n"));
  EXPECT_FALSE(opens_reasoning(kStyle, " \n"));
  EXPECT_TRUE(leaves_reasoning_open(kStyle, "<think>so far"));
  EXPECT_FALSE(leaves_reasoning_open(kStyle, "<think>so</think> far"));
  EXPECT_FALSE(leaves_reasoning_open(kStyle, "so far"));
}

}  // namespace
}  // namespace moestro::orchestrator
