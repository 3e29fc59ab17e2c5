"""Switch Transformers and NLLB-MoE for scripts/make_fixtures.py: tiny random models, and what transformers says of
them.

A fixture's prompts are targets. The source of each is made of its first token (source_of), so that every test that runs
a target, however it is cut, has its source; tests/engine/engine_bench.cc has the same formula. Decoders are run token
by token, as text is generated: only encoders drop tokens that an expert has no room for.
"""

VOCAB, PAD = 128, {"SwitchTransformers": 0, "NllbMoe": 1}

VARIANTS = {
    # Experts of the encoder have room for three tokens, and the buckets end within the prompts.
    "switch_transformers_capacity": dict(
        arch="SwitchTransformers", dtype="bfloat16", old_rope=False, encoder_decoder=True, config=dict(
            d_model=64, d_kv=12, d_ff=24, num_heads=4, num_layers=3, num_decoder_layers=2,
            num_sparse_encoder_layers=1, num_sparse_decoder_layers=2, num_experts=4, expert_capacity=3,
            relative_attention_num_buckets=8, relative_attention_max_distance=20)),
    "switch_transformers_untied": dict(
        arch="SwitchTransformers", dtype="float16", old_rope=False, encoder_decoder=True, config=dict(
            d_model=48, d_kv=16, d_ff=20, num_heads=3, num_layers=2, num_decoder_layers=3,
            num_sparse_encoder_layers=1, num_sparse_decoder_layers=1, num_experts=5, router_bias=True,
            tie_word_embeddings=False)),
    "nllb_moe_scaled": dict(
        arch="NllbMoe", dtype="bfloat16", old_rope=False, encoder_decoder=True, config=dict(
            d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
            encoder_ffn_dim=20, decoder_ffn_dim=20, num_experts=4, encoder_sparse_step=2, decoder_sparse_step=1,
            max_position_embeddings=256)),
    "nllb_moe_bias": dict(
        arch="NllbMoe", dtype="float16", old_rope=False, encoder_decoder=True, config=dict(
            d_model=48, encoder_layers=3, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=4,
            encoder_ffn_dim=16, decoder_ffn_dim=16, num_experts=5, encoder_sparse_step=2, decoder_sparse_step=2,
            router_bias=True, scale_embedding=False, moe_token_dropout=0.0, tie_word_embeddings=False,
            max_position_embeddings=256)),
}


def source_of(ids):
    first = ids[0]
    return [3 + (31 * first + 17 * i * i + 5 * i) % (VOCAB - 3) for i in range(1 + 7 * first % 40)]


def choose_both_experts():
    """transformers 5 hands NLLB's experts a mask of their first choices where it needs the numbers of both: every token
    is computed by experts 0 and 1. Here each goes to the two that its router gave a weight, as in transformers 4 and
    fairseq."""
    import torch
    from transformers.models.nllb_moe import modeling_nllb_moe

    def forward(self, hidden_states, router_mask, router_probs):
        total = torch.zeros_like(hidden_states)
        for e in range(self.num_experts):
            tokens = router_probs[:, e].nonzero()[:, 0]
            if len(tokens):
                total[tokens] += self[f"expert_{e}"](hidden_states[tokens]) * router_probs[tokens, e, None]
        return total * (1 - self.moe_token_dropout)

    modeling_nllb_moe.NllbMoeExperts.forward = forward


def build(v, seed):
    import torch
    import transformers

    choose_both_experts()
    config = getattr(transformers, v["arch"] + "Config")(vocab_size=VOCAB, pad_token_id=PAD[v["arch"]],
                                                          decoder_start_token_id=2, **v["config"])
    config._attn_implementation = "eager"
    torch.manual_seed(seed)
    net = getattr(transformers, v["arch"] + "ForConditionalGeneration")(config).float().eval()
    stacks = getattr(net, "model", net)
    scaled = getattr(config, "scale_embedding", False)
    with torch.no_grad():
        for key, p in net.named_parameters():
            if "shared" in key or "embed_tokens" in key:
                p.normal_(std=0.15 if scaled else 1.0)
            elif key.endswith("relative_attention_bias.weight"):
                p.normal_(std=1.0)
            elif key.endswith("classifier.weight"):
                p.normal_(std=0.4)
            elif "norm" in key and key.endswith("weight"):
                p.copy_(1 + 0.1 * torch.randn_like(p))
            else:
                p.normal_(std=0.14 if p.dim() >= 2 else 0.1)
            p.copy_(p.to(getattr(torch, v["dtype"])).float())
        # Without tied heads transformers has three embeddings; a checkpoint that Moestro takes has one, three times.
        for stack in (stacks.encoder, stacks.decoder):
            stack.embed_tokens.weight.copy_(stacks.shared.weight)
    return net


class Margins:
    """The least distance between what a router chooses and what it does not, over all tokens and layers."""

    def __init__(self, net):
        self.least = 1.0
        top_k = 2 if net.config.model_type == "nllb-moe" else 1

        def hook(_, __, logits):
            ordered = logits.reshape(-1, logits.shape[-1]).sort(-1, descending=True).values
            self.least = min(self.least, float((ordered[:, top_k - 1] - ordered[:, top_k]).min()))

        self.handles = [m.register_forward_hook(hook) for key, m in net.named_modules() if key.endswith("classifier")]
        assert self.handles, "no router found"


def run(net, ids, greedy_tokens):
    """Log-probabilities of ids[1:], the greedy continuation with its own, and its least margin."""
    import torch
    from transformers import DynamicCache, EncoderDecoderCache

    with torch.no_grad():
        source = torch.tensor([source_of(ids)])
        seen = dict(encoder_outputs=net.get_encoder()(input_ids=source, attention_mask=torch.ones_like(source)),
                    attention_mask=torch.ones_like(source))
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())

        def step(token):
            out = net(decoder_input_ids=torch.tensor([[token]]), past_key_values=cache, use_cache=True, **seen)
            return torch.log_softmax(out.logits[0, -1].double(), -1)

        rows = [step(token) for token in ids]
        scores = [round(float(row[then]), 7) for row, then in zip(rows, ids[1:])]
        greedy, greedy_scores, margin, last = [], [], 1.0, rows[-1]
        for _ in range(greedy_tokens):
            best = last.topk(2).values
            margin = min(margin, float(best[0] - best[1]))
            greedy.append(int(last.argmax()))
            greedy_scores.append(round(float(last[greedy[-1]]), 7))
            last = step(greedy[-1])
    return dict(ids=ids, logprobs=scores, greedy=greedy, greedy_logprobs=greedy_scores), margin
