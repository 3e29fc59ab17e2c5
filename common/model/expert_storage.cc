#include "common/model/expert_storage.h"

namespace moestro::model {
namespace {

using GateUp = ExpertStorage::GateUp;

/// The rows of a part among those of its tensor: row r is at first + r * step of `all`.
struct Rows {
  int64_t count, all, first = 0, step = 1;
};

Rows rows_of(const ExpertStorage& storage, const ExpertSpec& expert, ExpertPart part) {
  if (part == ExpertPart::kDown) return {expert.hidden, expert.hidden};
  const int64_t ffn = expert.ffn, up = part == ExpertPart::kUp;
  switch (storage.gate_up) {
    case GateUp::kApart: break;
    case GateUp::kInTurn: return {ffn, 2 * ffn, up, 2};
    case GateUp::kHalves: return {ffn, 2 * ffn, up * ffn, 1};
  }
  return {ffn, ffn};
}

void add_stack(const ModelDescription& model, const ExpertTensors& expert, int64_t numbers, ExpertView& view) {
  if (!model.storage.stacked) return;
  view.first += int64_t{expert.expert.value} * numbers;
  if (model.storage.flat)
    view.shape.front() *= model.spec.moe().experts;
  else
    view.shape.insert(view.shape.begin(), model.spec.moe().experts);
}

}  // namespace

ExpertView view_of(const ModelDescription& model, const ExpertTensors& expert, ExpertPart part) {
  const ExpertSpec& spec = model.spec.moe().expert;
  const Rows rows = rows_of(model.storage, spec, part);
  const int64_t cols = part == ExpertPart::kDown ? spec.ffn : spec.hidden;
  ExpertView view{.shape = {rows.all, cols}, .rows = rows.count, .cols = cols};
  if (model.storage.transposed || (model.storage.transposed_down && part == ExpertPart::kDown)) {
    view.shape = {cols, rows.all};
    view.first = rows.first, view.row_step = rows.step, view.col_step = rows.all;
  } else {
    view.first = rows.first * cols, view.row_step = rows.step * cols;
  }
  add_stack(model, expert, rows.all * cols, view);
  return view;
}

ExpertView bias_view_of(const ModelDescription& model, const ExpertTensors& expert, ExpertPart part) {
  const Rows rows = rows_of(model.storage, model.spec.moe().expert, part);
  ExpertView view{.shape = {rows.all}, .rows = rows.count, .cols = 1, .first = rows.first, .row_step = rows.step};
  add_stack(model, expert, rows.all, view);
  return view;
}

void take_experts_apart(ModelDescription& model) {
  for (ExpertTensors& t : model.experts) {
    const std::string experts = t.down.substr(0, t.down.rfind('.') + 1) + std::to_string(t.expert.value) + ".";
    t.gate = experts + "gate_proj.weight", t.up = experts + "up_proj.weight", t.down = experts + "down_proj.weight";
  }
  model.storage = {};
}

}  // namespace moestro::model
