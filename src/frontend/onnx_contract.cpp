// Contractions, and attention in the forms that ONNX has for it.
#include <algorithm>
#include <cmath>

#include "frontend/onnx_handlers.hpp"
#include "graph/spec.hpp"

namespace cleave::onnx_import {

using graph::ContractSpec;
using graph::IndexNames;
using graph::Op;
using graph::Shape;
using graph::ValueId;

namespace {

Result<ValueId> contract(NodeContext& c, ValueId a, const IndexNames& left, ValueId b, const IndexNames& right,
                         const IndexNames& result) {
  return c.add(Op::contract, {a, b}, {{"spec", graph::print(ContractSpec{{left, right}, result})}});
}

}  // namespace

// NumPy's matmul: leading axes broadcast; a vector has no row (left) or no column (right).
Result<Values> import_matmul(NodeContext& c) {
  const size_t left_rank = c.rank(0), right_rank = c.rank(1);
  if (left_rank == 0 || right_rank == 0) return c.error("a scalar cannot be multiplied as a matrix");
  const size_t batch = std::max(left_rank > 2 ? left_rank - 2 : 0, right_rank > 2 ? right_rank - 2 : 0);
  IndexNames names;
  for (size_t i = 0; i < batch; ++i) names.push_back(fmt::format("b{}", i));
  const auto batch_names = [&](size_t rank) {
    const size_t own = rank > 2 ? rank - 2 : 0;
    return IndexNames(names.end() - static_cast<std::ptrdiff_t>(own), names.end());
  };
  IndexNames left = batch_names(left_rank), right = batch_names(right_rank), result = names;
  if (left_rank > 1) {
    left.push_back("m");
    result.push_back("m");
  }
  left.push_back("k");
  right.push_back("k");
  if (right_rank > 1) {
    right.push_back("n");
    result.push_back("n");
  }
  TRY_ASSIGN(const ValueId a, c.id(0));
  TRY_ASSIGN(const ValueId b, c.id(1));
  // The contraction would stretch an inner extent of 1; a matrix product must not.
  const sym::Expr inner_left = c.in(0).shape.back(), inner_right = c.in(1).shape[right_rank > 1 ? right_rank - 2 : 0];
  if (c.syms().equal(inner_left, inner_right) != sym::Proof::yes) {
    return c.error(fmt::format("{} and {} cannot be multiplied", print_shape(c.syms(), c.in(0).shape),
                               print_shape(c.syms(), c.in(1).shape)));
  }
  return c.one(contract(c, a, left, b, right, result));
}

// alpha A' B' + beta C
Result<Values> import_gemm(NodeContext& c) {
  if (c.rank(0) != 2 || c.rank(1) != 2) return c.error("its operands are no matrices");
  TRY_ASSIGN(const ValueId a, c.id(0));
  TRY_ASSIGN(const ValueId b, c.id(1));
  const bool flip_a = c.attribute_int("transA", 0) != 0, flip_b = c.attribute_int("transB", 0) != 0;
  if (c.syms().equal(c.in(0).shape[flip_a ? 0 : 1], c.in(1).shape[flip_b ? 1 : 0]) != sym::Proof::yes) {
    return c.error(fmt::format("{} and {} cannot be multiplied", print_shape(c.syms(), c.in(0).shape),
                               print_shape(c.syms(), c.in(1).shape)));
  }
  const IndexNames left = flip_a ? IndexNames{"k", "m"} : IndexNames{"m", "k"};
  const IndexNames right = flip_b ? IndexNames{"n", "k"} : IndexNames{"k", "n"};
  TRY_ASSIGN(ValueId y, contract(c, a, left, b, right, {"m", "n"}));
  const auto scaled = [&](ValueId v, double factor) -> Result<ValueId> {
    if (factor == 1) return v;
    return c.add(graph::op_of(Fn::mul), {v, c.builder().literal(factor, c.builder().type(v).dtype)});
  };
  TRY_ASSIGN(y, scaled(y, c.attribute_real("alpha", 1)));
  if (c.has(2) && c.attribute_real("beta", 1) != 0) {
    TRY_ASSIGN(const ValueId bias, c.id(2));
    TRY_ASSIGN(const ValueId addend, scaled(bias, c.attribute_real("beta", 1)));
    const Shape expected = c.builder().type(y).shape;
    TRY_ASSIGN(y, c.add(graph::op_of(Fn::add), {y, addend}));
    if (c.builder().type(y).shape != expected) return c.error("its third operand is larger than the product");
  }
  return c.one(y);
}

namespace {

struct Equation {
  std::vector<IndexNames> operands;
  IndexNames result;
};

// One term: letters name indices, "..." stands for the axes of `broadcast` that the operand has.
Result<IndexNames> parse_term(NodeContext& c, std::string_view term, size_t extra, const IndexNames& broadcast) {
  IndexNames names;
  while (!term.empty()) {
    if (term.starts_with("...")) {
      names.insert(names.end(), broadcast.end() - static_cast<std::ptrdiff_t>(extra), broadcast.end());
      term.remove_prefix(3);
    } else if (std::isalpha(static_cast<unsigned char>(term[0]))) {
      names.emplace_back(1, term[0]);
      term.remove_prefix(1);
    } else {
      return c.error("its equation has a character that is no index");
    }
  }
  IndexNames sorted = names;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    return c.error("a repeated index within one term (a diagonal) is not supported");
  }
  return names;
}

Result<Equation> parse_equation(NodeContext& c) {
  std::string text = c.attribute_text("equation", "");
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
  if (text.size() > 1000) return c.error("its equation is too long");
  const size_t arrow = text.find("->");
  const std::string_view all(text);
  std::vector<std::string_view> terms;
  for (std::string_view rest = all.substr(0, arrow);;) {
    const size_t comma = rest.find(',');
    terms.push_back(rest.substr(0, comma));
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  if (terms.size() != c.size())
    return c.error(fmt::format("its equation has {} terms for {} operands", terms.size(), c.size()));

  // How many axes "..." has in each operand.
  std::vector<size_t> extra(terms.size(), 0);
  size_t most = 0;
  for (size_t i = 0; i < terms.size(); ++i) {
    if (!c.has(i)) return c.error(fmt::format("operand {} is missing", i));
    const size_t dots = terms[i].find("...");
    const size_t letters = terms[i].size() - (dots == std::string_view::npos ? 0 : 3);
    if (letters > c.rank(i) || (dots == std::string_view::npos && letters != c.rank(i))) {
      return c.error(fmt::format("the term `{}` does not fit an operand of rank {}", shown(terms[i]), c.rank(i)));
    }
    extra[i] = c.rank(i) - letters;
    most = std::max(most, extra[i]);
  }
  IndexNames broadcast;
  for (size_t i = 0; i < most; ++i) broadcast.push_back(fmt::format("e{}", i));
  Equation equation;
  std::string letters;
  for (size_t i = 0; i < terms.size(); ++i) {
    TRY_ASSIGN(IndexNames names, parse_term(c, terms[i], extra[i], broadcast));
    equation.operands.push_back(std::move(names));
    for (const char letter : terms[i]) {
      if (letter != '.') letters += letter;
    }
  }
  if (arrow != std::string::npos) {
    TRY_ASSIGN(equation.result, parse_term(c, all.substr(arrow + 2), most, broadcast));
  } else {
    // Without an arrow: the broadcast axes, then the letters that occur once, in order.
    equation.result = broadcast;
    std::sort(letters.begin(), letters.end());
    for (const char letter : letters) {
      if (std::count(letters.begin(), letters.end(), letter) == 1) equation.result.emplace_back(1, letter);
    }
  }
  for (const auto& name : equation.result) {
    const bool known = std::any_of(equation.operands.begin(), equation.operands.end(), [&](const IndexNames& names) {
      return std::find(names.begin(), names.end(), name) != names.end();
    });
    if (!known) return c.error(fmt::format("the index `{}` of its result is in no operand", name));
  }
  return equation;
}

bool contains(const IndexNames& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

// Operands are contracted from left to right; an index is summed as soon as nothing later needs it.
Result<Values> import_einsum(NodeContext& c) {
  TRY_ASSIGN(const Equation equation, parse_equation(c));
  TRY_ASSIGN(ValueId value, c.id(0));
  IndexNames names = equation.operands[0];
  for (size_t i = 1; i < equation.operands.size(); ++i) {
    TRY_ASSIGN(const ValueId next, c.id(i));
    IndexNames kept;
    if (i + 1 == equation.operands.size()) {
      kept = equation.result;
    } else {
      for (const IndexNames* side : std::initializer_list<const IndexNames*>{&names, &equation.operands[i]}) {
        for (const auto& name : *side) {
          bool needed = contains(equation.result, name);
          for (size_t later = i + 1; later < equation.operands.size(); ++later) {
            needed = needed || contains(equation.operands[later], name);
          }
          if (needed && !contains(kept, name)) kept.push_back(name);
        }
      }
    }
    TRY_ASSIGN(value, contract(c, value, names, next, equation.operands[i], kept));
    names = std::move(kept);
  }
  if (equation.operands.size() > 1) return c.one(value);

  std::vector<int64_t> summed, perm;
  IndexNames left;
  for (size_t i = 0; i < names.size(); ++i) {
    if (contains(equation.result, names[i])) {
      left.push_back(names[i]);
    } else {
      summed.push_back(static_cast<int64_t>(i));
    }
  }
  for (const auto& name : equation.result) perm.push_back(std::find(left.begin(), left.end(), name) - left.begin());
  if (!summed.empty()) {
    TRY_ASSIGN(value, c.add(Op::sum, {value}, {{"axes", summed}}));
  }
  if (!std::is_sorted(perm.begin(), perm.end())) {
    TRY_ASSIGN(value, c.add(Op::transpose, {value}, {{"perm", perm}}));
  }
  return c.one(value);
}

namespace {

// [batch, length, heads * width] -> [batch, heads, length, width]
Result<ValueId> split_heads(NodeContext& c, ValueId x, int64_t heads) {
  const Shape shape = c.builder().type(x).shape;
  if (heads < 1 || c.syms().divides(heads, shape[2]) != sym::Proof::yes) {
    return c.error(fmt::format("{} heads do not divide a width of {}", heads, shown(c.syms().print(shape[2]))));
  }
  const sym::Expr count = c.syms().constant(heads);
  TRY_ASSIGN(const ValueId apart, c.reshape(x, {shape[0], shape[1], count, c.syms().floordiv(shape[2], count)}));
  return c.add(Op::transpose, {apart}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
}

// [batch, heads, length, width] -> [batch, length, heads * width]
Result<ValueId> join_heads(NodeContext& c, ValueId x) {
  TRY_ASSIGN(const ValueId turned, c.add(Op::transpose, {x}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}}));
  const Shape shape = c.builder().type(turned).shape;
  return c.reshape(turned, {shape[0], shape[1], c.syms().mul(shape[2], shape[3])});
}

Result<ValueId> slice(NodeContext& c, ValueId x, int64_t axis, sym::Expr start, sym::Expr stop, int64_t step = 1) {
  return c.add(Op::slice, {x},
               {{"axes", std::vector<int64_t>{axis}},
                {"starts", Shape{start}},
                {"stops", Shape{stop}},
                {"steps", std::vector<int64_t>{step}}});
}

}  // namespace

// Query, key and value as [batch, heads, length, width] or [batch, length, heads * width]; its causal mask is aligned
// at the start of both sequences.
Result<Values> import_attention(NodeContext& c) {
  if (c.attribute_real("softcap", 0) != 0) return c.error("`softcap` is not supported");
  if (c.has(6)) return c.error("lengths of keys are not supported");
  if (c.wants(3)) return c.error("its scores as a result are not supported");
  const bool past = c.has(4) || c.has(5);
  if (past && (!c.has(4) || !c.has(5))) return c.error("past keys and past values come together");
  if (past && c.attribute_int("is_causal", 0) != 0) return c.error("a causal mask over past keys is not supported");
  const size_t rank = c.rank(0);
  if ((rank != 3 && rank != 4) || c.rank(1) != rank || c.rank(2) != rank)
    return c.error("query, key and value need three or four axes");
  std::vector<ValueId> operands;
  for (size_t i = 0; i < 3; ++i) {
    TRY_ASSIGN(ValueId x, c.id(i));
    if (rank == 3) {
      TRY_ASSIGN(x, split_heads(c, x, c.attribute_int(i == 0 ? "q_num_heads" : "kv_num_heads", 0)));
    }
    if (i > 0 && past) {
      TRY_ASSIGN(const ValueId before, c.id(i + 3));
      TRY_ASSIGN(x, c.add(Op::concat, {before, x}, {{"axis", int64_t{2}}}));
    }
    operands.push_back(x);
  }
  const Values present{c.wrap(operands[1]), c.wrap(operands[2])};
  if (c.has(3)) {
    TRY_ASSIGN(const ValueId mask, c.id(3));
    operands.push_back(mask);
  }
  // A row that the mask leaves without keys is zero.
  graph::Attributes attributes{{"empty", std::string("zero")}};
  if (c.attribute_int("is_causal", 0) != 0) attributes.set("causal", std::string("start"));
  if (c.attribute("scale")) attributes.set("scale", c.attribute_real("scale", 1));
  TRY_ASSIGN(const ValueId y, c.add(Op::sdpa, std::move(operands), std::move(attributes)));
  ValueId result = y;
  if (rank == 3) {
    TRY_ASSIGN(result, join_heads(c, y));
  }
  return Values{c.wrap(result), present[0], present[1]};
}

// (x1, x2) -> (x1 cos - x2 sin, x1 sin + x2 cos), with x1 and x2 the halves or the alternate elements of the rotated
// part.
Result<Values> import_rotary_embedding(NodeContext& c) {
  const size_t rank = c.rank(0);
  if (rank != 3 && rank != 4) return c.error("its operand needs three or four axes");
  TRY_ASSIGN(ValueId x, c.id(0));
  if (rank == 3) {
    TRY_ASSIGN(x, split_heads(c, x, c.attribute_int("num_heads", 0)));
  }
  const Shape shape = c.builder().type(x).shape;
  const auto width = c.syms().as_constant(shape[3]);
  if (!width) return c.error("a symbolic head width is not supported");
  const int64_t given = c.attribute_int("rotary_embedding_dim", 0), rotated = given == 0 ? *width : given;
  if (rotated < 2 || rotated % 2 != 0 || rotated > *width)
    return c.error(fmt::format("{} of {} elements cannot be rotated", rotated, *width));
  const auto constant = [&](int64_t v) { return c.syms().constant(v); };

  // The angles: [batch, length, rotated / 2], picked from a table by position if there are positions.
  ValueId angles[2];
  for (size_t i = 0; i < 2; ++i) {
    TRY_ASSIGN(angles[i], c.id(i + 1));
    if (c.has(3)) {
      TRY_ASSIGN(const ValueId positions, c.id(3));
      TRY_ASSIGN(angles[i], c.add(Op::gather, {angles[i], positions}, {{"axis", int64_t{0}}}));
    }
    if (c.builder().type(angles[i]).shape.size() != 3) return c.error("its angles need three axes");
    TRY_ASSIGN(angles[i], c.add(Op::unsqueeze, {angles[i]}, {{"axes", std::vector<int64_t>{1}}}));
  }
  const bool interleaved = c.attribute_int("interleaved", 0) != 0;
  const sym::Expr end = constant(rotated);
  ValueId first, second;
  if (interleaved) {
    TRY_ASSIGN(first, slice(c, x, 3, constant(0), end, 2));
    TRY_ASSIGN(second, slice(c, x, 3, constant(1), end, 2));
  } else {
    TRY_ASSIGN(first, slice(c, x, 3, constant(0), constant(rotated / 2)));
    TRY_ASSIGN(second, slice(c, x, 3, constant(rotated / 2), end));
  }
  const auto product = [&](ValueId a, ValueId b) { return c.add(graph::op_of(Fn::mul), {a, b}); };
  TRY_ASSIGN(const ValueId cos_first, product(first, angles[0]));
  TRY_ASSIGN(const ValueId sin_second, product(second, angles[1]));
  TRY_ASSIGN(const ValueId sin_first, product(first, angles[1]));
  TRY_ASSIGN(const ValueId cos_second, product(second, angles[0]));
  TRY_ASSIGN(ValueId left, c.add(graph::op_of(Fn::sub), {cos_first, sin_second}));
  TRY_ASSIGN(ValueId right, c.add(graph::op_of(Fn::add), {sin_first, cos_second}));
  ValueId y;
  if (interleaved) {
    TRY_ASSIGN(left, c.add(Op::unsqueeze, {left}, {{"axes", std::vector<int64_t>{4}}}));
    TRY_ASSIGN(right, c.add(Op::unsqueeze, {right}, {{"axes", std::vector<int64_t>{4}}}));
    TRY_ASSIGN(const ValueId pairs, c.add(Op::concat, {left, right}, {{"axis", int64_t{4}}}));
    TRY_ASSIGN(y, c.reshape(pairs, {shape[0], shape[1], shape[2], end}));
  } else {
    TRY_ASSIGN(y, c.add(Op::concat, {left, right}, {{"axis", int64_t{3}}}));
  }
  if (rotated < *width) {
    TRY_ASSIGN(const ValueId rest, slice(c, x, 3, end, shape[3]));
    TRY_ASSIGN(y, c.add(Op::concat, {y, rest}, {{"axis", int64_t{3}}}));
  }
  if (rank == 4) return c.one(y);
  return c.one(join_heads(c, y));
}

}  // namespace cleave::onnx_import
