#include "bridge/lift.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/codes.hpp"
#include "graph/spec.hpp"

namespace cleave::bridge {

using graph::Attributes;

namespace {

bool contains(std::span<const uint32_t> list, uint32_t x) {
  return std::find(list.begin(), list.end(), x) != list.end();
}

int64_t product(std::span<const int64_t> extents) {
  return std::accumulate(extents.begin(), extents.end(), int64_t{1}, std::multiplies<>());
}

// Terms by the size of their factors, least first, with those below 0 turned around: the loop counts down.
struct Term {
  uint32_t loop;
  int64_t factor;
  bool turned;
};
std::vector<Term> by_factor(Linear& form, std::span<const int64_t> extents) {
  std::vector<Term> out;
  for (const auto& [loop, factor] : form.terms) {
    if (factor < 0) form.constant += factor * (extents[loop] - 1);
    out.push_back({loop, std::abs(factor), factor < 0});
  }
  std::sort(out.begin(), out.end(),
            [](const Term& a, const Term& b) { return std::pair(a.factor, a.loop) < std::pair(b.factor, b.loop); });
  return out;
}

// Does each term step over all of the terms below it: are they digits of one number?
bool digits(std::span<const Term> terms, std::span<const int64_t> extents) {
  for (size_t i = 0; i + 1 < terms.size(); ++i)
    if (terms[i + 1].factor != terms[i].factor * extents[terms[i].loop]) return false;
  return true;
}

}  // namespace

Result<ValueId> Lifter::make(Op op, std::vector<ValueId> operands, Attributes attributes) {
  TRY_ASSIGN(const std::vector<ValueId> results, b_.add(op, std::move(operands), std::move(attributes)));
  return results.at(0);
}

std::vector<int64_t> Lifter::shape_of(ValueId value) const { return b_.graph().extents(value); }

Linear Lifter::significant(const Linear& form) const {
  Linear out{form.constant, {}};
  for (const auto& [loop, factor] : form.terms)
    if (factor != 0 && extents_[loop] != 1) out.terms[loop] = factor;
  return out;
}

Lifted Lifter::literal(double value, DType dtype) { return {b_.literal(value, dtype), {}}; }

Result<Lifted> Lifter::index(uint32_t loop) {
  if (extents_[loop] == 1) return literal(0, DType::i64);
  const int64_t n[] = {extents_[loop]};
  TRY_ASSIGN(const ValueId v, make(Op::iota, {}, {{"shape", symbols(n)}, {"axis", int64_t{0}}, {"dtype", DType::i64}}));
  return Lifted{v, {loop}};
}

Result<Lifted> Lifter::linear(const Linear& form) {
  std::optional<Lifted> sum;
  for (const auto& [loop, factor] : significant(form).terms) {
    TRY_ASSIGN(Lifted term, index(loop));
    if (factor != 1) {
      TRY_ASSIGN(term, apply(Op::mul, {term, literal(static_cast<double>(factor), DType::i64)}));
    }
    if (sum) {
      TRY_ASSIGN(term, apply(Op::add, {*sum, term}));
    }
    sum = term;
  }
  const Lifted constant = literal(static_cast<double>(form.constant), DType::i64);
  if (!sum) return constant;
  return form.constant == 0 ? Result<Lifted>(*sum) : apply(Op::add, {*sum, constant});
}

Result<Lifted> Lifter::apply(Op op, std::vector<Lifted> operands) {
  std::set<uint32_t> all;
  for (const Lifted& x : operands) all.insert(x.axes.begin(), x.axes.end());
  std::vector<ValueId> aligned;
  for (const Lifted& x : operands) {
    // Operands are aligned at the last axis: what they lack behind their first axis is put in.
    std::vector<int64_t> missing;
    int64_t at = 0;
    bool inside = false;
    for (uint32_t loop : all) {
      if (contains(x.axes, loop))
        inside = true;
      else if (inside)
        missing.push_back(at);
      if (inside) ++at;
    }
    ValueId v = x.value;
    if (!missing.empty()) {
      TRY_ASSIGN(v, make(Op::unsqueeze, {v}, {{"axes", missing}}));
    }
    aligned.push_back(v);
  }
  TRY_ASSIGN(const ValueId v, make(op, std::move(aligned)));
  Lifted out{v, {all.begin(), all.end()}};
  if (op == Op::mul) out.factors = std::make_shared<std::pair<Lifted, Lifted>>(operands[0], operands[1]);
  return out;
}

Result<Lifted> Lifter::cast(Lifted x, DType to) {
  if (dtype(x) == to) return x;
  TRY_ASSIGN(x.value, make(Op::cast, {x.value}, {{"dtype", to}}));
  x.factors = nullptr;
  return x;
}

Result<Lifted> Lifter::spread(const Lifted& x, std::span<const uint32_t> axes) {
  if (std::equal(axes.begin(), axes.end(), x.axes.begin(), x.axes.end())) return x;
  std::vector<int64_t> missing, shape;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (!contains(x.axes, axes[i])) missing.push_back(static_cast<int64_t>(i));
    shape.push_back(extents_[axes[i]]);
  }
  TRY_ASSIGN(ValueId v, make(Op::unsqueeze, {x.value}, {{"axes", missing}}));
  TRY_ASSIGN(v, make(Op::broadcast, {v}, {{"shape", symbols(shape)}}));
  return Lifted{v, {axes.begin(), axes.end()}};
}

