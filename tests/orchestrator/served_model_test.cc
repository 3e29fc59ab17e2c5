// What the small files of a model say, and what they may not say.

#include "orchestrator/api/served_model.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <gmock/gmock.h>

#include <fstream>
#include <iterator>

#include "tests/cli/temp_dir.h"
#include "tests/tokenizer/tiny_tokenizers.h"

namespace moestro::orchestrator {
namespace {

using ::testing::HasSubstr;
using nlohmann::json;

class ServedModelTest : public ::testing::Test {
 protected:
  ServedModelTest() {
    write("config.json", json{{"architectures", {"MixtralForCausalLM"}},
                              {"hidden_size", 64},
                              {"num_hidden_layers", 1},
                              {"num_attention_heads", 4},
                              {"num_key_value_heads", 2},
                              {"vocab_size", 290},
                              {"max_position_embeddings", 64},
                              {"intermediate_size", 64},
                              {"num_experts_per_tok", 2},
                              {"num_local_experts", 4}}
                             .dump());
    write("tokenizer.json", moestro::testing::llama2_like({}).dump());  // 286 tokens
  }
  void write(const std::string& name, const std::string& text) { std::ofstream(dir_ / name) << text; }
  void config(const json& tokenizer_config) { write("tokenizer_config.json", tokenizer_config.dump()); }
  Result<ServedModel> load() { return ServedModel::load("m", dir_.path()); }
  std::string refusal() {
    const auto model = load();
    EXPECT_FALSE(model.is_ok());
    return model.is_ok() ? "" : model.status().message();
  }
  /// Begun as the template for tools, if there is one.
  std::string tools() {
    const auto model = load();
    EXPECT_TRUE(model.is_ok()) << model.status().message();
    if (!model.is_ok() || !model->tool_template) return "none";
    return *model->tool_template->render(json::array(), json::object());
  }
  std::vector<TokenId> ids(const std::string& text) {
    const auto model = load();
    EXPECT_TRUE(model.is_ok()) << model.status().message();
    return model.is_ok() ? *model->tokenizer.encode(text, false) : std::vector<TokenId>{};
  }
  std::string chat() {
    const auto model = load();
    EXPECT_TRUE(model.is_ok()) << model.status().message();
    if (!model.is_ok() || !model->chat_template) return "none: " + (model.is_ok() ? model->chat_template_missing : "");
    return *model->chat_template->render(json::array(), json::object());
  }
  test::TempDir dir_;
};

TEST_F(ServedModelTest, TheTemplateFileIsPreferred) {
  EXPECT_THAT(chat(), HasSubstr("no chat template"));
  config({{"chat_template", "of the config"}});
  EXPECT_EQ(chat(), "of the config");
  write("chat_template.jinja", "of the file");
  EXPECT_EQ(chat(), "of the file");
  std::filesystem::remove(dir_ / "tokenizer_config.json");
  EXPECT_EQ(chat(), "of the file");
}

TEST_F(ServedModelTest, AProcessorsTemplateIsTakenWhereThereIsNoOther) {
  write("chat_template.json", R"({"chat_template": "of the processor"})");
  EXPECT_EQ(chat(), "of the processor");
  config({{"chat_template", "of the config"}});
  EXPECT_EQ(chat(), "of the config");
  std::filesystem::remove(dir_ / "tokenizer_config.json");
  write("chat_template.json", "no JSON");
  EXPECT_THAT(refusal(), HasSubstr("chat_template.json"));
}

TEST_F(ServedModelTest, OfNamedTemplatesTheDefaultIsTaken) {
  const json of_tools = {{"name", "tool_use"}, {"template", "tools"}};
  config({{"chat_template", {of_tools, {{"name", "default"}, {"template", "plain"}}}}});
  EXPECT_EQ(chat(), "plain");
  config({{"chat_template", {of_tools}}});
  EXPECT_THAT(chat(), HasSubstr("no chat template"));
  config({{"chat_template", {5, json::object(), {{"name", "default"}, {"template", 7}}}}});
  EXPECT_THAT(chat(), HasSubstr("no chat template"));
}

TEST_F(ServedModelTest, RequestsWithToolsHaveATemplateOfTheirOwn) {
  config({{"chat_template", "plain"}});
  EXPECT_EQ(tools(), "none");
  config({{"chat_template", {{{"name", "tool_use"}, {"template", "listed"}}}}});
  EXPECT_EQ(tools(), "listed");
  config({{"chat_template", {{"default", "plain"}, {"tool_use", "in an object"}}}});
  EXPECT_EQ(tools(), "in an object");
  EXPECT_EQ(chat(), "plain");
  const std::string calls = "{{ tools }}<tool_call>{\"name\"</tool_call>";
  std::filesystem::create_directory(dir_ / "additional_chat_templates");
  write("additional_chat_templates/tool_use.jinja", calls);
  EXPECT_EQ(chat(), "none: the model has no chat template (chat_template.jinja, tokenizer_config.json or "
                    "chat_template.json); use /v1/completions")
      << "with a file, as transformers has it, the config's templates do not count";
  write("chat_template.jinja", "of the file");
  EXPECT_EQ(chat(), "of the file");
  ASSERT_TRUE(load()->tool_form) << load()->tool_form_missing;
  std::filesystem::remove_all(dir_ / "additional_chat_templates");
  EXPECT_EQ(tools(), "none");
  write("tool_use.jinja", "of a pack");
  EXPECT_EQ(tools(), "of a pack");
  write("tool_use.jinja", "{% if %}");
  EXPECT_EQ(chat(), "of the file");
  EXPECT_FALSE(load()->tool_form);
  EXPECT_THAT(load()->tool_form_missing, HasSubstr("its chat template 'tool_use' cannot be used: "));
}

TEST_F(ServedModelTest, AnUnusableTemplateOnlyCostsChat) {
  write("chat_template.jinja", "{% if %}");
  EXPECT_THAT(chat(), HasSubstr("cannot be used"));
}

TEST_F(ServedModelTest, SpecialTokens) {
  config({{"bos_token", "<s>"}, {"eos_token", {{"content", "</s>"}}}, {"unk_token", "<unk>"}, {"pad_token", nullptr}});
  const auto model = load();
  ASSERT_TRUE(model.is_ok()) << model.status().message();
  EXPECT_EQ(model->bos_token, "<s>");
  EXPECT_EQ(model->eos_token, "</s>");
  EXPECT_EQ(model->unk_token, "<unk>");
  EXPECT_EQ(model->pad_token, "");
}

TEST_F(ServedModelTest, SpecialTokensOfTheMapHoldWhereTheConfigHasNoAddedTokens) {
  write("special_tokens_map.json", R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}})");
  EXPECT_EQ(load()->bos_token, "<s>") << "with no config";
  config({{"bos_token", "a"}, {"unk_token", "<unk>"}});
  EXPECT_EQ(load()->bos_token, "<s>");
  EXPECT_EQ(load()->eos_token, "</s>");
  EXPECT_EQ(load()->unk_token, "<unk>");
  config({{"bos_token", "a"}, {"added_tokens_decoder", json::object()}});
  EXPECT_EQ(load()->bos_token, "a");
  EXPECT_EQ(load()->eos_token, "");
}

