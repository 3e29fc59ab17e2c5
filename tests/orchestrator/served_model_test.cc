// What the small files of a model say, and what they may not say.

#include "orchestrator/api/served_model.h"

#include <gmock/gmock.h>

#include <fstream>

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
  const json tools = {{"name", "tool_use"}, {"template", "tools"}};
  config({{"chat_template", {tools, {{"name", "default"}, {"template", "plain"}}}}});
  EXPECT_EQ(chat(), "plain");
  config({{"chat_template", {tools}}});
  EXPECT_THAT(chat(), HasSubstr("no chat template"));
  config({{"chat_template", {5, json::object(), {{"name", "default"}, {"template", 7}}}}});
  EXPECT_THAT(chat(), HasSubstr("no chat template"));
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

}  // namespace
}  // namespace moestro::orchestrator