Result<Lifted> Lifter::reduce(Op op, const Lifted& x, std::span<const uint32_t> loops) {
  std::vector<uint32_t> whole = x.axes, kept, reduced;
  for (uint32_t loop : loops) {
    if (extents_[loop] == 1) continue;
    reduced.push_back(loop);
    if (!contains(whole, loop)) whole.push_back(loop);
  }
  if (reduced.empty()) return x;
  std::sort(whole.begin(), whole.end());
  for (uint32_t loop : whole)
    if (!contains(reduced, loop)) kept.push_back(loop);
  const bool full = whole.size() == x.axes.size();
  if (op == Op::sum && full && x.factors && !x.factors->first.axes.empty() && !x.factors->second.axes.empty()) {
    const auto& [a, b] = *x.factors;
    graph::ContractSpec spec;
    auto names = [](const std::vector<uint32_t>& axes) {
      graph::IndexNames out;
      for (uint32_t loop : axes) out.push_back(fmt::format("i{}", loop));
      return out;
    };
    spec.operands = {names(a.axes), names(b.axes)};
    spec.result = names(kept);
    TRY_ASSIGN(const ValueId v, make(Op::contract, {a.value, b.value}, {{"spec", graph::print(spec)}}));
    return Lifted{v, kept};
  }
  TRY_ASSIGN(const Lifted all, spread(x, whole));
  std::vector<int64_t> axes;
  for (size_t i = 0; i < whole.size(); ++i)
    if (contains(reduced, whole[i])) axes.push_back(static_cast<int64_t>(i));
  TRY_ASSIGN(const ValueId v, make(op, {all.value}, {{"axes", axes}}));
  return Lifted{v, kept};
}

Result<Lifted> Lifter::scan(Op op, const Lifted& x, uint32_t loop) {
  std::vector<uint32_t> axes = x.axes;
  if (!contains(axes, loop)) axes.insert(std::upper_bound(axes.begin(), axes.end(), loop), loop);
  TRY_ASSIGN(const Lifted all, spread(x, axes));
  const auto axis = std::find(axes.begin(), axes.end(), loop) - axes.begin();
  TRY_ASSIGN(const ValueId v, make(op, {all.value}, {{"axis", int64_t{axis}}}));
  return Lifted{v, axes};
}

Result<Lifted> Lifter::last(const Lifted& x, uint32_t loop) {
  if (!contains(x.axes, loop)) return x;
  Lifted out = x;
  const auto axis = std::find(x.axes.begin(), x.axes.end(), loop) - x.axes.begin();
  out.axes.erase(out.axes.begin() + axis);
  out.factors = nullptr;
  const int64_t from[] = {extents_[loop] - 1}, to[] = {extents_[loop]};
  const std::vector<int64_t> axes = {axis};
  TRY_ASSIGN(out.value,
             make(Op::slice, {x.value}, {{"axes", axes}, {"starts", symbols(from)}, {"stops", symbols(to)}}));
  TRY_ASSIGN(out.value, make(Op::squeeze, {out.value}, {{"axes", axes}}));
  return out;
}

