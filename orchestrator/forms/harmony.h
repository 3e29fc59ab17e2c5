#pragma once
// The words of harmony, the format of gpt-oss (https://github.com/openai/harmony, docs/format.md).

namespace moestro::orchestrator::harmony {

inline constexpr const char *kStart = "<|start|>", *kAssistant = "<|start|>assistant", *kChannel = "<|channel|>",
                            *kMessage = "<|message|>", *kEnd = "<|end|>", *kCall = "<|call|>",
                            *kConstrain = "<|constrain|>";
/// In a head: the message goes to this function.
inline constexpr const char* kToFunction = " to=functions.";
/// A head of a call as it is handed on: always this, the name, kMessage.
inline constexpr const char* kCallHead = "<|start|>assistant to=functions.";

}  // namespace moestro::orchestrator::harmony