TEST_F(ServedModelTest, WhatTheConfigSaysOfTokensHolds) {
  const TokenId space = 285;
  EXPECT_EQ(ids("a <s>a"), (std::vector<TokenId>{space, 259, space, 1, space, 259}));
  config({{"added_tokens_decoder", {{"1", {{"content", "<s>"}, {"lstrip", true}, {"special", true}}}}}});
  EXPECT_EQ(ids("a <s>a"), (std::vector<TokenId>{space, 259, 1, space, 259})) << "the space is the token's";

  auto tokenizer = moestro::testing::llama2_like({});
  tokenizer["added_tokens"] = {moestro::testing::added_token(1, "<s>", {{"special", false}})};
  write("tokenizer.json", tokenizer.dump());
  config(json::object());
  EXPECT_FALSE(load()->tokenizer.is_special(1));
  EXPECT_THAT(ids("</s>"), ::testing::Not(::testing::Contains(2)));
  config({{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"pad_token", "[PAD]"}});
  EXPECT_TRUE(load()->tokenizer.is_special(1));
  EXPECT_TRUE(load()->tokenizer.is_special(2));
  EXPECT_EQ(ids("</s>"), std::vector<TokenId>{2}) << "found, though only the vocabulary has it";
  for (const json& list : {json{"b", "c"}, json{{"call_token", "b"}, {"other_token", "c"}}}) {
    config({{"extra_special_tokens", list}, {"additional_special_tokens", {"d"}}});
    EXPECT_TRUE(load()->tokenizer.is_special(260)) << list;
    EXPECT_FALSE(load()->tokenizer.is_special(262)) << "the older name of the list";
  }
  EXPECT_EQ(ids("a b"), (std::vector<TokenId>{space, 259, space, 260}));
  config({{"extra_special_tokens", {{{"content", "b"}, {"lstrip", true}}}}});
  EXPECT_EQ(ids("a b"), (std::vector<TokenId>{space, 259, 260}));
}

TEST_F(ServedModelTest, SpecialTokensThatTheTokenizerLacksGetTheNextIds) {
  config({{"pad_token", "[PAD]"}, {"additional_special_tokens", {"<s>", {{"content", "<0>"}}, "<1>", "<2>", "<3>"}}});
  EXPECT_EQ(ids("[PAD]<0><1><2>"), (std::vector<TokenId>{286, 287, 288, 289}));
  EXPECT_THAT(ids("<3>"), ::testing::Each(::testing::Lt(286))) << "no row of the embedding is left";
  EXPECT_TRUE(load()->tokenizer.is_special(289));
}

