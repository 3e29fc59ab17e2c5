#include "orchestrator/forms/find_tool_form.h"

#include <algorithm>

#include "orchestrator/forms/harmony_form.h"
#include "orchestrator/forms/object_form.h"
#include "orchestrator/forms/pythonic_form.h"
#include "orchestrator/forms/tagged_form.h"

namespace moestro::orchestrator {

namespace {

using Make = std::shared_ptr<const ToolForm> (*)(std::string);

std::shared_ptr<const ToolForm> make_harmony(std::string name) {
  return std::make_shared<HarmonyForm>(std::move(name));
}

std::shared_ptr<const ToolForm> deepseek(std::string name, CallMarks marks) {
  marks.section_begin = "<｜tool▁calls▁begin｜>";
  marks.section_end = "<｜tool▁calls▁end｜>";
  marks.call_begin = "<｜tool▁call▁begin｜>";
  marks.call_end = "<｜tool▁call▁end｜>";
  return std::make_shared<MarkedForm>(std::move(name), std::move(marks));
}

/// DeepSeek-V3, R1 and R1-0528.
std::shared_ptr<const ToolForm> make_deepseek_v3(std::string name) {
  CallMarks marks;
  marks.name_begin = "function<｜tool▁sep｜>";
  marks.arguments_begin = "\n```json\n";
  marks.arguments_end = "\n```";
  marks.between = "\n";
  return deepseek(std::move(name), std::move(marks));
}

std::shared_ptr<const ToolForm> make_deepseek_v31(std::string name) {
  CallMarks marks;
  marks.arguments_begin = "<｜tool▁sep｜>";
  return deepseek(std::move(name), std::move(marks));
}

std::shared_ptr<const ToolForm> make_kimi(std::string name) {
  CallMarks marks;
  marks.section_begin = "<|tool_calls_section_begin|>";
  marks.section_end = "<|tool_calls_section_end|>";
  marks.call_begin = "<|tool_call_begin|>";
  marks.call_end = "<|tool_call_end|>";
  marks.name_begin = "functions.";
  marks.arguments_begin = "<|tool_call_argument_begin|>";
  marks.numbered = true;
  return std::make_shared<MarkedForm>(std::move(name), std::move(marks));
}

std::shared_ptr<const ToolForm> make_mistral(std::string name) {
  CallMarks marks;
  marks.call_begin = "[TOOL_CALLS]";
  marks.arguments_begin = "[ARGS]";
  marks.id_begin = "[CALL_ID]";
  return std::make_shared<MarkedForm>(std::move(name), std::move(marks));
}

std::shared_ptr<const ToolForm> make_minimax(std::string name) {
  return std::make_shared<TaggedForm>(std::move(name), CallTags{.section_begin = "<minimax:tool_call>",
                                                                .section_end = "</minimax:tool_call>",
                                                                .call_begin = "<invoke name=\"",
                                                                .name_end = "\">",
                                                                .call_end = "</invoke>",
                                                                .key_begin = "<parameter name=\"",
                                                                .key_end = "\">",
                                                                .value_begin = "",
                                                                .value_end = "</parameter>",
                                                                .lines = false,
                                                                .one_section = true});
}

/// <function=NAME><parameter=KEY>, in a section for each call.
std::shared_ptr<const ToolForm> function_tags(std::string name, std::string begin, std::string end, bool lines) {
  return std::make_shared<TaggedForm>(std::move(name), CallTags{.section_begin = std::move(begin),
                                                                .section_end = std::move(end),
                                                                .call_begin = "<function=",
                                                                .name_end = ">",
                                                                .call_end = "</function>",
                                                                .key_begin = "<parameter=",
                                                                .key_end = ">",
                                                                .value_begin = "",
                                                                .value_end = "</parameter>",
                                                                .lines = lines});
}

std::shared_ptr<const ToolForm> make_seed(std::string name) {
  return function_tags(std::move(name), "<seed:tool_call>", "</seed:tool_call>", false);
}

std::shared_ptr<const ToolForm> make_qwen_coder(std::string name) {
  return function_tags(std::move(name), "<tool_call>", "</tool_call>", true);
}

std::shared_ptr<const ToolForm> make_glm(std::string name) {
  return std::make_shared<TaggedForm>(std::move(name), CallTags{.section_begin = "<tool_call>",
                                                                .section_end = "</tool_call>",
                                                                .call_begin = "",
                                                                .name_end = "",
                                                                .call_end = "",
                                                                .key_begin = "<arg_key>",
                                                                .key_end = "</arg_key>",
                                                                .value_begin = "<arg_value>",
                                                                .value_end = "</arg_value>"});
}

std::shared_ptr<const ToolForm> object(std::string name, ObjectMarks marks) {
  return std::make_shared<ObjectForm>(std::move(name), std::move(marks));
}

std::shared_ptr<const ToolForm> make_hermes(std::string name) {
  return object(std::move(name), {.begin = "<tool_call>", .end = "</tool_call>"});
}

std::shared_ptr<const ToolForm> make_mistral_list(std::string name) {
  return object(std::move(name), {.begin = "[TOOL_CALLS]", .end = "", .list = true});
}

std::shared_ptr<const ToolForm> make_granite(std::string name) {
  return object(std::move(name), {.begin = "<|tool_call|>", .end = "", .list = true});
}

std::shared_ptr<const ToolForm> make_phi4(std::string name) {
  return object(std::move(name), {.begin = "<|tool_call|>", .end = "<|/tool_call|>", .list = true});
}

std::shared_ptr<const ToolForm> make_llama_json(std::string name) {
  return object(std::move(name), {.begin = "<|python_tag|>", .end = "", .bare = true, .arguments = "parameters"});
}

std::shared_ptr<const ToolForm> make_pythonic(std::string name) {
  return std::make_shared<PythonicForm>(std::move(name));
}

/// A template that has all `words` and none of `not_words` has this form. The first row that fits counts.
struct Row {
  const char* name;  ///< as docs/api.md shows it
  std::vector<const char*> words;
  std::vector<const char*> not_words;
  Make make;
  const char* token = nullptr;  ///< and the vocabulary has this one
};

// Forms of more than one row, one behind the other.
constexpr const char* kHermes = "<tool_call>{\"name\": ...}";
constexpr const char* kKimi = "<|tool_call_begin|>functions.NAME:NUMBER";

// clang-format off
const std::vector<Row>& rows() {
  static const std::vector<Row> all{
    {"<|channel|>commentary to=functions.NAME", {"<|channel|>commentary", "functions"}, {}, make_harmony},
    {"<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME", {"<｜tool▁calls▁begin｜>", "```json"}, {}, make_deepseek_v3},
    {"<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>", {"<｜tool▁calls▁begin｜>", "<｜tool▁sep｜>"}, {}, make_deepseek_v31},
    {kKimi, {"<|tool_calls_section_begin|>"}, {}, make_kimi},
    // Kimi-K2's first template declares the tools, and only the model knows how to call them.
    {kKimi, {"tool_declare"}, {}, make_kimi, "<|tool_calls_section_begin|>"},
    {"<minimax:tool_call><invoke name=", {"<minimax:tool_call>", "<invoke name="}, {}, make_minimax},
    {"<seed:tool_call><function=", {"<seed:tool_call>", "<function=", "<parameter="}, {}, make_seed},
    {"<tool_call><function=", {"<tool_call>", "<function=", "<parameter="}, {}, make_qwen_coder},
    {"<tool_call>NAME<arg_key>", {"<tool_call>", "<arg_key>", "<arg_value>"}, {}, make_glm},
    {kHermes, {"<tool_call>", "</tool_call>", "\"name"}, {"<invoke", "<function=", "<tool_calls>"}, make_hermes},
    {kHermes, {"<tool_call>", "</tool_call>", "'name'"}, {"<invoke", "<function=", "<tool_calls>"}, make_hermes},
    {"[TOOL_CALLS]NAME[ARGS]{...}", {"[TOOL_CALLS]", "[ARGS]"}, {}, make_mistral},
    {"[TOOL_CALLS][{\"name\": ...}]", {"[TOOL_CALLS]"}, {}, make_mistral_list},
    {"<|tool_call|>[{\"name\": ...}]<|/tool_call|>", {"<|tool_call|>", "<|/tool_call|>"}, {}, make_phi4},
    {"<|tool_call|>[{\"name\": ...}]", {"<|tool_call|>"}, {}, make_granite},
    {"[NAME(KEY=VALUE)]", {"[func_name1("}, {}, make_pythonic},
    {"{\"name\": ..., \"parameters\": ...}", {"\"parameters\": dictionary of argument name"}, {}, make_llama_json},
  };
  return all;
}
// clang-format on

/// For messages.
std::string known_names() {
  std::string all;
  for (const auto& form : all_tool_forms()) all += (all.empty() ? "" : ", ") + form->name();
  return all;
}

}  // namespace

std::vector<std::shared_ptr<const ToolForm>> all_tool_forms() {
  std::vector<std::shared_ptr<const ToolForm>> all;
  for (const Row& row : rows())
    if (all.empty() || all.back()->name() != row.name) all.push_back(row.make(row.name));
  return all;
}

Result<std::shared_ptr<const ToolForm>> find_tool_form(std::string_view chat_template, const HasToken& has_token) {
  const auto has = [&](const char* word) { return chat_template.find(word) != std::string_view::npos; };
  if (!has("tools")) return unsupported("the chat template does not write tools into the prompt");
  for (const Row& row : rows())
    if (std::ranges::all_of(row.words, has) && std::ranges::none_of(row.not_words, has) &&
        (row.token == nullptr || has_token(row.token)))
      return row.make(row.name);
  return unsupported("the chat template has no tool calls of a form that is known here (" + known_names() + ")");
}

}  // namespace moestro::orchestrator
