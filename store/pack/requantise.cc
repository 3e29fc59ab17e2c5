#include "store/pack/requantise.h"

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "common/formats/encode.h"
#include "common/model/strict_json.h"

namespace moestro::store {
namespace {

using formats::bits_per_value;

std::string name_of(DType d) { return std::string(dtype_name(d)); }

std::string with_bits(const std::string& name, double bits) {
  char text[64];
  std::snprintf(text, sizeof text, "%s (%.4g bits a weight)", name.c_str(), bits);
  return text;
}

Status no_encoder(const std::string& what, const char* flag, DType to) {
  return unsupported(what + " as " + name_of(to) + ": nothing is converted to it; " + flag +
                     " makes these of blocks: " + formats::encodable_formats() +
                     "; without it, weights stay in the source's formats");
}

Status no_whole_blocks(const std::string& what, const std::string& rows, int64_t cols, DType to, int64_t common) {
  const std::string would_do = formats::encodable_formats(common);
  return unsupported(what + " as " + name_of(to) + ": " + rows + " rows of " + std::to_string(cols) +
                     " numbers, and a block is " + std::to_string(block_shape(to).columns) + "; " +
                     (would_do.empty() ? "no blocks fit; int8 or int4 would do" : "these would do: " + would_do));
}

Status no_fewer_bits(const std::string& what, const char* flag, DType to, const std::string& own, double bits) {
  return unsupported(what + " as " + with_bits(name_of(to), bits_per_value(to)) + ": the source has them as " +
                     with_bits(own, bits) + ", so it would only add error; choose a format of fewer bits, or leave " +
                     flag + " out to keep them as they are");
}

/// Bits of the experts' weights in the source, on average: the matrices have equally many.
struct OwnExperts {
  std::string name;
  double bits = 0;
  bool all_are(DType d) const { return name == dtype_name(d); }
};

OwnExperts own_experts(const Checkpoint& checkpoint) {
  if (!checkpoint.is_native()) {
    const DType own = checkpoint.own_expert_dtype().dtype;
    return {name_of(own), bits_per_value(own)};
  }
  double bits = 0;
  bool equal = true;
  const auto& layers = checkpoint.expert_formats();
  for (const ExpertFormats& f : layers) {
    bits += bits_per_value(f.gate) + bits_per_value(f.up) + bits_per_value(f.down);
    equal = equal && f == layers.front();
  }
  const DType one = equal ? layers.front().dtype() : DType::kMixed;
  return {name_of(one), bits / (3.0 * static_cast<double>(layers.size()))};
}

bool is_widened(const SourceTensor& tensor) { return tensor.matrix != nullptr && tensor.matrix->is_widened(); }

bool has_widened_experts(const Checkpoint& checkpoint) {
  return std::ranges::any_of(checkpoint.model().experts, [&](const model::ExpertTensors& e) {
    return (!e.gate.empty() && is_widened(checkpoint.tensor(e.gate))) || is_widened(checkpoint.tensor(e.up)) ||
           is_widened(checkpoint.tensor(e.down));
  });
}

/// The matrices that --dense is about, with the formats that the source has them in.
template <class Visit>
void for_dense_matrices(const Checkpoint& checkpoint, const Visit& visit) {
  for (const model::DenseTensor& t : checkpoint.model().dense)
    if (is_matrix_of_a_product(t) && !is_read_across(t) && !t.exact) visit(t, *checkpoint.tensor(t.source_name).dtype);
}

}  // namespace

bool is_matrix_of_a_product(const model::DenseTensor& t) {
  const auto within = [&](const char* part) { return t.name.find(part) != std::string::npos; };
  return t.shape.size() == 2 &&
         (within(".attn.") || within(".cross.") ||
          within(".mlp.") || within(".shared.") || t.name.starts_with("head."));
}

bool is_read_across(const model::DenseTensor& t) { return t.name.ends_with("kv_b.weight"); }

DType dense_format(DType own, DType to) {
  return is_blocks(to) && is_blocks(own) && bits_per_value(own) <= bits_per_value(to) ? own : to;
}

Status check_expert_blocks(const Checkpoint& checkpoint, DType to) {
  const OwnExperts own = own_experts(checkpoint);
  if (own.all_are(to)) return Status::ok();
  if (!formats::can_encode(to)) return no_encoder("experts", "--experts", to);
  const model::ExpertSpec& spec = checkpoint.model().spec.moe().expert;
  const int64_t columns = block_shape(to).columns, common = std::gcd(spec.hidden, spec.ffn);
  if (spec.hidden % columns != 0) return no_whole_blocks("experts", "gate and up have", spec.hidden, to, common);
  if (spec.ffn % columns != 0) return no_whole_blocks("experts", "down has", spec.ffn, to, common);
  return bits_per_value(to) < own.bits ? Status::ok()
                                       : no_fewer_bits("experts", "--experts", to, own.name, own.bits);
}

Status check_dense_blocks(const Checkpoint& checkpoint, DType to) {
  if (!formats::can_encode(to)) return no_encoder("dense weights", "--dense", to);
  const model::DenseTensor* partial = nullptr;
  int64_t common = 0;
  double most_bits = 0;
  DType widest = to;
  for_dense_matrices(checkpoint, [&](const model::DenseTensor& t, DType own) {
    common = std::gcd(common, t.shape.back());
    if (dense_format(own, to) == to && t.shape.back() % block_shape(to).columns != 0 && partial == nullptr)
      partial = &t;
    if (bits_per_value(own) > most_bits) most_bits = bits_per_value(own), widest = own;
  });
  if (partial != nullptr)
    return no_whole_blocks("dense weights", "tensor " + model::in_quotes(partial->source_name) + " has",
                           partial->shape.back(), to, common);
  return most_bits > bits_per_value(to) ? Status::ok()
                                        : no_fewer_bits("dense weights", "--dense", to, name_of(widest), most_bits);
}

Status check_blocks_hold_experts(const Checkpoint& checkpoint) {
  for (const model::ExpertTensors& e : checkpoint.model().experts)
    for (const std::string& name : {e.gate, e.up, e.down})
      if (!name.empty() && is_widened(checkpoint.tensor(name)))
        return unsupported("tensor " + model::in_quotes(name) +
                           " has columns ordered by activation (GPTQ with desc_act), so its scales fit no blocks; "
                           "name with --experts what experts become: f32 is exact and takes 8 times the room; bf16, "
                           "int8, int4 and these take less: " + formats::encodable_formats());
  return Status::ok();
}

bool has_widened_dense(const Checkpoint& checkpoint) {
  return std::ranges::any_of(checkpoint.model().dense, [&](const model::DenseTensor& t) {
    return is_widened(checkpoint.tensor(t.source_name));
  });
}

std::string quantised_twice(const Checkpoint& checkpoint, const std::vector<DType>& experts,
                            const std::optional<DType>& dense) {
  const auto rounds = [](DType d) { return is_blocks(d) || is_quantised(d); };
  const OwnExperts own = own_experts(checkpoint);
  const bool widened = has_widened_experts(checkpoint);  // f32 here, of numbers that were rounded to 4 bits
  const std::string from = widened ? "4 bits with columns ordered by activation" : with_bits(own.name, own.bits);
  std::string what;
  for (const DType to : experts)
    if (checkpoint.is_native() && rounds(to) && !own.all_are(to) &&
        (widened || own.bits < bits_per_value(DType::kBF16)))
      what += (what.empty() ? "experts from " + from + " to " : " and ") + with_bits(name_of(to), bits_per_value(to));
  bool dense_too = false;
  if (dense && rounds(*dense))
    for_dense_matrices(checkpoint, [&](const model::DenseTensor& t, DType source) {
      const bool rounded = rounds(source) || is_widened(checkpoint.tensor(t.source_name));
      dense_too = dense_too || (rounded && dense_format(source, *dense) != source);
    });
  if (dense_too)
    what += (what.empty() ? "" : "; ") + std::string("dense weights to ") +
            with_bits(name_of(*dense), bits_per_value(*dense));
  return what.empty() ? what
                      : "quantised a second time: " + what +
                            "; both errors add up, so start from the unquantised model if you have it";
}

}  // namespace moestro::store
