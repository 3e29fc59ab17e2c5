#include "common/model/config_keys.h"

#include <algorithm>
#include <array>

namespace moestro::model {
namespace {

using namespace std::string_view_literals;

// Sorted. Settings that are harmless only at one value (is_encoder_decoder: false) are read in decoder_config.cc
// instead.
constexpr std::array kHarmless = {
    "_attn_implementation"sv, "_attn_implementation_autoset"sv, "_commit_hash"sv, "_name_or_path"sv,
    "attention_dropout"sv, "auto_map"sv, "aux_loss_alpha"sv, "bad_words_ids"sv, "begin_suppress_tokens"sv,
    "classifier_dropout"sv, "decoder_start_token_id"sv, "diversity_penalty"sv, "do_sample"sv,
    "dtype"sv, "early_stopping"sv, "encoder_no_repeat_ngram_size"sv, "ep_size"sv, "exponential_decay_length_penalty"sv,
    "finetuning_task"sv, "forced_bos_token_id"sv, "forced_eos_token_id"sv, "id2label"sv,
    "initializer_range"sv, "label2id"sv, "length_penalty"sv, "max_length"sv,
    "min_length"sv, "model_type"sv, "no_repeat_ngram_size"sv, "num_beam_groups"sv,
    "num_beams"sv, "num_return_sequences"sv, "output_attentions"sv, "output_hidden_states"sv,
    "output_router_logits"sv, "output_scores"sv, "pad_token_id"sv, "prefix"sv,
    "pretraining_tp"sv, "problem_type"sv, "remove_invalid_values"sv, "repetition_penalty"sv,
    "return_dict"sv, "return_dict_in_generate"sv, "router_aux_loss_coef"sv, "router_jitter_noise"sv,
    "sep_token_id"sv, "seq_aux"sv, "suppress_tokens"sv, "task_specific_params"sv, "temperature"sv,
    "tf_legacy_loss"sv, "tie_encoder_decoder"sv, "tokenizer_class"sv, "top_k"sv,
    "top_p"sv, "torch_dtype"sv, "torchscript"sv, "transformers_version"sv,
    "typical_p"sv, "unsloth_fixed"sv, "unsloth_version"sv, "use_bfloat16"sv,
    "use_cache"sv,
};
static_assert(std::is_sorted(kHarmless.begin(), kHarmless.end()));

}  // namespace

bool is_harmless_key(std::string_view key) { return std::binary_search(kHarmless.begin(), kHarmless.end(), key); }

}  // namespace moestro::model