Result<Lifted> Lifter::ordered(ValueId tensor, const std::vector<uint32_t>& loops) {
  std::vector<int64_t> order(loops.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::sort(order.begin(), order.end(),
            [&](int64_t a, int64_t b) { return loops[static_cast<size_t>(a)] < loops[static_cast<size_t>(b)]; });
  Lifted out{tensor, {}};
  for (int64_t i : order) out.axes.push_back(loops[static_cast<size_t>(i)]);
  if (!std::is_sorted(order.begin(), order.end())) {
    TRY_ASSIGN(out.value, make(Op::transpose, {tensor}, {{"perm", order}}));
  }
  return out;
}

Result<Lifted> Lifter::element(ValueId tensor, std::vector<Linear> at, double outside) {
  std::vector<int64_t> shape = shape_of(tensor), low(at.size(), 0), high(at.size(), 0);
  std::set<uint32_t> seen;
  bool pad = false, shared = false;
  for (size_t k = 0; k < at.size(); ++k) {
    at[k] = significant(at[k]);
    int64_t least = at[k].constant, most = at[k].constant;
    for (const auto& [loop, factor] : at[k].terms) {
      (factor < 0 ? least : most) += factor * (extents_[loop] - 1);
      shared = !seen.insert(loop).second || shared;
    }
    low[k] = std::max<int64_t>(-least, 0);
    high[k] = std::max<int64_t>(most - shape[k] + 1, 0);
    pad = pad || low[k] || high[k];
    at[k].constant += low[k];
    shape[k] += low[k] + high[k];
  }
  if (pad) {
    TRY_ASSIGN(tensor, make(Op::pad, {tensor}, {{"low", low}, {"high", high}, {"value", outside}}));
  }
  if (shared) {
    // One loop in several axes: along the memory the place is still linear.
    Linear flat;
    int64_t stride = 1;
    for (size_t k = at.size(); k-- > 0;) {
      if (stride > int64_t{1} << 31) return diagnose(Code::leir_type, "a diagonal of a tensor that is too large");
      flat.constant += at[k].constant * stride;
      for (const auto& [loop, factor] : at[k].terms) flat.terms[loop] += factor * stride;
      stride *= shape[k];
    }
    const int64_t all[] = {stride};
    TRY_ASSIGN(tensor, make(Op::reshape, {tensor}, {{"shape", symbols(all)}}));
    at = {significant(flat)};
  }
  std::vector<Axis> axes;
  for (Linear& form : at) axes.push_back({std::nullopt, std::move(form)});
  return resolve(tensor, std::move(axes));
}

Result<Lifted> Lifter::resolve(ValueId tensor, std::vector<Axis> axes) {
  std::vector<int64_t> squeezed, turned;
  for (size_t k = 0; k < axes.size(); ++k) {
    if (axes[k].loop) continue;
    Linear form = axes[k].at;
    const std::vector<Term> terms = by_factor(form, extents_);
    const int64_t n = shape_of(tensor)[k];
    const std::vector<int64_t> axis = {static_cast<int64_t>(k)};
    int64_t span = 1;
    for (const Term& t : terms) span += t.factor * (extents_[t.loop] - 1);
    const bool number = digits(terms, extents_);
    const int64_t step = number && !terms.empty() ? terms[0].factor : 1;
    if (form.constant != 0 || span != n || step != 1) {
      const int64_t from[] = {form.constant}, to[] = {form.constant + span};
      Attributes cut{{"axes", axis}, {"starts", symbols(from)}, {"stops", symbols(to)}};
      if (step != 1) cut.set("steps", std::vector<int64_t>{step});
      TRY_ASSIGN(tensor, make(Op::slice, {tensor}, std::move(cut)));
    }
    if (terms.empty()) {
      squeezed.push_back(axis[0]);
      continue;
    }
    if (number) {
      // The axis is split into its digits, the largest first.
      std::vector<int64_t> shape = shape_of(tensor), parts;
      std::vector<Axis> mine;
      for (size_t i = terms.size(); i-- > 0;) {
        parts.push_back(extents_[terms[i].loop]);
        mine.push_back({terms[i].loop, {}});
      }
      shape.erase(shape.begin() + static_cast<ptrdiff_t>(k));
      shape.insert(shape.begin() + static_cast<ptrdiff_t>(k), parts.begin(), parts.end());
      if (terms.size() > 1) {
        TRY_ASSIGN(tensor, make(Op::reshape, {tensor}, {{"shape", symbols(shape)}}));
      }
      axes.erase(axes.begin() + static_cast<ptrdiff_t>(k));
      axes.insert(axes.begin() + static_cast<ptrdiff_t>(k), mine.begin(), mine.end());
      k += terms.size() - 1;
    } else {
      // Windows: each but the last leaves the axis to the terms above it, and adds one of its own at the end.
      for (size_t i = 0; i + 1 < terms.size(); ++i) {
        const bool done = i + 2 == terms.size();
        const std::vector<int64_t> size = {extents_[terms[i].loop]}, stride = {done ? terms[i + 1].factor : 1},
                                   dilation = {terms[i].factor};
        TRY_ASSIGN(tensor, make(Op::window, {tensor},
                                {{"axes", axis}, {"sizes", size}, {"strides", stride}, {"dilations", dilation}}));
        axes.push_back({terms[i].loop, {}});
      }
      axes[k].loop = terms.back().loop;
    }
    for (const Term& t : terms)
      if (t.turned) turned.push_back(t.loop);
  }
  if (!squeezed.empty()) {
    TRY_ASSIGN(tensor, make(Op::squeeze, {tensor}, {{"axes", squeezed}}));
  }
  std::vector<uint32_t> loops;
  for (const Axis& a : axes)
    if (a.loop) loops.push_back(*a.loop);
  TRY_ASSIGN(Lifted out, ordered(tensor, loops));
  if (!turned.empty()) {
    std::vector<int64_t> flipped;
    for (size_t i = 0; i < out.axes.size(); ++i)
      if (std::find(turned.begin(), turned.end(), out.axes[i]) != turned.end())
        flipped.push_back(static_cast<int64_t>(i));
    TRY_ASSIGN(out.value, make(Op::flip, {out.value}, {{"axes", flipped}}));
  }
  return out;
}

Result<Lifted> Lifter::gather(ValueId tensor, const std::vector<Lifted>& at,
                              const std::vector<std::optional<Linear>>& linear) {
  const std::vector<int64_t> shape = shape_of(tensor);
  std::optional<size_t> computed;
  std::set<uint32_t> seen;
  bool apart = true;
  for (size_t k = 0; k < at.size(); ++k) {
    const Linear form = linear[k] ? significant(*linear[k]) : Linear{};
    if (!linear[k]) {
      apart = apart && !computed;
      computed = k;
      for (uint32_t loop : at[k].axes) apart = seen.insert(loop).second && apart;
    }
    int64_t least = form.constant, most = form.constant;
    for (const auto& [loop, factor] : form.terms) {
      apart = seen.insert(loop).second && apart;
      (factor < 0 ? least : most) += factor * (extents_[loop] - 1);
    }
    apart = apart && (!linear[k] || (least >= 0 && most < shape[k]));
  }
  if (apart && computed) {
    const size_t k = *computed;
    TRY_ASSIGN(const ValueId v, make(Op::gather, {tensor, at[k].value}, {{"axis", static_cast<int64_t>(k)}}));
    std::vector<Axis> axes;
    for (size_t i = 0; i < at.size(); ++i) {
      if (i != k) {
        axes.push_back({std::nullopt, significant(*linear[i])});
        continue;
      }
      for (uint32_t loop : at[k].axes) axes.push_back({loop, {}});
    }
    return resolve(v, std::move(axes));
  }
  // The place along the memory.
  int64_t stride = 1;
  Lifted place = literal(0, DType::i64);
  for (size_t k = at.size(); k-- > 0;) {
    TRY_ASSIGN(Lifted part, apply(Op::mul, {at[k], literal(static_cast<double>(stride), DType::i64)}));
    TRY_ASSIGN(place, apply(Op::add, {place, part}));
    stride *= shape[k];
  }
  const int64_t all[] = {stride};
  TRY_ASSIGN(tensor, make(Op::reshape, {tensor}, {{"shape", symbols(all)}}));
  TRY_ASSIGN(const ValueId v, make(Op::gather, {tensor, place.value}, {{"axis", int64_t{0}}}));
  return Lifted{v, place.axes};
}

Result<std::optional<Lifter::Box>> Lifter::place(Lifted x, const std::vector<Linear>& at) {
  Box out;
  std::vector<uint32_t> order;
  std::vector<uint32_t> turned;
  for (const Linear& raw : at) {
    Linear form = significant(raw);
    const std::vector<Term> terms = by_factor(form, extents_);
    if (!digits(terms, extents_) || (!terms.empty() && terms[0].factor != 1)) return std::optional<Box>();
    int64_t n = 1;
    for (size_t i = terms.size(); i-- > 0;) {
      if (contains(order, terms[i].loop)) return std::optional<Box>();
      order.push_back(terms[i].loop);
      n *= extents_[terms[i].loop];
      if (terms[i].turned) turned.push_back(terms[i].loop);
    }
    out.from.push_back(form.constant);
    out.shape.push_back(n);
  }
  std::vector<uint32_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  TRY_ASSIGN(x, spread(x, sorted));
  std::vector<int64_t> perm, flipped, shape;
  for (size_t i = 0; i < order.size(); ++i) {
    perm.push_back(std::find(sorted.begin(), sorted.end(), order[i]) - sorted.begin());
    if (contains(turned, order[i])) flipped.push_back(static_cast<int64_t>(i));
    shape.push_back(extents_[order[i]]);
  }
  out.value = x.value;
  if (!std::is_sorted(perm.begin(), perm.end())) {
    TRY_ASSIGN(out.value, make(Op::transpose, {out.value}, {{"perm", perm}}));
  }
  if (!flipped.empty()) {
    TRY_ASSIGN(out.value, make(Op::flip, {out.value}, {{"axes", flipped}}));
  }
  CHECK(product(shape) == product(out.shape), "a box of {} elements from {}", product(out.shape), product(shape));
  if (shape != out.shape) {
    TRY_ASSIGN(out.value, make(Op::reshape, {out.value}, {{"shape", symbols(out.shape)}}));
  }
  return std::optional<Box>(std::move(out));
}

}  // namespace cleave::bridge