TEST_F(ServedModelTest, SpecialTokensAreNotSplit) {
  config({{"split_special_tokens", true}});
  EXPECT_THAT(refusal(), HasSubstr("'split_special_tokens' is not supported"));
  config({{"split_special_tokens", false}, {"additional_special_tokens", nullptr}});
  EXPECT_TRUE(load().is_ok()) << load().status().message();
}

TEST_F(ServedModelTest, AddedTokensOfTheConfigMustBeTheTokenizers) {
  config({{"added_tokens_decoder", {{"1", {{"content", "<s>"}}}, {"2", {{"content", "</s>"}, {"special", true}}}}}});
  EXPECT_TRUE(load().is_ok()) << load().status().message();
  config({{"added_tokens_decoder", {{"286", {{"content", "<|im_start|>"}}}}}});
  EXPECT_THAT(refusal(), HasSubstr("gives id 286 to '<|im_start|>'; tokenizer.json does not"));
  config({{"added_tokens_decoder", {{"1", {{"content", "<other>"}}}}}});
  EXPECT_THAT(refusal(), HasSubstr("gives id 1 to '<other>'"));
  config({{"added_tokens_decoder", {{"x", {{"content", "<s>"}}}}}});
  EXPECT_THAT(refusal(), HasSubstr("'x' is no token id"));
  config({{"added_tokens_decoder", {{"1", 5}}}});
  EXPECT_THAT(refusal(), HasSubstr("the token 1 has no content"));
  config({{"added_tokens_decoder", {1}}});
  EXPECT_THAT(refusal(), HasSubstr("must be an object"));
}

TEST_F(ServedModelTest, FilesThatAreWrong) {
  write("tokenizer_config.json", R"({"bos_token": "a", "bos_token": "b"})");
  EXPECT_THAT(refusal(), HasSubstr("'bos_token' is given twice"));
  write("tokenizer_config.json", "[]");
  EXPECT_THAT(refusal(), HasSubstr("tokenizer_config.json"));
  std::filesystem::remove(dir_ / "tokenizer_config.json");
  auto large = moestro::testing::llama2_like({});
  large["model"]["vocab"]["zz"] = 290;
  write("tokenizer.json", large.dump());
  EXPECT_THAT(refusal(), HasSubstr("the token 'zz' has id 290, but config.json has a vocab_size of 290"));
  std::filesystem::remove(dir_ / "config.json");
  EXPECT_THAT(refusal(), HasSubstr("config.json"));
}

TEST_F(ServedModelTest, TargetsBeginWithAToken) {
  EXPECT_FALSE(load()->target.has_value());
  json encoder{{"architectures", {"SwitchTransformersForConditionalGeneration"}}, {"d_model", 32}, {"d_kv", 6},
               {"d_ff", 24}, {"num_heads", 4}, {"num_layers", 4}, {"num_experts", 4}, {"vocab_size", 290}};
  write("config.json", encoder.dump());
  EXPECT_THAT(refusal(), HasSubstr("config.json: decoder_start_token_id is missing"));
  encoder["bos_token_id"] = 5;
  write("config.json", encoder.dump());
  EXPECT_EQ(load()->target->start, 5);
  encoder["decoder_start_token_id"] = 0;
  write("config.json", encoder.dump());
  write("generation_config.json", R"({"forced_bos_token_id": 9})");
  EXPECT_EQ(load()->target->start, 0);
  EXPECT_EQ(load()->target->forced, 9);
}

TEST_F(ServedModelTest, TheTokenizersDigestIsThatOfItsFile) {
  std::ifstream in(dir_ / "tokenizer.json", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  ASSERT_FALSE(text.empty());
  EXPECT_EQ(load()->tokenizer_digest, XXH3_64bits(text.data(), text.size())) << "as a pack's manifest has it";
}

TEST_F(ServedModelTest, TheDigestTellsWhatMakesOtherTokensFromOtherStorage) {
  const auto digest = [this] { return load()->text_digest; };
  const uint64_t plain = digest();
  EXPECT_EQ(digest(), plain);
  std::ifstream in(dir_ / "config.json");
  json stored = json::parse(in);
  stored["torch_dtype"] = "float16";
  write("config.json", stored.dump());
  EXPECT_EQ(digest(), plain) << "`moestro store replace` takes it for the same model";
  stored["eos_token_id"] = 5;
  write("config.json", stored.dump());
  const uint64_t other_end = digest();
  EXPECT_NE(other_end, plain);
  write("chat_template.jinja", "a");
  const uint64_t with_template = digest();
  EXPECT_NE(with_template, other_end);
  write("chat_template.jinja", "b");
  EXPECT_NE(digest(), with_template);
}

}  // namespace
}  // namespace moestro::orchestrator
